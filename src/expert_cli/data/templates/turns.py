"""The turns of a conversation as templates read them, and what their calls say.

What rows say is hidden from templates where it is spelled like a control token; `HIDDEN` finds what stands there instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

from expert_cli.data.rows.columnar import Message
from expert_cli.data.rows.turn import REASONING

T = TypeVar("T")
HIDDEN = re.compile("\ue000(\\d+)\ue001")


def template_turn(message: Message) -> dict[str, Any]:
    """Return a turn with every field that templates read."""
    more = json.loads(message.fields) if message.fields else {}
    reasoning = next((more[name] for name in REASONING if name in more), None)
    if reasoning is not None:  # under the names that templates read, as transformers gives it
        more = {"thinking": reasoning, **more, "reasoning_content": reasoning}
    return {"role": message.role, "content": message.content, **more}


def hide_control(value: T, control: re.Pattern[str], hidden: list[str]) -> T:
    """Return a value of JSON with private-use characters in place of the control tokens in its texts."""

    def place(match: re.Match[str]) -> str:
        hidden.append(match[0])
        return f"\ue000{len(hidden) - 1}\ue001"

    def inner(part: Any) -> Any:
        if isinstance(part, str):
            return control.sub(place, HIDDEN.sub(place, part))
        if isinstance(part, list):
            return list(map(inner, part))
        return {inner(name): inner(value) for name, value in part.items()} if isinstance(part, dict) else part

    return cast("T", inner(value))


def calls_of(turn: Mapping[str, Any]) -> list[Any]:
    """Return the functions that an answer calls, with their arguments."""
    return [call.get("function") or call for call in turn.get("tool_calls") or ()]


def tool_name(tool: Mapping[str, Any]) -> str:
    """Return the name of a tool, which every row that was read gives."""
    return str((tool.get("function") or tool)["name"])


def spelled_arguments(turn: Mapping[str, Any]) -> list[str]:
    """Return the arguments of an answer's calls that are given as JSON text."""
    return [call["arguments"] for call in calls_of(turn) if isinstance(call.get("arguments"), str)]


def parse_arguments(turn: dict[str, Any]) -> dict[str, Any]:
    """Return the turn with what its calls' arguments spell, where that is an object."""
    if not spelled_arguments(turn):
        return turn
    return {**turn, "tool_calls": [_parsed_call(call) for call in turn["tool_calls"]]}


def _parsed_call(call: dict[str, Any]) -> dict[str, Any]:
    if "function" in call:
        return {**call, "function": _parsed_call(call["function"])}
    try:
        arguments = json.loads(call["arguments"])
    except (ValueError, TypeError, KeyError):
        return call
    return {**call, "arguments": arguments} if isinstance(arguments, dict) else call


def first_calls(turn: dict[str, Any], most: int) -> dict[str, Any]:
    """Return the turn with its first calls alone, without the field where there are none."""
    kept = (turn.get("tool_calls") or [])[:most]
    return {name: value for name, value in turn.items() if name != "tool_calls"} | (
        {"tool_calls": kept} if kept else {}
    )


def call_names(turn: Mapping[str, Any]) -> list[str]:
    """Return the names of the functions that an answer calls, in order."""
    return [str(call["name"]) for call in calls_of(turn)]


def call_arguments(turn: Mapping[str, Any]) -> list[str]:
    """Return the keys and texts in the arguments of an answer's calls."""
    return [text for call in calls_of(turn) for text in _leaves(call.get("arguments")) if text]


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield str(name)
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
