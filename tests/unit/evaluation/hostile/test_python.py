"""What Python answers try: nothing is reached, each gets its verdict; only tests in the answer's own process can be forged."""

from __future__ import annotations

from pathlib import Path

import pytest

from expert_cli.evaluation.cases import read_case
from expert_cli.evaluation.verifiers.sandbox.child_process import standing_walls
from tests.processes import none_left
from tests.unit.evaluation.hostile import runner

CASE = {"tests": "assert f(2) == 4\nassert f(3) == 6"}
CALLS = {"verifier": "python", "function": "f", "calls": [[[2], 4], [[3], 6]]}

pytestmark = pytest.mark.skipif(not {"files", "syscalls"} <= {*standing_walls()}, reason="this system lacks walls")


@runner.few_and_rest
def test_no_answer_escapes(tmp_path: Path, few: bool) -> None:
    with none_left(), runner.untouched(tmp_path) as places:
        assert runner.misjudged("python", CASE, few=few, threads=4, **places) == []


@runner.few_and_rest
def test_no_answer_forges_the_results_of_calls(few: bool) -> None:
    case = read_case("calls", CALLS)
    rows = [row for row in runner.some("python", few=few) if "case" not in row]
    passed = {row["id"] for row in rows if case.verdict(runner.answer_of(row), None, runner.TIMEOUT_S).passed}
    assert passed <= {row["id"] for row in rows if "correct" in row["kinds"] and not row.get("forges")}
