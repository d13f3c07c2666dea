"""The turns of a conversation and their calls, as OpenAI, ShareGPT and others write them -> as chat templates read them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from typing import Any

from expert_cli.config.run_config import ColumnMapping
from expert_cli.data.columns import MEDIA
from expert_cli.data.field_checks import BadRow, flag_of, is_unicode, json_text, parsed, require_json, text_of
from expert_cli.utils.text import type_name

Turns = list[dict[str, Any]]
CALL = "function_call"
ROLES: Mapping[str, str] = {
    **{role: role for role in ("system", "developer", "user", "assistant", "tool", CALL)},
    **dict.fromkeys(("function", "observation"), "tool"),
    "human": "user",
    "gpt": "assistant",
}
"""The roles of a conversation, OpenAI's, ShareGPT's and LLaMA-Factory's, and what they are here."""
_PLAIN_ROLES = frozenset(("system", "user", "assistant"))
_WEIGHTS: Mapping[str, bool] = {"weight": True, "train": True, "loss": True, "loss_mask": True, "masked": False}
"""Whether a turn is trained, as OpenAI, axolotl and others write it, and whether 1 or true says that it is."""
REASONING = ("reasoning_content", "thinking", "reasoning")
_CARRIED: Mapping[str, tuple[type, str]] = {
    **dict.fromkeys(REASONING, (str, "assistant")),
    "tool_calls": (list, "assistant"),
    "tool_call_id": (str, "tool"),
    "name": (str, "tool"),
}
"""What else of a turn reaches the chat template: what it must be, and the role whose turns have it."""
NULL_ARGUMENTS = "arguments of calls that are null"


def turns_of(value: object, label: str, mapping: ColumnMapping) -> tuple[Turns, list[bool], Set[str]]:
    """Return turns as chat templates read them, which are trained, and the fields that nothing reads."""
    value = parsed(value, label)
    if not isinstance(value, list):
        raise BadRow(f'"{label}" is {type_name(value)}, not a list of messages')
    if not (mapping.role or mapping.content or mapping.roles) and all(map(_is_plain, value)):
        return value, [turn["role"] == "assistant" for turn in value], frozenset()
    turns, trained, unread = Turns(), list[bool](), set[str]()
    for turn in value:
        if not isinstance(turn, dict):
            raise BadRow(f"a message is {type_name(turn)}, not an object")
        read, is_trained, left = _turn(turn, mapping)
        turns.append(read)
        trained.append(is_trained)
        unread |= {f"{label}[].{name}" for name in left}
    return turns, trained, unread


def _is_plain(turn: object) -> bool:
    """Whether a turn is a role and a text and nothing else, as most are."""
    if type(turn) is not dict or len(turn) != 2 or turn.get("role") not in _PLAIN_ROLES:
        return False
    content = turn.get("content")
    return type(content) is str and (content.isascii() or is_unicode(content))


def _turn(turn: Mapping[str, Any], mapping: ColumnMapping) -> tuple[dict[str, Any], bool, set[str]]:
    role_key = next((key for key in (mapping.role, "role") if key in turn), "from")
    content_key = next((key for key in (mapping.content, "content", "value") if turn.get(key) is not None), "content")
    said = text_of(turn, role_key, "a message's role")
    role = dict(mapping.roles).get(said) or ROLES.get(said)
    if role is None:
        told = f'a message has the role "{said[:40]}", which is none here'
        raise BadRow(f'{told}; "field_mapping.roles" says whose turns these are')
    content = _joined(turn.get(content_key))
    more = {name: one for name, one in turn.items() if name not in (role_key, content_key) and one is not None}
    if role == CALL:
        role, content, more = "assistant", None, {**more, "tool_calls": _calls(content)}
    carried = _carried(more, role)
    says = [flag_of(more[name], f'a message\'s "{name}"') == kept for name, kept in _WEIGHTS.items() if name in more]
    unread = {name for name, one in more.items() if name not in (*carried, *_WEIGHTS) and one not in ("", [], {})}
    if content is not None or "tool_calls" not in carried:
        content = text_of({**turn, content_key: content}, content_key, "a message's content")
    require_json(carried, "a message")
    return {"role": role, "content": content or "", **carried}, role == "assistant" and all(says), unread


def _joined(content: object) -> object:
    """What a turn says; the text of its parts where it is a list of them."""
    if not isinstance(content, list):
        return content
    for part in content:
        if not isinstance(part, dict):
            raise BadRow(f"a part of a message's content is {type_name(part)}, not an object")
        if (kind := part.get("type") or "text") != "text":
            raise BadRow(f'a message\'s content has a part of the type "{kind!s:.40}", but text alone is trained')
    return "".join(text_of(part, "text", "a part of a message's content") for part in content)


def _calls(content: object) -> list[dict[str, Any]]:
    """The calls that a turn of LLaMA-Factory's says, one or a list, as JSON."""
    said = parsed(content, CALL)
    calls = said if isinstance(said, list) else [said]
    if not calls or not all(map(has_name, calls)):
        raise BadRow('a message of the role "function_call" is not a call with its name as JSON')
    return [call if "function" in call else {"type": "function", "function": call} for call in calls]


def _carried(more: Mapping[str, object], role: str) -> dict[str, object]:
    """What else a turn says; an empty text or list says nothing."""
    for name in MEDIA:
        if more.get(name):
            raise BadRow(f'a message has "{name}", but text alone is trained')
    for name, (kind, of) in _CARRIED.items():
        if more.get(name) and role != of == "assistant":
            raise BadRow(f'a message of the role "{role}" has "{name}", which only answers have')
        if name in more and not isinstance(more[name], kind):
            raise BadRow(f'a message\'s "{name}" is {type_name(more[name])}')
    calls: Any = more.get("tool_calls") or []
    if not all(map(has_name, calls)):
        raise BadRow('a message\'s "tool_calls" is not a list of calls with names')
    return {name: more[name] for name, (_, of) in _CARRIED.items() if role == of and more.get(name)}


def mend_calls(turns: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> tuple[Turns, list[Any], Set[str]]:
    """Return turns and tools without what a table added: one type for a column gives all the fields of all others, as nulls.

    JSON Schema has no keyword whose value is null but `default` and `const`; an argument may be null where its tool's schema
    speaks of null. Nothing, null and "" are no arguments: {}. Arguments that are left out are unread.
    """
    tools, mended, unread = [*map(_without_nulls, tools)], Turns(), set[str]()
    parameters = {tool["name"]: _object(tool.get("parameters")) for tool in map(_function, tools)}
    for turn in turns:
        calls = list(turn.get("tool_calls", ()))
        for number, call in enumerate(calls):
            function = _function(call)
            given = _arguments(function.get("arguments"))
            known = _object(parameters.get(function["name"], {}).get("properties"))
            kept = {
                name: one for name, one in given.items() if one is not None or "null" in json_text(known.get(name, ""))
            }
            function = {**function, "arguments": kept}
            calls[number] = {**call, "function": function} if "function" in call else function
            unread |= {NULL_ARGUMENTS} if len(kept) < len(given) else set()
        mended.append({**turn, "tool_calls": calls} if calls else dict(turn))
    return mended, tools, unread


def _without_nulls(schema: Any) -> Any:
    if isinstance(schema, list):
        return [*map(_without_nulls, schema)]
    if not isinstance(schema, dict):
        return schema
    kept = ((name, one) for name, one in schema.items() if one is not None or name in ("default", "const"))
    return {name: _without_nulls(one) for name, one in kept}


def _arguments(given: object) -> dict[str, Any]:
    """Arguments of a call, an object or its JSON text."""
    try:
        value = (json.loads(given) if given.strip() else {}) if isinstance(given, str) else given
    except (ValueError, RecursionError) as error:
        raise BadRow("arguments of a call are text that is not JSON") from error
    if isinstance(value, str):
        raise BadRow("arguments of a call are JSON text within JSON text: encode them once")
    if value is not None and not isinstance(value, dict):
        raise BadRow("arguments of a call are not an object")
    return value or {}


def _function(tool: Any) -> dict[str, Any]:
    """What has the name of a tool, or of a call of one; {} where nothing has."""
    function = tool.get("function") or tool if isinstance(tool, dict) else {}
    return _object(function)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def has_name(tool: object) -> bool:
    """Return whether this is a tool, or a call of one, with its name."""
    name = _function(tool).get("name")
    return isinstance(name, str) and bool(name)


def beside_content(turn: Mapping[str, Any]) -> str:
    """Return as JSON what a turn has beside its role and content, "" for nothing."""
    return json_text({name: turn[name] for name in turn if name not in ("role", "content")}) if len(turn) > 2 else ""
