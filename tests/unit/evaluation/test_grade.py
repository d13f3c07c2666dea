"""Answers are counted by what came of them."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from expert_cli.errors import InputError
from expert_cli.evaluation.cases import CaseAnswer, read_answers
from expert_cli.evaluation.grade import Evaluation, grade
from expert_cli.evaluation.result import Drop, Evaluated, compare_with
from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers.case import Case, Example
from expert_cli.utils.reporter import NullReporter

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
    assert found["by_category"]["easy"]["accuracy"] == 1.0
    assert found["by_category"]["hard"]["accuracy"] == 0.0
    assert found["failures"] == {"wrong": 4, "invalid": 1, "empty": 1}
    assert [row["kind"] for row in found["answers"]] == ["correct"] * 2 + ["wrong"] * 4 + ["invalid", "empty"]
    assert found["answers"][1]["answer"] == "```json\n1\n```"


def test_three_examples_a_class(tmp_path: Path) -> None:
    assert [one.row.id for one in judged(tmp_path, "1", "2", "3", "4", "5").examples("wrong")] == ["2", "3", "4"]


def test_a_case_at_fault_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "shop.sqlite").write_bytes(b"no")
    row = {"verifier": "sql", "database": "shop.sqlite", "expected": "SELECT 1", "answer": "SELECT 1"}
    (tmp_path / "answers.jsonl").write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(InputError, match=r"answers\.jsonl:1: .*not an SQLite database"):
        grade(read_answers(tmp_path / "answers.jsonl"), NullReporter(), 2)


def against(tmp_path: Path, old: list[str], new: list[str], **more: Any) -> Drop:
    path = tmp_path / "old.json"
    path.write_text(json.dumps(judged(tmp_path, *old).as_json()), encoding="utf-8")
    return compare_with(path, Evaluated(judged(tmp_path, *new, **more), {}, None, None), 0.25)


@pytest.mark.parametrize(
    ("old", "new", "lost", "gained", "drop", "held"),
    [
        pytest.param("1111", "1111", 0, 0, 0.0, True, id="the same"),
        pytest.param("1111", "1112", 1, 0, 0.25, True, id="as much as allowed"),
        pytest.param("1111", "1122", 2, 0, 0.5, False, id="more"),
        pytest.param("1122", "2211", 2, 2, 0.0, True, id="others"),
        pytest.param("2222", "1111", 0, 4, -1.0, True, id="better"),
        pytest.param("1111", "12", 1, 0, 0.5, False, id="only the cases in both"),
    ],
)
def test_against(tmp_path: Path, old: str, new: str, lost: int, gained: int, drop: float, held: bool) -> None:
    found = against(tmp_path, list(old), list(new))
    pairs = found.pairs
    assert (pairs.lost, pairs.gained, pairs.drop, found.held) == (lost, gained, drop, held)
    assert pairs.ci95[0] <= drop <= pairs.ci95[1]


def test_what_was_computed_otherwise_is_told_where_both_say_it(tmp_path: Path) -> None:
    path, new = tmp_path / "old.json", judged(tmp_path, "1")
    old = {"generation": {"threads": 8, "device": "cpu"}, "expert": {"dtype": "bf16", "quantization": "int4"}}
    path.write_text(json.dumps(new.as_json() | old), encoding="utf-8")
    now = {"threads": 2, "device": "cpu", "batch_size": 16}
    found = compare_with(path, Evaluated(new, {}, {"dtype": "fp32", "quantization": "int4"}, now), 0)
    assert found.as_json()["computed"] == {"threads": [8, 2], "dtype": ["bf16", "fp32"]}
    assert compare_with(path, Evaluated(new, {}, None, None), 0).computed == {}


def test_cases_of_only_one_evaluation_are_counted(tmp_path: Path) -> None:
    assert against(tmp_path, ["1", "1", "1"], ["1"]).alone == (0, 2)
    assert against(tmp_path, ["1"], ["1", "1"]).alone == (1, 0)


def test_a_changed_case_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="case '1' is not that of"):
        against(tmp_path, ["1"], ["1"], schema={"type": "integer"})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"answers": 1}', '{"answers": [1]}', '{"answers": [{"id": "9"}]}'])
def test_what_is_no_evaluation_of_these_cases_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "old.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"old\.json: (not an evaluation|none of its cases)"):
        compare_with(path, Evaluated(judged(tmp_path, "1"), {}, None, None), 0)


def test_the_detail_is_one_printable_line() -> None:
    assert Grade("wrong", "a\n b\x1b[2J\tc\x07\u202e").detail == "a b[2J c"
    assert len(Grade("wrong", "x" * 1_000_000).detail) == 200
    assert [Grade(kind).passed for kind in ("correct", "wrong", "parsed_only")] == [True, False, False]


class Busy(Case):
    """What is run is counted; `beside`: the first time an answer is late, since another one runs beside it."""

    fences = frozenset({"busy"})
    example = Example({}, "", "")
    runs: ClassVar[Counter[str]] = Counter()
    running: ClassVar[set[str]] = set()
    met: ClassVar[Any] = threading.Barrier(2, timeout=60)

    beside: bool = False

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:
        self.runs[answer] += 1
        self.running.add(answer)
        if self.beside and self.runs[answer] == 1:
            self.met.wait()
        alone = self.running == {answer}
        if self.beside and self.runs[answer] == 1:
            self.met.wait()  # both have looked
        self.running.remove(answer)
        return Grade("correct" if alone else "timeout", answer)


def busy(*answers: str, **keys: Any) -> list[CaseAnswer]:
    Busy.runs.clear()
    case = Busy(verifier="busy", **keys)
    return [CaseAnswer(case, f"f:{i}", str(i), "0" * 16, None, answer) for i, answer in enumerate(answers, start=1)]


def test_what_was_late_beside_others_has_its_time_alone() -> None:
    found = grade(busy("a1", "a2", beside=True), NullReporter(), 2, threads=2)
    assert [one.verdict.kind for one in found.answers] == ["correct"] * 2
    assert Busy.runs == {"a1": 2, "a2": 2}


def test_equal_samples_are_run_once_also_where_they_run_out_of_time() -> None:
    (row,) = busy("late")
    Busy.running.add("another")
    try:
        (found,) = grade([replace(row, samples=(row, row, row))], NullReporter(), 2, threads=1).answers
    finally:
        Busy.running.remove("another")
    assert ([one.verdict.kind for one in found.samples], found.majority) == (["timeout"] * 3, None)
    assert Busy.runs == {"late": 1}


def test_a_row_whose_sample_was_late_beside_others_has_its_time_alone() -> None:
    rows = [replace(row, samples=(row,)) for row in busy("b1", "b2", beside=True)]
    found = grade(rows, NullReporter(), 2, threads=2).answers
    assert [[one.verdict.kind for one in row.samples] for row in found] == [["correct"]] * 2
    assert [row.majority for row in found] == [0, 0]


@pytest.mark.parametrize("threads", [1, 3])
def test_many_threads_find_what_one_finds(tmp_path: Path, threads: int) -> None:
    rows: list[dict[str, Any]] = [
        {"verifier": "choice", "labels": ["a", "b"], "expected": "a", "answer": "B"},
        {**CASE, "answer": "1"},
        {"verifier": "number", "expected": 2, "answer": "2 km"},
        {**CASE, "answer": "{"},
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows * 5), encoding="utf-8")
    found = grade(read_answers(path), NullReporter(), 2, threads)
    assert [one.verdict.kind for one in found.answers] == ["wrong", "correct", "correct", "invalid"] * 5
    assert [one.row.id for one in found.answers] == [str(i) for i in range(1, 21)]


def test_a_text_too_long_to_look_for_an_answer_in_is_not_read() -> None:
    long, right = "\n" * 4_000_000 + "z", "\n" * 3_999_999 + "z"
    found = grade(busy(long, right), NullReporter(), 2)
    assert [one.verdict.kind for one in found.answers] == ["too_large", "correct"]
    assert Busy.runs == {"z": 1}
    assert found.answers[0].labeled is None
