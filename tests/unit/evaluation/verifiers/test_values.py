"""Texts, labels and numbers: what is right, what is not, and what no answer talks its way through."""

from __future__ import annotations

from typing import Any

import pytest

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.values import ChoiceCase
from tests.graders import graded

EXACT: dict[str, tuple[str, Any, str]] = {
    "blanks": (" New\n  York ", {"expected": "New York"}, "correct"),
    "capitals that do not count": ("NEW YORK", {"expected": "New York", "ignore_case": True}, "correct"),
    "one of several": ("NYC", {"expected": ["New York", "NYC"]}, "correct"),
    "all of several": ("New York NYC", {"expected": ["New York", "NYC"]}, "wrong"),
    "more words": ("It is New York", {"expected": "New York"}, "wrong"),
    "a letter that is not seen": ("New\u200b York", {"expected": "New York"}, "wrong"),
    "nothing": (" ", {"expected": "New York"}, "empty"),
    "no text": ("\ud800", {"expected": "New York"}, "invalid"),
    "a megabyte": ("x" * 1_000_001, {"expected": "New York"}, "too_large"),
}
GOOD = {"labels": ["good", "bad", "neither good nor bad"], "expected": "good"}
CHOICE: dict[str, tuple[str, Any, str]] = {
    "the label": ("good", GOOD, "correct"),
    "marks around it": ("**Good.**", GOOD, "correct"),
    "another": ("bad", GOOD, "wrong"),
    "two": ("good, bad", GOOD, "invalid"),
    "not": ("not good", GOOD, "invalid"),
    "a label of several words": ("Neither good  nor bad", GOOD, "wrong"),
    "only marks": ("**", GOOD, "invalid"),
}
NUMBER: dict[str, tuple[str, Any, str]] = {
    "with a point behind it": ("42.", {"expected": 42}, "correct"),
    "decimals": ("42.0", {"expected": 42}, "correct"),
    "sign": ("-42", {"expected": 42}, "wrong"),
    "minus of print": ("\u221242", {"expected": -42}, "correct"),
    "thousands": ("1,234,567.5", {"expected": 1234567.5}, "correct"),
    "thousands by blanks": ("1 234 567", {"expected": 1234567}, "correct"),
    "groups of other lengths": ("1,23", {"expected": 123}, "invalid"),
    "a comma for decimals": ("0,5", {"expected": 0.5}, "invalid"),
    "a unit that the case does not name": ("3.2 km/h", {"expected": 3.2}, "invalid"),
    "no unit": ("3.2", {"expected": 3.2, "unit": "km"}, "correct"),
    "another unit": ("3.2 miles", {"expected": 3.2, "unit": "km"}, "invalid"),
    "within the tolerance": ("3.15", {"expected": 3.14, "tolerance": 0.01}, "correct"),
    "just beyond the tolerance": ("3.1501", {"expected": 3.14, "tolerance": 0.01}, "wrong"),
    "as written, not as doubles": ("0.3", {"expected": 0.3}, "correct"),
    "more digits than a double": ("9007199254740993", {"expected": 9007199254740992}, "wrong"),
    "tenths": ("0.30000000000000004", {"expected": 0.3}, "wrong"),
    "two numbers": ("41 or 42", {"expected": 42}, "invalid"),
    "a denial": ("not 41 but 42", {"expected": 42}, "invalid"),
    "a range": ("1-100", {"expected": 42, "tolerance": 50}, "invalid"),
    "infinity": ("inf", {"expected": 42, "tolerance": 1e9}, "invalid"),
    "a larger exponent": ("1e999999999", {"expected": 42}, "invalid"),
    "many groups": ("1" + ",000" * 200_000 + "x1", {"expected": 42}, "invalid"),
    "other digits": ("४२", {"expected": 42}, "invalid"),
}
REGEX: dict[str, tuple[str, Any, str]] = {
    "all of it": ("2026-01-31", {"pattern": r"\d{4}-\d\d-\d\d"}, "correct"),
    "a part": ("on 2026-01-31", {"pattern": r"\d{4}-\d\d-\d\d"}, "wrong"),
    "a pattern that takes for ever": ("a" * 5000 + "b", {"pattern": r"(a+)+(a+)+c|(a|aa)+$"}, "timeout|wrong"),
}
COLORS = {"expected": ["red", "blue"], "absent": ["green"]}
CONTAINS: dict[str, tuple[str, Any, str]] = {
    "all": ("Blue, and RED", COLORS, "correct"),
    "one is missing": ("red", COLORS, "wrong"),
    "within a word": ("blue and infrared", COLORS, "wrong"),
    "one too many": ("red, blue, green", COLORS, "wrong"),
    "within a word that is absent": ("red, blue, greenish", COLORS, "correct"),
    "signs": ("it costs $5 (net)", {"expected": ["$5 (net)"]}, "correct"),
}
ALL = {
    f"{verifier}: {name}": (verifier, *case)
    for verifier, cases in {
        "exact": EXACT,
        "choice": CHOICE,
        "number": NUMBER,
        "regex": REGEX,
        "contains_all": CONTAINS,
    }.items()
    for name, case in cases.items()
}


@pytest.mark.parametrize(("verifier", "answer", "row", "kind"), ALL.values(), ids=ALL.keys())
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
