"""Tools and calls are what their author meant, whatever a table or an encoder made of them."""

from __future__ import annotations

from typing import Any

import pytest

from expert_cli.config.run_config import ColumnMapping
from expert_cli.data.columns import choose_columns
from expert_cli.data.conversation import BadRow
from expert_cli.data.rows import Row, to_row


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "description": None, "parameters": parameters}}


def read(arguments: Any, tools: list[Any] | None = None) -> Row:
    function = {"name": "find", "arguments": arguments} if arguments != "absent" else {"name": "find"}
    calls = [{"type": "function", "function": function}]
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": None, "tool_calls": calls}]
    fields = {"messages": turns, "tools": tools}
    return to_row(fields, choose_columns(list(fields), ColumnMapping(), "rows"), ColumnMapping(), "rows:1")


def arguments_of(row: Row) -> Any:
    return row.messages[-1]["tool_calls"][0]["function"]["arguments"]


def test_a_table_gives_no_tool_the_parameters_of_others() -> None:
    optional = {"type": ["number", "null"], "default": None, "enum": [1, None]}
    row = read({}, [tool("weather", city={"type": "string"}, a=None, b=None), tool("add", a=optional, city=None)])
    properties = [one["function"]["parameters"]["properties"] for one in row.tools]
    assert properties == [{"city": {"type": "string"}}, {"a": optional}]
    assert all("description" not in one["function"] for one in row.tools)


NULLABLE = (
    {"type": ["string", "null"]},
    {"type": "null"},
    {"type": "string", "nullable": True},
    {"anyOf": [{"type": "string"}, {"type": "null"}]},
    {"enum": ["a", None]},
)


@pytest.mark.parametrize("schema", NULLABLE)
def test_an_argument_is_null_where_its_tool_says_that_it_may_be(schema: Any) -> None:
    row = read({"a": None}, [tool("find", a=schema)])
    assert (arguments_of(row), row.unread) == ({"a": None}, frozenset())


@pytest.mark.parametrize("tools", [None, [tool("find", a={"type": "string"})], [tool("find")], [tool("other", a={})]])
@pytest.mark.parametrize("given", [{"a": None, "b": {"c": None}}, '{"a": null, "b": {"c": null}}'])
def test_a_null_that_no_tool_allows_is_left_out_and_told(tools: Any, given: Any) -> None:
    row = read(given, tools)
    assert (arguments_of(row), row.unread) == ({"b": {"c": None}}, {"arguments of calls that are null"})


@pytest.mark.parametrize("given", ["", " ", None, {}, "absent"])
def test_no_arguments_are_an_empty_object(given: Any) -> None:
    row = read(given)
    assert (arguments_of(row), row.unread) == ({}, frozenset())


def test_json_text_stays_as_it_was_written() -> None:
    assert arguments_of(read('{"a":2}')) == '{"a":2}'


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ('"{\\"a\\": 2}"', "JSON text within JSON text"),
        ("a=2", "text that is not JSON"),
        ("[1]", "not an object"),
        ([1], "not an object"),
        (3, "not an object"),
    ],
)
def test_other_arguments_are_a_bad_row(given: Any, reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        read(given)
