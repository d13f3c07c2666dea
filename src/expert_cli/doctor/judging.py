"""What `evaluate` judges TypeScript answers with; training needs none of it, so nothing here is worse than ok."""

from __future__ import annotations

from pathlib import Path

from expert_cli.doctor.lines import Line
from expert_cli.evaluation.verifiers.node import OLDEST, Node

NAME = "TypeScript answers"
_NODE = f"install Node.js {OLDEST[0]} or newer"
_COMPILER = "npm install -g typescript@5"


def typescript(node: Node | None, compiler: Path | None) -> Line:
    """Say whether answers would be run, type-checked or only parsed."""
    if node is None:
        return Line(NAME, "ok", f"no Node.js from {OLDEST[0]} on: they can only be parsed", _NODE)
    version = "Node.js {}.{}".format(*node.version)
    if not node.strips_types and compiler is None:
        return Line(NAME, "ok", f"{version} cannot run them without the npm package typescript", _COMPILER)
    if compiler is None:
        return Line(NAME, "ok", f"{version}: run with their tests, not type-checked", _COMPILER)
    return Line(NAME, "ok", f"{version}, typescript from {compiler}: type-checked and run with their tests")
