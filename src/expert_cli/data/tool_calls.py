"""Tools and calls as their author meant them: without what a table added, and arguments in one form.

A table has one type for a column, so every tool gets the parameters of all others, and every call the arguments of all others,
as nulls. JSON Schema has no keyword whose value is null but `default` and `const`; an argument may be null where its tool says
so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

NULL_ARGUMENTS = "arguments of calls that are null"
"""What is told of arguments that were left out."""
_MAY_BE_NULL = ("default", "const")


class BadCall(ValueError):
    """Why a call cannot be trained."""


def as_meant(tools: Any) -> Any:
    """Return tools without the nulls of a table."""
    if isinstance(tools, list):
        return [as_meant(one) for one in tools]
    if not isinstance(tools, dict):
        return tools
    return {name: as_meant(one) for name, one in tools.items() if one is not None or name in _MAY_BE_NULL}


def with_arguments(calls: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> tuple[list[Mapping[str, Any]], bool]:
    """Return calls whose arguments are an object, or its JSON text; and whether null arguments were left out.

    Nothing, null and "" are no arguments: {}. An argument that is null is kept where its tool's schema allows null. Raises
    BadCall: arguments that are neither, or JSON text within JSON text.
    """
    known = {one["name"]: one for one in map(_function, tools) if isinstance(one.get("name"), str)}
    found = list[Mapping[str, Any]]()
    left_out = False
    for call in calls:
        function = _function(call)
        given = function.get("arguments")
        value = _object(given)
        properties = _properties(known.get(str(function.get("name"))))
        kept = {name: one for name, one in value.items() if one is not None or _takes_null(properties.get(name))}
        if len(kept) < len(value) or not value:
            left_out |= len(kept) < len(value)
            function = {**function, "arguments": kept}
            found.append({**call, "function": function} if "function" in call else function)
        else:
            found.append(call)
    return found, left_out


def _function(tool: Any) -> Mapping[str, Any]:
    function = tool.get("function") or tool if isinstance(tool, dict) else {}
    return function if isinstance(function, dict) else {}


def _object(given: Any) -> Mapping[str, Any]:
    value = given
    if isinstance(given, str):
        try:
            value = json.loads(given) if given.strip() else {}
        except (ValueError, RecursionError) as error:
            raise BadCall("arguments of a call are text that is not JSON") from error
        if isinstance(value, str):
            raise BadCall("arguments of a call are JSON text within JSON text: encode them once")
    if value is not None and not isinstance(value, dict):
        raise BadCall("arguments of a call are not an object")
    return value or {}


def _properties(function: Mapping[str, Any] | None) -> Mapping[str, Any]:
    parameters = (function or {}).get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    return properties if isinstance(properties, dict) else {}


def _takes_null(schema: Any) -> bool:
    """Whether a property's schema says that it may be null."""
    if not isinstance(schema, dict):
        return False
    kinds = schema.get("type")
    if kinds == "null" or (isinstance(kinds, list) and "null" in kinds) or schema.get("nullable") is True:
        return True
    ways = [*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())]
    return any(map(_takes_null, ways)) or None in (schema.get("enum") or ())
