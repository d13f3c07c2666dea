"""Judges JSON answers: strict JSON that fits the case's JSON Schema and holds the values the case's rule asks for."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NoReturn

from pydantic import Field

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.case import Case, Example, Grade
from expert_cli.evaluation.verifiers.sandbox.child_process import Stopped, Worker, readable, require_packages
from expert_cli.utils.files import KeyTwice, unique_keys

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
    rule: Literal["exact", "subset"]

    @property
    def expected_text(self) -> str:
        """The value as JSON."""
        return json.dumps(self.expected, ensure_ascii=False)

    def require_sound(self) -> None:
        """Raise InputError where the schema is none."""
        if self.json_schema is not None:
            require_packages("jsonschema_rs")
            try:
                _validator(json.dumps(self.json_schema))
            except ValueError as error:
                raise InputError(f"schema: {str(error).splitlines()[0]}", "correct the case's schema") from error

    def is_expected(self, answer: str) -> bool:
        """Whether a text is the value, however it is laid out."""
        try:
            return bool(json.loads(answer) == self.expected)
        except (ValueError, RecursionError):
            return False

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:  # noqa: ARG002  a case names none
        """Compare values, by the rule; one that breaks the schema is invalid, as a program that breaks its types is.

        exact: the same value; the order of an object's members is free, 1 equals 1.0, true is not 1. What is held
        against a whole number must be it to the last digit, against a fraction it must be the same double.
        subset: an object may have further members, at every depth; a list must have the same length and order.
        """
        try:
            value, fault = _parse(answer), self._misfit(answer, timeout_s)
        except Stopped as stopped:
            return stopped.verdict
        if fault:
            return Grade("invalid", f"does not fit the schema: {fault}", reached="parses")
        faults = [*_differences(value, self.expected, subset=self.rule == "subset")]
        if not faults:
            return Grade("correct")
        return Grade("wrong", faults[0][0], reached="runs" if any(of_shape for _, of_shape in faults) else "columns")

    def _misfit(self, answer: str, timeout_s: float) -> str:
        """Return where an answer does not fit the schema, "" where it does. Raises `Stopped`."""
        if self.json_schema is None:
            return ""
        question = {"schema": json.dumps(self.json_schema), "value": answer}
        with _WORKER.asked() as ask:
            if ask({**question, "where": False}, timeout_s)["fits"]:
                return ""
            try:
                return str(ask({**question, "where": True}, PLACE_S)["place"])
            except Stopped:
                return f"the place was not found in {PLACE_S:g} s"

    def result_key(self, answer: str, file: Path | None, timeout_s: float) -> Hashable:  # noqa: ARG002  a case names none
        """Return the value, whatever its layout and the order of its members; 1 and 1.0 are one, true is not 1."""
        return _hashable(_parse(answer))


def _differences(value: Any, expected: Any, place: str = "", *, subset: bool) -> Iterator[tuple[str, bool]]:
    """Yield what of a value is not as expected, with its place, and whether that is its shape.

    Its shape are the keys of an object, or the length of a list and the shapes of its elements; what lies in an object is none
    of it. subset: objects may have further members.
    """
    holds = isinstance(value, dict | list) or isinstance(expected, dict | list)
    if isinstance(expected, dict) and isinstance(value, dict):
        if not subset:
            yield from ((f"{place}/{key} is not expected", True) for key in value if key not in expected)
        for key, item in expected.items():
            if key in value:
                inside = _differences(value[key], item, f"{place}/{key}", subset=subset)
                yield from ((told, False) for told, _ in inside)
            else:
                yield f"{place}/{key} is missing", True
    elif isinstance(expected, list) and isinstance(value, list):
        if len(value) != len(expected):
            yield f"{place or '/'} has {len(value)} elements, not {len(expected)}", True
        for index, pair in enumerate(zip(value, expected, strict=False)):
            yield from _differences(*pair, f"{place}/{index}", subset=subset)
    else:
        known = float(value) if isinstance(value, Decimal) and isinstance(expected, float) else value
        if known != expected or isinstance(value, bool) != isinstance(expected, bool):  # True == 1, but not in JSON
            yield f"{place or '/'} is {_shown(value)}, not {_shown(expected)}", holds


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return (str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False))[:60]


def _hashable(value: Any) -> Hashable:
    if isinstance(value, dict):
        return dict, frozenset((key, _hashable(item)) for key, item in value.items())
    if isinstance(value, list):
        return list, tuple(map(_hashable, value))
    return isinstance(value, bool), value


def _parse(answer: str) -> Any:
    """The value, read strictly: no NaN, no key twice, no number or nesting that a program would choke on."""
    readable(answer)
    marks = (match[0] for match in _BRACKET.finditer(answer))
    if any(depth > MAX_DEPTH for depth in accumulate((mark in "[{") - (mark in "]}") for mark in marks)):
        raise Stopped("too_large", f"brackets nested more than {MAX_DEPTH} deep")
    try:
        value = _DECODER.decode(answer)
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except (json.JSONDecodeError, KeyTwice) as error:
        raise Stopped("invalid", str(error)) from error
    except UnicodeEncodeError as error:
        raise Stopped("invalid", "half a surrogate pair is no character") from error
    return value


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
_WORKER = Worker(f"{__name__}:judge", "jsonschema_rs", broken="too_large")


def judge() -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Return what answers whether a value fits, or where it does not: a search that can take exponential time and memory."""
    import jsonschema_rs  # noqa: F401  while files may be opened

    def held(question: Mapping[str, Any]) -> Mapping[str, Any]:
        validator, value = _validator(question["schema"]), json.loads(question["value"])
        if not question["where"]:
            return {"fits": validator.is_valid(value)}
        error = next(iter(validator.iter_errors(value)))
        place = "/".join(map(str, error.instance_path))
        return {"place": f"{place}: {error.message}" if place else str(error.message)}

    return held


@lru_cache(maxsize=4096)
def _validator(schema: str) -> Any:
    """Return the compiled validator of a schema; nothing is fetched for it. Raises ValueError for what is no schema."""
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(json.loads(schema), validate_formats=True, retriever=_retrieve)
    except jsonschema_rs.ReferencingError as error:
        raise ValueError(error) from error


def _retrieve(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is not fetched: put its schema under $defs")
