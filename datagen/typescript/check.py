"""How TypeScript rows are verified: parsed with tree-sitter, and where node is there type-checked and run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import tree_sitter_typescript
from tree_sitter import Language, Node, Parser

from expert_cli.evaluation.verifiers.sandbox.node import find_node

RUNNER = Path(__file__).with_name("run_typescript.cjs")
PARSER = Parser(Language(tree_sitter_typescript.language_typescript()))


def _broken(node: Node) -> bool:
    return node.is_error or node.is_missing or any(_broken(child) for child in node.children)


def parses(source: str) -> bool:
    """Whether the text is TypeScript without error nodes."""
    return not _broken(PARSER.parse(source.encode()).root_node)


def failures(rows: Sequence[Mapping[str, str]], package: Path) -> list[str | None]:
    """For every row None, or what the type check or the row's own test said; one node process for all rows."""
    node = find_node()
    if node is None:
        raise FileNotFoundError("node")
    sent = json.dumps([{"output": row["output"], "test": row["test"]} for row in rows])
    command = [node.path, str(RUNNER), str(package)]
    done = subprocess.run(command, input=sent, capture_output=True, encoding="utf-8", check=True, timeout=300)
    reasons: list[str | None] = json.loads(done.stdout)
    return reasons
