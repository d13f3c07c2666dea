"""Judges JSON answers: they must be strict JSON, fit the case's JSON Schema, and have the values that its rule requires."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NoReturn

from pydantic import Field

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.case import Case, Example, Grade, readable, unreadable
from expert_cli.evaluation.verifiers.sandbox.child_process import Worker, require_packages
from expert_cli.inference.vote import same_as
from expert_cli.utils.files import strict_json


class JsonCase(Case):
    """`schema`, a JSON Schema or null, `expected`, and `rule`: `exact` or `subset`."""

    fences = frozenset({"json", "json5", "jsonc"})
    example = Example({"prompt": "a is 1", "schema": {}, "expected": {"a": 1}, "rule": "exact"}, '{"a": 1.0}', "{}")

    json_schema: dict[str, Any] | None = Field(alias="schema")
    expected: Any
    rule: Literal["exact", "subset"]

    @property
    def expected_text(self) -> str:
        """The expected value as JSON."""
        return json.dumps(self.expected, ensure_ascii=False)

    def require_sound(self) -> None:
        """Raise InputError for an invalid schema."""
        if self.json_schema is not None:
            require_packages("jsonschema_rs")
            try:
                _validator(json.dumps(self.json_schema))
            except ValueError as error:
                raise InputError(f"schema: {str(error).splitlines()[0]}", "correct the case's schema") from error

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:  # noqa: ARG002  a case names none
        """Compare values by the rule. A value that violates the schema is `invalid`, like a program that does not compile."""
        value = _parse(answer)
        if self.json_schema is not None:
            reply = _WORKER.ask({"schema": json.dumps(self.json_schema), "value": answer}, timeout_s)
            if reply["misfit"]:
                return Grade("invalid", f"does not fit the schema: {reply['misfit']}")
        fault = difference(value, self.expected, subset=self.rule == "subset")
        return Grade("wrong", fault) if fault else Grade("correct")

    def result_key(self, answer: str, file: Path | None, timeout_s: float) -> Hashable:  # noqa: ARG002  a case names none
        """Return a key of the value, independent of layout and member order; 1 and 1.0 are equal, true and 1 are not."""
        readable(answer)
        _parse(answer)
        return same_as(answer)


def difference(value: Any, expected: Any, place: str = "", *, subset: bool = False) -> str:
    """Return the first difference between a JSON value and the expected one, with its path; "" for none.

    Member order is ignored, 1 equals 1.0, true does not equal 1. subset: objects may have more members, at every depth.
    """
    inside: Iterable[str] = ()
    if isinstance(expected, dict) and isinstance(value, dict):
        if odd := expected.keys() - value.keys() if subset else expected.keys() ^ value.keys():
            return f"{place}/{min(odd)} is {'not expected' if min(odd) in value else 'missing'}"
        inside = (difference(value[key], expected[key], f"{place}/{key}", subset=subset) for key in expected)
    elif isinstance(expected, list) and isinstance(value, list) and len(value) == len(expected):
        pairs = enumerate(zip(value, expected, strict=True))
        inside = (difference(*pair, f"{place}/{index}", subset=subset) for index, pair in pairs)
    elif value != expected or isinstance(value, bool) is not isinstance(expected, bool):  # in Python, True == 1
        shown, wanted = (json.dumps(one, ensure_ascii=False)[:60] for one in (value, expected))
        return f"{place or '/'} is {shown}, not {wanted}"
    return next(filter(None, inside), "")


def _parse(answer: str) -> Any:
    """Parse strictly: no NaN, no repeated key. Raises `Stopped`."""
    try:
        return strict_json(answer.encode())
    except ValueError as error:
        raise unreadable(error) from error


_WORKER = Worker(f"{__name__}:judge", "jsonschema_rs")


def judge() -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Return a function that says where a value violates a schema, "" for nowhere; it can take exponential time."""
    _validator("{}")  # import the package while this process may still open files
    return _misfit


def _misfit(question: Mapping[str, Any]) -> Mapping[str, Any]:
    error = next(_validator(question["schema"]).iter_errors(json.loads(question["value"])), None)
    place = "/".join(map(str, error.instance_path)) if error else ""
    return {"misfit": f"{place}: {error.message}".removeprefix(": ") if error else ""}


@lru_cache(maxsize=4096)
def _validator(schema: str) -> Any:
    """Return the compiled validator of a schema, without fetching references. Raises ValueError for an invalid schema."""
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(json.loads(schema), validate_formats=True, retriever=_retrieve)
    except jsonschema_rs.ReferencingError as error:
        raise ValueError(error) from error


def _retrieve(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is not fetched: put its schema under $defs")
