"""Verdicts as shares, and against an earlier evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from expert_cli.errors import InputError
from expert_cli.evaluation.cases import read_answers
from expert_cli.evaluation.grade import Evaluation, compare_with, grade
from expert_cli.utils.reporter import NullReporter
from tests.reporters import Heard

CASE = {"verifier": "json", "schema": None, "expected": 1, "rule": "exact"}


def judged(tmp_path: Path, *answers: str, **more: Any) -> Evaluation:
    path = tmp_path / "answers.jsonl"
    rows = [
        {**CASE, **more, "answer": answer, "category": "easy" if i < 2 else "hard"} for i, answer in enumerate(answers)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return grade(read_answers(path), NullReporter(), 2)


def test_the_figures(tmp_path: Path) -> None:
    found = judged(tmp_path, "1", "```json\n1\n```", "2", "3", "4", "5", "{", "").as_json()
    assert (found["cases"], found["correct"], found["accuracy"]) == (8, 2, 0.25)
    assert found["ci95"] == pytest.approx([0.0715, 0.5907], abs=1e-4), "Wilson's, of 2 in 8"
    assert found["by_category"]["easy"]["accuracy"] == 1.0
    assert found["by_category"]["hard"]["accuracy"] == 0.0
    assert found["failures"] == {"wrong": 4, "invalid": 1, "empty": 1}
    assert [row["kind"] for row in found["answers"]] == ["correct"] * 2 + ["wrong"] * 4 + ["invalid", "empty"]
    assert found["answers"][1]["answer"] == "```json\n1\n```"


def against(tmp_path: Path, old: list[str], new: list[str], **more: Any) -> dict[str, Any]:
    path = tmp_path / "old.json"
    path.write_text(json.dumps(judged(tmp_path, *old).as_json()), encoding="utf-8")
    return compare_with(path, judged(tmp_path, *new, **more), 0.25, NullReporter())


@pytest.mark.parametrize(
    ("old", "new", "lost", "gained", "drop", "held"),
    [
        pytest.param("1111", "1112", 1, 0, 0.25, True, id="as much as allowed"),
        pytest.param("1111", "1122", 2, 0, 0.5, False, id="more"),
        pytest.param("2222", "1111", 0, 4, -1.0, True, id="better"),
        pytest.param("1111", "12", 1, 0, 0.5, False, id="only the cases in both"),
    ],
)
def test_against(tmp_path: Path, old: str, new: str, lost: int, gained: int, drop: float, held: bool) -> None:
    found = against(tmp_path, list(old), list(new))
    assert [found[name] for name in ("lost", "gained", "drop", "held")] == [lost, gained, drop, held]
    assert found["ci95"][0] <= drop <= found["ci95"][1]


def test_cases_of_only_one_evaluation_are_counted(tmp_path: Path) -> None:
    path, heard = tmp_path / "old.json", Heard()
    for old, new in ((["1", "1", "1"], ["1"]), (["1"], ["1", "1"])):
        path.write_text(json.dumps(judged(tmp_path, *old).as_json()), encoding="utf-8")
        compare_with(path, judged(tmp_path, *new), 0, heard)
    told = "not compared: {} cases that only this evaluation has, {} that only the other has"
    assert heard.warned == [told.format(0, 2), told.format(1, 0)]


def test_a_changed_case_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="case '1' differs from"):
        against(tmp_path, ["1"], ["1"], schema={"type": "integer"})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"answers": 1}', '{"answers": [1]}', '{"answers": [{"id": "9"}]}'])
def test_what_is_no_evaluation_of_these_cases_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "old.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"old\.json: (is not an evaluation|none of its cases)"):
        compare_with(path, judged(tmp_path, "1"), 0, NullReporter())
