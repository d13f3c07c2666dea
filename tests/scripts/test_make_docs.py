"""The generated documents are those of the code, and the commands answer what is kept."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from string import Template

import pytest

from docs._generate import format_docs, make_docs
from expert_cli.errors import ExpertError, Interrupted
from scripts import make_golden

ROOT = Path(__file__).parents[2]


def test_the_committed_documents_are_fresh() -> None:
    assert make_docs.main(["--check"]) == 0


def test_no_row_of_a_table_is_torn() -> None:
    for document in sorted((ROOT / "docs").glob("*.md")):
        lines = document.read_text(encoding="utf-8").splitlines()
        torn = [after for row, after in pairwise(lines) if row.startswith("|") and after and not after.startswith("|")]
        assert not torn, document.name


def test_every_block_of_the_schema_and_every_exit_code_is_described() -> None:
    named = Template(format_docs.TEMPLATE.read_text(encoding="utf-8")).get_identifiers()
    assert set(format_docs.manifest_schema()["$defs"]) <= set(named)
    lines = make_docs.TEMPLATE.read_text(encoding="utf-8")
    for kind in (ExpertError, *ExpertError.__subclasses__()):
        assert f"\n| {kind.exit_code} | " in lines or kind is Interrupted


REMEDY = "if that is meant, make them anew: python -m scripts.make_golden"


@pytest.mark.skipif(sys.platform != "linux", reason="paths are written as Linux writes them")
def test_the_commands_answer_what_is_kept() -> None:
    assert make_golden.check(make_golden.record()) == [], REMEDY
