"""The generated documents are those of the code."""

from __future__ import annotations

import re
import sys
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest

from docs._generate import format_docs, make_docs

ROOT = Path(__file__).parents[2]


def test_the_committed_documents_are_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["make_docs", "--check"])
    assert make_docs.main() == 0


def test_every_row_of_a_table_of_options_has_three_cells() -> None:
    lines = (ROOT / "docs" / "CLI.md").read_text(encoding="utf-8").splitlines()
    tables = [[*group] for is_row, group in groupby(lines, lambda line: line.startswith("|")) if is_row]
    options = [row for table in tables if table[0] == "| option | value | meaning |" for row in table]
    assert len(options) > 100
    assert [row for row in options if len(re.findall(r"(?<!\\)\|", row)) != 4] == []
    assert "| `--gguf` | q8_0, f16 |" in "\n".join(options)


def test_no_row_of_a_table_is_torn() -> None:
    for document in sorted((ROOT / "docs").glob("*.md")):
        lines = document.read_text(encoding="utf-8").splitlines()
        torn = [after for row, after in pairwise(lines) if row.startswith("|") and after and not after.startswith("|")]
        assert not torn, document.name


VALUES: dict[str, tuple[dict[str, Any], str]] = {
    "range": (
        {"anyOf": [{"type": "number", "minimum": 0, "exclusiveMaximum": 1}, {"type": "null"}]},
        "number ≥ 0, < 1",
    ),
    "choice": ({"enum": ["a", "b"], "type": "string"}, '`"a"`, `"b"`'),
    "one value": ({"const": "sft", "type": "string"}, '`"sft"`'),
    "several types": ({"anyOf": [{"type": "boolean"}, {"const": "concat"}]}, 'true or false or `"concat"`'),
    "list": ({"type": "array", "items": {"type": "string"}}, "list: text"),
    "block": ({"$ref": "#/$defs/Base"}, "object"),
    "free": ({}, "anything"),
}


@pytest.mark.parametrize(("node", "words"), VALUES.values(), ids=VALUES.keys())
def test_allowed_values_in_words(node: dict[str, Any], words: str) -> None:
    assert format_docs.allowed(node) == words


def test_every_block_of_the_schema_is_described() -> None:
    described = {name for name, _, _ in format_docs.BLOCKS} - {""}
    assert described == set(format_docs.manifest_schema()["$defs"])
