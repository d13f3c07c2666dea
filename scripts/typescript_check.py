"""How TypeScript rows are verified: parsed with tree-sitter, and where node is there type-checked and run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import tree_sitter_typescript
from tree_sitter import Language, Node, Parser

PACKAGE = "typescript@5.9.3"
RUNNER = Path(__file__).with_name("run_typescript.cjs")
PARSER = Parser(Language(tree_sitter_typescript.language_typescript()))


def cache_folder() -> Path:
    """Where the npm package is kept, outside the repository."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "expert-cli" / "typescript"


def _broken(node: Node) -> bool:
    return node.is_error or node.is_missing or any(_broken(child) for child in node.children)


def parses(source: str) -> bool:
    """Whether the text is TypeScript without error nodes."""
    return not _broken(PARSER.parse(source.encode()).root_node)


def compiler(fetch: bool) -> Path | None:
    """The folder of the typescript package, fetched once with npm where wanted; None where there is none to be had."""
    folder, npm = cache_folder(), shutil.which("npm")
    package = folder / "node_modules" / "typescript"
    if shutil.which("node") is None:
        return None
    if fetch and npm is not None and not package.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", PACKAGE]
        subprocess.run(command, capture_output=True, check=False)
    return package if package.is_dir() else None


def failures(rows: Sequence[Mapping[str, str]], package: Path) -> list[str | None]:
    """For every row None, or what the type check or the row's own test said; one node process for all rows."""
    node = shutil.which("node")
    if node is None:
        raise FileNotFoundError("node")
    sent = json.dumps([{"output": row["output"], "test": row["test"]} for row in rows])
    command = [node, str(RUNNER), str(package)]
    done = subprocess.run(command, input=sent, capture_output=True, encoding="utf-8", check=True, timeout=300)
    reasons: list[str | None] = json.loads(done.stdout)
    return reasons
