"""JSON answers are judged strictly, by the case's rule, and none does harm."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from expert_cli.errors import InputError
from tests.graders import json_value as check

BOX = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0}, "s": {"type": "string", "pattern": "^(x+)+$"}},
    "additionalProperties": False,
}

EXACT: dict[str, tuple[str, Any, str]] = {
    "order of members is free": ('{"b": 2, "a": 1}', {"a": 1, "b": 2}, "correct"),
    "order of elements counts": ("[2, 1]", [1, 2], "wrong"),
    "1 is 1.0": ("1.0", 1, "correct"),
    "true is not 1": ("true", 1, "wrong"),
    "a large fraction as it is": ("9007199254740993.0", 9007199254740993.0, "correct"),
    "large integers are not rounded": ("9007199254740993", 9007199254740992.0, "wrong"),
    "1e2": ("1e2", 100, "correct"),
}
SUBSET: dict[str, tuple[str, Any, str]] = {
    "further members": ('{"a": 1, "b": 2}', {"a": 1}, "correct"),
    "further members inside a list": ('[{"a": 1, "b": 2}]', [{"a": 1}], "correct"),
    "anything has nothing": ('{"a": 1}', {}, "correct"),
    "missing, deep": ('{"a": {"c": 2}}', {"a": {"b": 1}}, "wrong"),
    "other value": ('{"a": 2}', {"a": 1}, "wrong"),
    "true is not 1": ('{"a": true}', {"a": 1}, "wrong"),
}


RULES = {
    f"{rule}: {name}": (rule, *row)
    for rule, table in (("exact", EXACT), ("subset", SUBSET))
    for name, row in table.items()
}


@pytest.mark.parametrize(("rule", "answer", "expected", "kind"), RULES.values(), ids=RULES)
def test_values_are_compared(rule: str, answer: str, expected: Any, kind: str) -> None:
    assert check(answer, expected, schema=None, rule=rule).kind == kind


def test_the_schema_decides_before_the_values() -> None:
    assert check('{"a": 1.0}', {"a": 1}, schema=BOX, rule="exact").passed
    verdict = check('{"a": "1"}', {"a": "1"}, schema=BOX, rule="exact")
    assert verdict.kind == "invalid"
    assert verdict.detail == 'does not fit the schema: a: "1" is not of type "integer"'
    day = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "string", "format": "date"}
    assert check('"2024-02-29"', "2024-02-29", schema=day, rule="exact").passed
    assert check('"2023-02-29"', "2023-02-29", schema=day, rule="exact").kind == "invalid"


def test_a_pattern_that_would_search_for_ever_is_given_up() -> None:
    schema = {"type": "string", "pattern": r"^(x+)+\1$(?<=y)"}
    start = time.process_time()
    assert not check(json.dumps("x" * 5_000 + "!"), "", schema=schema, rule="exact").passed
    assert time.process_time() - start < 5


@pytest.mark.parametrize("key", ["$ref", "$dynamicRef", "$schema"])
def test_no_reference_is_fetched(key: str, tmp_path: Path) -> None:
    (tmp_path / "any.json").write_text("{}", encoding="utf-8")
    for target in ("http://127.0.0.1:9/any.json", (tmp_path / "any.json").as_uri()):
        with pytest.raises(InputError, match="schema: "):
            check("1", 1, schema={key: target}, rule="exact")


def test_references_inside_the_schema_work() -> None:
    schema = {"$defs": {"n": {"type": "integer"}}, "items": {"$ref": "#/$defs/n"}}
    assert check("[1]", [1], schema=schema, rule="exact").passed
    assert check('["1"]', ["1"], schema=schema, rule="exact").kind == "invalid"


@pytest.mark.parametrize(
    ("expected", "schema", "rule"),
    [(1, {"type": "nonsense"}, "exact"), (1, {"pattern": "("}, "exact"), (1, None, "same")],
)
def test_a_faulty_case_is_an_input_error(expected: Any, schema: dict[str, Any] | None, rule: Any) -> None:
    with pytest.raises(InputError):
        check("1", expected, schema=schema, rule=rule)


def test_what_takes_exponential_time_is_stopped_where_it_runs() -> None:
    """Every level doubles the alternatives: 18 of them take 10 GB and three minutes to list."""
    level = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"]}
    schema = {"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": [level, level, {"type": "null"}]}}}
    for depth, kind in ((18, "timeout"), (1, "invalid")):
        answer = '{"a":' * depth + "1" + "}" * depth
        assert check(answer, None, schema=schema, rule="subset").kind == kind
    assert psutil.Process().memory_info().rss < 4 << 30
