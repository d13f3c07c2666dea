"""The generated documents are those of the code, and the commands answer what is kept."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from docs._generate import format_docs, make_docs
from scripts import make_golden

ROOT = Path(__file__).parents[2]


def test_the_committed_documents_are_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["make_docs", "--check"])
    assert make_docs.main() == 0


def test_no_row_of_a_table_is_torn() -> None:
    for document in sorted((ROOT / "docs").glob("*.md")):
        lines = document.read_text(encoding="utf-8").splitlines()
        torn = [after for row, after in pairwise(lines) if row.startswith("|") and after and not after.startswith("|")]
        assert not torn, document.name


def test_every_block_of_the_schema_is_described() -> None:
    described = {name for name, _, _ in format_docs.BLOCKS} - {""}
    assert described == set(format_docs.manifest_schema()["$defs"])


REMEDY = "if that is meant, make them anew: python -m scripts.make_golden"


@pytest.mark.skipif(sys.platform != "linux", reason="paths are written as Linux writes them")
def test_the_commands_answer_what_is_kept() -> None:
    assert make_golden.check(make_golden.record()) == [], REMEDY
