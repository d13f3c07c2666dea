"""Texts, labels and numbers: what is right, what is not, and what no answer talks its way through."""

from __future__ import annotations

from typing import Any

import pytest

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.values import ChoiceCase
from tests.graders import graded

GOOD = {"labels": ["good", "bad", "neither good nor bad"], "expected": "good"}
COLORS = {"expected": ["red", "blue"], "absent": ["green"]}
JUDGED: dict[str, tuple[str, str, Any, str]] = {
    "blanks": ("exact", " New\n  York ", {"expected": "New York"}, "correct"),
    "capitals that do not count": ("exact", "STRASSE", {"expected": "Straße", "ignore_case": True}, "correct"),
    "one of several": ("exact", "NYC", {"expected": ["New York", "NYC"]}, "correct"),
    "marks around it": ("choice", "**Good.**", GOOD, "correct"),
    "a label of several words": ("choice", "Neither good  nor bad", GOOD, "wrong"),
    "not": ("choice", "not good", GOOD, "invalid"),
    "with a point behind it": ("number", "42.", {"expected": 42}, "correct"),
    "minus of print": ("number", "\u221242", {"expected": -42}, "correct"),
    "thousands": ("number", "1,234,567.5", {"expected": 1234567.5}, "correct"),
    "decimals behind a comma": ("number", "0,123", {"expected": 123}, "invalid"),
    "thousands by blanks": ("number", "1 234 567", {"expected": 1234567}, "correct"),
    "currency": ("number", "$1,000", {"expected": 1000, "unit": "$"}, "correct"),
    "a sign before the currency": ("number", "\u2212$1,000", {"expected": -1000, "unit": "$"}, "correct"),
    "a sign and a blank currency": ("number", "-\u20ac 5", {"expected": -5, "unit": "\u20ac"}, "correct"),
    "two signs": ("number", "-$-5", {"expected": 5, "unit": "$"}, "invalid"),
    "an item of a list": ("number", "- 5", {"expected": -5}, "invalid"),
    "the unit": ("number", "3.2 KM", {"expected": 3.2, "unit": "km"}, "correct"),
    "no unit": ("number", "3.2", {"expected": 3.2, "unit": "km"}, "correct"),
    "a unit with a digit": ("number", "5 m\u22122.", {"expected": 5, "unit": "m\u22122"}, "correct"),
    "no digit before the point": ("number", "-.5", {"expected": -0.5}, "correct"),
    "another unit": ("number", "3.2 miles", {"expected": 3.2, "unit": "km"}, "invalid"),
    "a unit that the case does not name": ("number", "3.2 km/h", {"expected": 3.2}, "invalid"),
    "within the tolerance": ("number", "3.15", {"expected": 3.14, "tolerance": 0.01}, "correct"),
    "just beyond the tolerance": ("number", "3.1501", {"expected": 3.14, "tolerance": 0.01}, "wrong"),
    "as written, not as doubles": ("number", "0.3", {"expected": 0.3}, "correct"),
    "a larger exponent": ("number", "1e999999999", {"expected": 42}, "invalid"),
    "many groups": ("number", "1" + ",000" * 200_000 + "x1", {"expected": 42}, "invalid"),
    "a part": ("regex", "on 2026-01-31", {"pattern": r"\d{4}-\d\d-\d\d"}, "wrong"),
    "a pattern that takes for ever": ("regex", "a" * 5000 + "b", {"pattern": r"(a+)+(a+)+c|(a|aa)+$"}, "timeout|wrong"),
    "all": ("contains_all", "Blue, and RED", COLORS, "correct"),
    "within a word": ("contains_all", "blue and infrared", COLORS, "wrong"),
    "one too many": ("contains_all", "red, blue, green", COLORS, "wrong"),
    "signs": ("contains_all", "it costs $5 (net)", {"expected": ["$5 (net)"]}, "correct"),
}


@pytest.mark.parametrize(("verifier", "answer", "row", "kind"), JUDGED.values(), ids=JUDGED)
def test_an_answer_is_judged(verifier: str, answer: str, row: dict[str, Any], kind: str) -> None:
    grade = graded(verifier, answer, None, 0.5, row)
    assert grade.kind in kind.split("|"), grade
    assert bool(grade.detail) != grade.passed
    assert len(grade.detail) <= 200


@pytest.mark.parametrize(
    ("verifier", "row", "words"),
    [
        ("choice", {"labels": ["a", "A."], "expected": "a"}, "two of them read the same"),
        ("choice", {"labels": ["a", "b"], "expected": "c"}, "none of the labels"),
        ("choice", {"labels": ["a"], "expected": "a"}, "at least 2 items"),
        ("regex", {"pattern": "("}, "pattern: missing"),
        ("number", {"expected": 1, "tolerance": -1}, "greater than or equal to 0"),
        ("exact", {"expected": []}, "at least 1 item"),
        ("contains_all", {"expected": []}, "at least 1 item"),
    ],
)
def test_a_case_at_fault_is_named(verifier: str, row: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        graded(verifier, "x", None, 0.5, row)


def test_a_choice_tells_which_label_was_chosen() -> None:
    case = ChoiceCase(verifier="choice", labels=["yes", "no"], expected="no")
    assert [case.labeled(answer).answered for answer in ("No.", "yes", "maybe")] == ["no", "yes", None]
