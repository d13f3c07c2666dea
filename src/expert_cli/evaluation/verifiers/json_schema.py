"""Judges JSON answers: strict JSON that fits the case's JSON Schema and holds the values the case's rule asks for."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn

from pydantic import Field

from expert_cli.errors import InputError
from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers.case import Case, Example
from expert_cli.evaluation.verifiers.json_rules import Rule, difference
from expert_cli.evaluation.verifiers.requirements import require_packages
from expert_cli.evaluation.verifiers.sandbox.limits import Stopped, readable
from expert_cli.evaluation.verifiers.sandbox.worker import Worker
from expert_cli.utils.files import KeyTwice, unique_keys

MAX_BYTES = 1_000_000
MAX_DEPTH = 100
MAX_DIGITS = 1_000
PLACE_S = 1.0
"""How long the place is looked for that does not fit; that it does not is known before."""
# A string, closed or not, or a bracket: one pass, however the text ends.
_BRACKET = re.compile(r'"(?:[^"\\]+|\\.)*"?|[\[\]{}]', re.DOTALL)


class JsonCase(Case):
    """`schema`, a JSON Schema or null, `expected`, and `rule`: `exact` or `subset`."""

    fences = frozenset({"json", "json5", "jsonc"})
    example = Example(
        {"prompt": "As JSON: a is 1.", "schema": {"type": "object"}, "expected": {"a": 1}, "rule": "exact"},
        right='{"a": 1.0}',
        wrong='{"a": 1, "b": 2}',
    )

    json_schema: dict[str, Any] | None = Field(alias="schema", description="A JSON Schema that the answer must match.")
    expected: Any = Field(description="The value, or part of it, as `rule` says.")
    rule: Rule

    @property
    def expected_text(self) -> str:
        """The value as JSON."""
        return json.dumps(self.expected, ensure_ascii=False)

    def require_sound(self) -> None:
        """Raise InputError where the schema is none."""
        if self.json_schema is not None:
            _require_schema(self.json_schema)

    def is_expected(self, answer: str) -> bool:
        """Whether a text is the value, however it is laid out."""
        try:
            return bool(json.loads(answer) == self.expected)
        except (ValueError, RecursionError):
            return False

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:  # noqa: ARG002  a case names none
        """Compare values, by the rule.

        exact: the same value; the order of an object's members is free, 1 equals 1.0, true is not 1. What is held
        against a whole number must be it to the last digit, against a fraction it must be the same double.
        subset: an object may have further members, at every depth; a list must have the same length, and its elements are
        held to the expected ones in order, because a list with one element more is another list.
        A value that breaks the schema is invalid, as a program that breaks its types is.
        """
        try:
            value = _parse(answer)
            fault = _fault(self.json_schema, answer, timeout_s) if self.json_schema is not None else ""
        except Stopped as stopped:
            return stopped.verdict
        if fault:
            return Grade("invalid", f"does not fit the schema: {fault}", reached="parses")
        fault = difference(self.rule, value, self.expected)
        if not fault:
            return Grade("correct")
        alike = _alike(value, self.expected, further=self.rule == "subset")
        return Grade("wrong", fault, reached="columns" if alike else "runs")

    def result_key(self, answer: str, file: Path | None, timeout_s: float) -> Hashable:  # noqa: ARG002  a case names none
        """Return the value, whatever its layout and the order of its members; 1 and 1.0 are one, true is not 1."""
        return _hashable(_parse(answer))


def _alike(value: Any, expected: Any, *, further: bool) -> bool:
    """Whether an object has the expected keys, a list the expected length and such items. further: other keys beside them."""
    if isinstance(expected, dict) and isinstance(value, dict):
        return expected.keys() <= value.keys() if further else expected.keys() == value.keys()
    if isinstance(expected, list) and isinstance(value, list):
        return len(expected) == len(value) and all(
            _alike(*pair, further=further) for pair in zip(value, expected, strict=True)
        )
    return not isinstance(expected, dict | list) and not isinstance(value, dict | list)


def _hashable(value: Any) -> Hashable:
    if isinstance(value, dict):
        return dict, frozenset((key, _hashable(item)) for key, item in value.items())
    if isinstance(value, list):
        return list, tuple(map(_hashable, value))
    return isinstance(value, bool), value


def _parse(answer: str) -> Any:
    """The value, read strictly: no NaN, no key twice, no number or nesting that a program would choke on."""
    readable(answer, MAX_BYTES)
    if answer.count("[") + answer.count("{") > MAX_DEPTH and _deeper(answer, MAX_DEPTH):
        raise Stopped("too_large", f"brackets nested more than {MAX_DEPTH} deep")
    try:
        value = _DECODER.decode(answer)
        if "\\u" in answer or not answer.isascii():
            json.dumps(value, ensure_ascii=False, default=str).encode()
    except json.JSONDecodeError as error:
        raise Stopped("invalid", f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except KeyTwice as error:
        raise Stopped("invalid", str(error)) from error
    except UnicodeEncodeError as error:
        raise Stopped("invalid", "half a surrogate pair is no character") from error
    return value


def _deeper(text: str, limit: int) -> bool:
    marks = (match[0] for match in _BRACKET.finditer(text))
    return any(depth > limit for depth in accumulate((mark in "[{") - (mark in "]}") for mark in marks))


def _fraction(digits: str) -> float | Decimal:
    number = float(_bounded(digits))
    if math.isinf(number):
        raise Stopped("too_large", f"the number {digits[:40]} is beyond every double")
    return Decimal(digits) if abs(number) >= 1 else number


def _bounded(digits: str) -> str:
    if len(digits) > MAX_DIGITS:
        raise Stopped("too_large", f"a number of {len(digits):,} digits")
    return digits


def _constant(name: str) -> NoReturn:
    raise Stopped("invalid", f"{name} is no JSON value")


_DECODER = json.JSONDecoder(
    object_pairs_hook=unique_keys,
    parse_int=lambda digits: int(_bounded(digits)),
    parse_float=_fraction,
    parse_constant=_constant,
)


def _require_schema(schema: dict[str, Any]) -> None:
    require_packages("jsonschema_rs")
    from expert_cli.evaluation.verifiers.sandbox.schema import validator

    try:
        validator(json.dumps(schema))
    except ValueError as error:
        raise InputError(f"schema: {str(error).splitlines()[0]}", "correct the case's schema") from error


def _fault(schema: dict[str, Any], answer: str, timeout_s: float) -> str:
    """Return where an answer does not fit, "" where it does. Raises `Stopped`."""
    question = {"schema": json.dumps(schema), "value": answer}
    with _WORKER.asked() as ask:
        if ask({**question, "where": False}, timeout_s)["fits"]:
            return ""
        try:
            return str(ask({**question, "where": True}, PLACE_S)["place"])
        except Stopped:
            return f"the place was not found in {PLACE_S:g} s"


_WORKER = Worker(f"{__package__}.sandbox.schema:judge", "jsonschema_rs", broken="too_large")
