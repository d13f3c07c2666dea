"""Rewards: the verdicts of the judges, as TRL's trainers ask for them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from expert_cli import binary_reward, dense_reward
from expert_cli.errors import InputError
from expert_cli.evaluation.trl import text_of
from expert_cli.evaluation.verifiers.case import Grade
from expert_cli.evaluation.verifiers.json_schema import JsonCase
from tests.graders import database

SQL = {"verifier": "sql", "database": "shop.sqlite", "expected": "SELECT name, city FROM customers"}
JSON = {"verifier": "json", "schema": {"type": "object"}, "expected": {"a": 1, "b": [1, 2]}, "rule": "exact"}
PYTHON = {"verifier": "python", "function": "twice", "calls": [[[2], 4]]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    rows = "INSERT INTO customers VALUES ('Ada', 'London')"
    return database(tmp_path / "shop.sqlite", f"CREATE TABLE customers (name TEXT, city TEXT); {rows}").parent


def columns(case: dict[str, Any], count: int = 1) -> dict[str, Any]:
    """Return what a trainer hands on of a data set of this case, with what it has beside its columns."""
    own = {key: [value] * count for key, value in case.items()}
    return own | {"completion_ids": [[1]] * count, "answer_of_mine": ["x"] * count, "trainer_state": object()}


@pytest.mark.parametrize(
    ("case", "answer", "reward"),
    [
        pytest.param(SQL, "SELECT name, city FROM customers", 1.0, id="right"),
        pytest.param(SQL, "SELECT city, name FROM customers", 0.3, id="it runs"),
        pytest.param(SQL, "SELECT nme, city FROM customers", 0.1, id="a name that is not there"),
        pytest.param(SQL, "SELECT FROM", 0.0, id="not parsed"),
        pytest.param(SQL, "", 0.0, id="nothing"),
        pytest.param(PYTHON, "def twice(n): return n", 0.3, id="a program that runs"),
    ],
)
def test_what_a_verdict_is_worth(root: Path, case: dict[str, Any], answer: str, reward: float) -> None:
    told = columns(case)
    assert dense_reward(prompts=["?"], completions=[answer], root=root, without_walls=True, **told) == [reward]
    assert binary_reward(["?"], [answer], root=root, without_walls=True, **told) == [float(reward == 1.0)]


def said(content: Any, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": content}


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("SELECT 1", "SELECT 1"),
        ([said("SELECT 1")], "SELECT 1"),
        ([said("first"), said("x", "tool"), said("last")], "last"),
        ([said("x", "tool")], ""),
        (None, ""),
    ],
)
def test_what_was_written(completion: Any, text: str) -> None:
    assert text_of(completion) == text


def test_what_is_no_text_is_worth_nothing_and_raises_nothing(root: Path) -> None:
    bad = [None, [], 3, "\ud800", "x" * 4_000_001]
    assert binary_reward([""] * 5, bad, root=root, **columns(SQL, 5)) == [0.0] * 5


def test_equal_answers_to_equal_cases_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Counter[str]()
    grade = JsonCase.grade

    def counted(case: JsonCase, answer: str, file: Path | None, timeout_s: float) -> Grade:
        judged[answer] += 1
        return grade(case, answer, file, timeout_s)

    monkeypatch.setattr(JsonCase, "grade", counted)
    case = {"verifier": "json", "schema": None, "expected": "once", "rule": "exact"}
    assert binary_reward(["?"] * 6, ['"once"', "7001"] * 3, **columns(case, 6)) == [1.0, 0.0] * 3
    assert judged == {'"once"': 1, "7001": 1}


def test_a_case_may_stand_in_one_column() -> None:
    """Arrow fills objects of different keys up with null, so that a data set cannot hold every case a key a column."""
    import datasets

    cases = [JSON | {"schema": None, "expected": {key: 1}} for key in "ab"]
    answers = ['{"a": 1}', '{"b": 1}']
    filled = datasets.Dataset.from_list(cases)
    told = {name: list(filled[name]) for name in filled.column_names}
    assert binary_reward(["?", "?"], answers, **told) == [0.0, 0.0]
    assert binary_reward(["?", "?"], answers, case=[json.dumps(case) for case in cases]) == [1.0, 1.0]


def test_verifiers_may_be_mixed_and_absent_keys_null(root: Path) -> None:
    label = {"verifier": "choice", "labels": ["a", "b"], "expected": "a"}
    names = sorted({*SQL, *label})
    mixed = {name: [SQL.get(name), label.get(name)] for name in names} | {"rule": [None, None]}
    assert binary_reward(["?", "?"], [SQL["expected"], "a"], root=root, **mixed) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({}, "completion 1: verifier: is missing"),
        ({"verifier": ["sqll"]}, "completion 1: verifier: there is no 'sqll'"),
        ({"verifier": ["sql"], "expected": ["SELECT 1"]}, "completion 1: database"),
        (columns(SQL | {"database": "none.sqlite"}), "completion 1: none.sqlite: no such file"),
        (columns(SQL | {"expected": "SELECT x"}), "completion 1: the expected query fails"),
        ({"case": ["{"]}, "completion 1: case: not a JSON object"),
        ({"case": [None]}, "completion 1: case: not a JSON object"),
    ],
)
def test_a_case_at_fault_is_an_input_error(root: Path, told: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dense_reward(["?"], ["SELECT 1"], root=root, **told)


def test_as_many_prompts_as_completions() -> None:
    with pytest.raises(InputError, match="1 prompts, 2 completions"):
        binary_reward(["?"], ["a", "b"])
