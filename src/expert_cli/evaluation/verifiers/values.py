"""Judges answers that are a text, a label or a number: the whole answer is held against the case, nothing is looked for in it,
since "it is not 42" holds a 42, too.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from pydantic import Field, FiniteFloat

from expert_cli.errors import InputError
from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers.case import Case, Example, Labeled, plain
from expert_cli.evaluation.verifiers.requirements import require_packages
from expert_cli.evaluation.verifiers.sandbox.limits import Stopped, readable

MAX_BYTES = 1_000_000
LOOK_S = 0.1
_NUMBER = re.compile(
    r"(?P<before>[A-Z]{0,3}[$€£¥₹]|[A-Z]{3}|)\s*"
    r"(?P<number>[+-]?(?:[0-9]{1,3}(?:[,_' \u00a0\u202f][0-9]{3})+|[0-9]{1,40})(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?)"
    r"\s*(?P<after>[^\d\s.][^\d]{0,30}?)?\.?"
)
"""Thousands may be set apart, decimals follow a point; a sign of a currency before it, or a unit behind it."""
_SIGNS_OF_UNITS = "%‰°$€£¥₹'\"′″"
_NO_UNIT = re.compile(
    "not|no|or|and|minus|negative|wrong|false|i|k|bn|mn|lakh|crore|tenths?"
    "|(?:dozen|(?:hundred|thousand|million|billion|trillion)(?:th)?)s?"
)
"""Words that make another number of one, or deny it."""
_MINUS = str.maketrans({"\u2212": "-", "\u2013": "-"})
_AROUND = " \t\r\n\"'`*_.:;!()[]"


class _Value(Case):
    """A case whose answer is looked at as it stands."""

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:  # noqa: ARG002  a case names none
        """Judge the whole answer, blanks around it left out."""
        try:
            readable(answer, MAX_BYTES)
            return self.judged(answer.strip(), timeout_s)
        except Stopped as stopped:
            return stopped.verdict

    def is_expected(self, answer: str) -> bool:
        """Whether a text is right: nothing is run for that."""
        return super().is_expected(answer) or self.grade(answer, None, LOOK_S).passed

    @abstractmethod
    def judged(self, answer: str, timeout_s: float) -> Grade:
        """Judge an answer that is text. Raises `Stopped`."""


class ExactCase(_Value):
    """`expected`, the text, or several accepted ones; runs of blanks count as one. `ignore_case`."""

    fences = frozenset({"exact"})
    example = Example({"prompt": "Capital of France?", "expected": "Paris"}, right=" Paris\n", wrong="paris")

    expected: str | list[str] = Field(description="The text, or a list of texts that are all right.", min_length=1)
    ignore_case: bool = Field(default=False, description="Whether capitals count as small letters.")

    @property
    def expected_text(self) -> str:
        """The first accepted text."""
        return self.expected if isinstance(self.expected, str) else self.expected[0]

    def judged(self, answer: str, timeout_s: float) -> Grade:  # noqa: ARG002  nothing is run
        """Compare texts."""
        accepted = [self.expected] if isinstance(self.expected, str) else self.expected
        if self._form(answer) in map(self._form, accepted):
            return Grade("correct")
        return Grade("wrong", f"it is {answer[:80]!r}, not {accepted[0][:80]!r}")

    def _form(self, text: str) -> str:
        return plain(text.casefold() if self.ignore_case else text)


class ChoiceCase(_Value):
    """`expected`, one of `labels`; the answer is one label and nothing else."""

    fences = frozenset({"choice"})
    example = Example(
        {"prompt": "Is this good or bad? I like it.", "labels": ["good", "bad"], "expected": "good"},
        right="Good.",
        wrong="bad",
    )

    labels: list[str] = Field(min_length=2, description="All labels; capitals, quotes and points around do not count.")
    expected: str = Field(description="The right one.")

    @property
    def expected_text(self) -> str:
        """The right label."""
        return self.expected

    def require_sound(self) -> None:
        """Raise InputError for labels that cannot be told apart, and one that is none of them."""
        forms = [_label(label) for label in self.labels]
        if len(set(forms)) < len(forms) or "" in forms:
            raise InputError("labels: two of them read the same, or one is empty", "give labels that differ")
        if self.expected not in self.labels:
            raise InputError(f"expected: {self.expected!r} is none of the labels", f"labels: {', '.join(self.labels)}")

    @classmethod
    def row_case(cls, cases: Sequence[Case]) -> ChoiceCase | None:
        """Return a case of the labels of all cases."""
        labels = list(dict.fromkeys(label for case in cases if isinstance(case, cls) for label in case.labels))
        return cls(verifier="choice", labels=labels, expected=labels[0]) if labels else None

    def labeled(self, answer: str) -> Labeled:
        """Return the label that an answer is."""
        form = _label(answer)
        answered = next((label for label in self.labels if _label(label) == form), None)
        return Labeled(tuple(self.labels), self.expected, answered)

    def judged(self, answer: str, timeout_s: float) -> Grade:  # noqa: ARG002  nothing is run
        """Compare labels."""
        chosen = self.labeled(answer).answered
        if chosen is None:
            return Grade("invalid", f"it is {answer[:80]!r}, none of the labels {', '.join(self.labels)}")
        return Grade("correct") if chosen == self.expected else Grade("wrong", f"it is {chosen}, not {self.expected}")


def _label(text: str) -> str:
    return plain(text.lstrip(_AROUND.replace("!", "")).rstrip(_AROUND).casefold())


class NumberCase(_Value):
    """`expected`, a number; the answer is one, with or without a unit, at most `tolerance` away."""

    fences = frozenset({"number"})
    example = Example(
        {"prompt": "How long is a mile, in km?", "expected": 1.609, "tolerance": 0.01}, "1.61 km", "1.7 km"
    )

    expected: int | FiniteFloat = Field(description="The number.")
    tolerance: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="How far from it an answer may be.")
    unit: str = Field(
        default="", description="The unit, where an answer with another one is wrong; default: any, of one word."
    )

    @property
    def expected_text(self) -> str:
        """The number, with its unit."""
        return f"{self.expected} {self.unit}".strip()

    @classmethod
    def row_case(cls, cases: Sequence[Case]) -> NumberCase:  # noqa: ARG003  any number could be right
        """Return a case that takes any unit."""
        return cls(verifier="number", expected=0)

    def judged(self, answer: str, timeout_s: float) -> Grade:  # noqa: ARG002  nothing is run
        """Compare numbers as they are written, without rounding."""
        found = _NUMBER.fullmatch(answer.strip("*` ").translate(_MINUS))
        if found is None:
            return Grade("invalid", f"{answer[:80]!r} is not one number")
        unit = (found["after"] or found["before"]).strip()
        if self.unit and unit and unit.casefold() != self.unit.casefold():
            return Grade("wrong", f"it is in {unit!r}, not in {self.unit!r}")
        if not self.unit and not _may_be_unit(unit):
            return Grade("invalid", f"{answer[:80]!r} is not one number and its unit")
        number = Decimal(re.sub(r"[,_' \u00a0\u202f]", "", found["number"]))
        if abs(number - Decimal(repr(self.expected))) <= Decimal(repr(self.tolerance)):
            return Grade("correct")
        return Grade("wrong", f"it is {number}, not {self.expected}")


def _may_be_unit(text: str) -> bool:
    """Whether a text is one word that begins as a unit does, and not as a power or a half behind a number."""
    known = not text or text[0].isalpha() or text[0] in _SIGNS_OF_UNITS
    return known and " " not in text and not _NO_UNIT.fullmatch(text.casefold())


class RegexCase(_Value):
    """`pattern`, which the whole answer must match."""

    fences = frozenset({"regex"})
    example = Example({"prompt": "A date as YYYY-MM-DD.", "pattern": r"\d{4}-\d\d-\d\d"}, "2026-01-31", "31.1.2026")

    pattern: str = Field(min_length=1, description="A regular expression of Python's package regex.")

    def require_sound(self) -> None:
        """Raise InputError for what is no regular expression."""
        require_packages("regex")
        import regex

        try:
            regex.compile(self.pattern)
        except regex.error as error:
            raise InputError(f"pattern: {error}", "correct the regular expression") from error

    def judged(self, answer: str, timeout_s: float) -> Grade:
        """Match, for at most `timeout_s` of processor time, beside other threads."""
        import regex

        try:
            matches = regex.fullmatch(self.pattern, answer, timeout=timeout_s, concurrent=True)
        except TimeoutError as error:
            raise Stopped("timeout", f"matching took more than {timeout_s:g} s") from error
        return Grade("correct") if matches else Grade("wrong", f"{answer[:80]!r} does not match {self.pattern[:80]}")


class ContainsAllCase(_Value):
    """`expected`, texts that must all stand in the answer, and `absent`, texts that must not."""

    fences = frozenset({"contains_all"})
    example = Example(
        {"prompt": "Name two primary colors of paint.", "expected": ["red", "blue"], "absent": ["green"]},
        right="Red and blue.",
        wrong="red, blue and green",
    )

    expected: list[str] = Field(
        min_length=1, description="What must stand in it, as whole words; capitals do not count."
    )
    absent: list[str] = Field(default=[], description="What must not.")

    @property
    def expected_text(self) -> str:
        """The texts in a row."""
        return ", ".join(self.expected)

    def judged(self, answer: str, timeout_s: float) -> Grade:  # noqa: ARG002  nothing is run
        """Look for whole words."""
        form = plain(answer.casefold())
        missing = [text for text in self.expected if not _stands_in(text, form)]
        there = [text for text in self.absent if _stands_in(text, form)]
        if missing:
            return Grade("wrong", f"it does not hold {missing[0]!r}")
        return Grade("wrong", f"it holds {there[0]!r}") if there else Grade("correct")


def _stands_in(text: str, form: str) -> bool:
    return bool(re.search(rf"(?<!\w){re.escape(plain(text.casefold()))}(?!\w)", form))
