"""Judges answers that are a text, a label or a number. The whole answer must match the case: "it is not 42" is not 42."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import regex
from pydantic import Field, FiniteFloat

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.case import Case, Example, Labeled, Stopped, plain

_NUMBER = re.compile(
    r"[+-]?(?:[1-9][0-9]{0,2}(?:[,_' \u00a0\u202f][0-9]{3})+|[0-9]{1,40}|(?=\.))(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?"
)
"""Digit groups may be separated; decimals follow a point."""
_MINUS = str.maketrans({"\u2212": "-", "\u2013": "-"})
_AROUND = " \t\r\n\"'`*_.:;!()[]"


class ExactCase(Case):
    """`expected`, the text, or a list of accepted texts; runs of white space count as one blank. `ignore_case`."""

    fences = frozenset({"exact"})
    example = Example({"prompt": "Capital of France?", "expected": "Paris"}, right=" Paris\n", wrong="paris")

    expected: str | list[str] = Field(min_length=1)  # a list: each of them is right
    ignore_case: bool = False

    @property
    def expected_text(self) -> str:
        """The first accepted text."""
        return self.expected if isinstance(self.expected, str) else self.expected[0]

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> bool:
        """Compare the whole text."""
        accepted = [self.expected] if isinstance(self.expected, str) else self.expected
        return self.result_key(answer, file, timeout_s) in (self.result_key(one, file, timeout_s) for one in accepted)

    def result_key(self, answer: str, file: Path | None, timeout_s: float) -> str:  # noqa: ARG002
        """Return the text as it is compared."""
        return plain(answer.casefold() if self.ignore_case else answer)


class ChoiceCase(Case):
    """`expected`, one of `labels`; the answer is one label and nothing else."""

    fences = frozenset({"choice"})
    example = Example({"prompt": "Good or bad? Fine!", "labels": ["good", "bad"], "expected": "good"}, "Good.", "bad")

    labels: list[str] = Field(min_length=2)  # upper case, quotes and full stops around them are ignored
    expected: str

    def require_sound(self) -> None:
        """Raise InputError for labels that cannot be told apart, or an expected label that is not among them."""
        forms = {_label(label) for label in self.labels}
        if len(forms) < len(self.labels) or "" in forms:
            raise InputError("labels: two of them read the same, or one is empty", "give labels that differ")
        if self.expected not in self.labels:
            raise InputError(f"expected: {self.expected!r} is none of the labels", f"labels: {', '.join(self.labels)}")

    def labeled(self, answer: str) -> Labeled:
        """Return the answer as a label."""
        answered = next((label for label in self.labels if _label(label) == _label(answer)), None)
        return Labeled(tuple(self.labels), self.expected, answered)

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> bool:  # noqa: ARG002
        """Compare labels. Raises `Stopped` for an answer that is none of them."""
        chosen = self.labeled(answer).answered
        if chosen is None:
            raise Stopped("invalid", f"it is {answer[:80]!r}, none of the labels {', '.join(self.labels)}")
        return chosen == self.expected


def _label(text: str) -> str:
    return plain(text.lstrip(_AROUND.replace("!", "")).rstrip(_AROUND).casefold())


class NumberCase(Case):
    """`expected`, a number; the answer is one number, at most `tolerance` away, with or without the case's `unit`."""

    fences = frozenset({"number"})
    example = Example(
        {"prompt": "A mile in km?", "expected": 1.609, "tolerance": 0.01, "unit": "km"}, "1.61 km", "1.7 km"
    )

    expected: int | FiniteFloat
    tolerance: float = Field(default=0.0, ge=0, allow_inf_nan=False)  # largest allowed difference
    unit: str = ""  # may stand before or after the number, in any letter case; nothing else may

    @property
    def expected_text(self) -> str:
        """The number with its unit."""
        return f"{self.expected} {self.unit}".strip()

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> bool:
        """Compare numbers. Raises `Stopped` for an answer that is not a number."""
        away = abs(self.result_key(answer, file, timeout_s) - Decimal(repr(self.expected)))
        return away <= Decimal(repr(self.tolerance))

    def result_key(self, answer: str, file: Path | None, timeout_s: float) -> Decimal:  # noqa: ARG002
        """Return the number. Raises `Stopped` for an answer that is not a number, or has another unit."""
        said = answer.strip(" \t\r\n*`").translate(_MINUS).removesuffix(".")
        if unit := re.escape(self.unit.translate(_MINUS).removesuffix(".")):
            said = re.sub(rf"^([+-]?){unit}\s*|{unit}$", r"\1", said, count=1, flags=re.IGNORECASE)
        found = _NUMBER.fullmatch(said.strip())
        if found is None:
            raise Stopped("invalid", f"{answer[:80]!r} is not one number, alone or with the case's unit {self.unit!r}")
        return Decimal(re.sub(r"[,_' \u00a0\u202f]", "", found[0]))


class RegexCase(Case):
    """`pattern`, which the whole answer must match."""

    fences = frozenset({"regex"})
    example = Example({"prompt": "A date as YYYY-MM-DD.", "pattern": r"\d{4}-\d\d-\d\d"}, "2026-01-31", "31.1.2026")

    pattern: str = Field(min_length=1)  # a regular expression of the Python package regex

    def require_sound(self) -> None:
        """Raise InputError for an invalid regular expression."""
        try:
            regex.compile(self.pattern)
        except regex.error as error:
            raise InputError(f"pattern: {error}", "correct the regular expression") from error

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> bool:  # noqa: ARG002
        """Match the whole text, without leading and trailing white space."""
        try:
            return regex.fullmatch(self.pattern, answer.strip(), timeout=timeout_s, concurrent=True) is not None
        except TimeoutError as error:
            raise Stopped("timeout", f"matching took more than {timeout_s:g} s") from error


class ContainsAllCase(Case):
    """`expected`, texts that must all occur in the answer, and `absent`, texts that must not."""

    fences = frozenset({"contains_all"})
    example = Example(
        {"prompt": "Two colors?", "expected": ["red", "blue"], "absent": ["green"]}, "Red and blue.", "red, green"
    )

    expected: list[str] = Field(min_length=1)  # as whole words, in any letter case
    absent: list[str] = Field(default=[])

    @property
    def expected_text(self) -> str:
        """The expected texts, separated by commas."""
        return ", ".join(self.expected)

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> bool:  # noqa: ARG002
        """Look for each text."""
        form = plain(answer.casefold())
        words = (rf"(?<!\w){re.escape(plain(text.casefold()))}(?!\w)" for text in (*self.expected, *self.absent))
        held = [re.search(word, form) is not None for word in words]
        return all(held[: len(self.expected)]) and not any(held[len(self.expected) :])
