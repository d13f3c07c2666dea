"""One turn of a conversation as files have it: whose it is, what it says, what else of it is carried, whether it is trained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from expert_cli.data import mask_reasons
from expert_cli.data.rows.columnar import Message
from expert_cli.data.rows.columns import TurnNames
from expert_cli.data.rows.validation import BadRow, encodes, flag_of, text_of
from expert_cli.utils.text import type_name

FUNCTION_CALL = "function_call"
"""The role of a turn whose content is the assistant's call, as JSON."""
ROLES: Mapping[str, str] = MappingProxyType(
    {
        "system": "system",
        "developer": "developer",
        "user": "user",
        "assistant": "assistant",
        "tool": "tool",
        "function": "tool",
        "human": "user",
        "gpt": "assistant",
        "observation": "tool",
        FUNCTION_CALL: FUNCTION_CALL,
    }
)
"""The roles of a conversation, OpenAI's, ShareGPT's and LLaMA-Factory's, and what they are here."""
_WEIGHTS: Mapping[str, bool] = {"weight": True, "train": True, "loss": True, "loss_mask": True, "masked": False}
"""Whether a turn is trained, as OpenAI, axolotl and others write it, and whether 1 or true says that it is."""
REASONING = ("reasoning_content", "thinking", "reasoning")
_CARRIED: Mapping[str, tuple[type, str]] = {
    **dict.fromkeys(REASONING, (str, "assistant")),
    "tool_calls": (list, "assistant"),
    "tool_call_id": (str, "tool"),
    "name": (str, "tool"),
}
"""What else of a turn reaches the chat template: what it must be, and the role whose turns have it; templates leave it out of
others."""
_NOT_CARRIED = ("audio", "images", "image", "videos", "refusal", "prefix", "mask", "train_detail")
"""What changes what a turn says or trains, and cannot be expressed."""
_TEXT_PARTS = ("text", "input_text", "output_text")
"""The types of a content's parts that say something."""


def read_turns(value: object, label: str, names: TurnNames, ignored: set[str]) -> list[Message]:
    """Return the turns of a list of messages, or of the same as JSON text. Raises BadRow.

    ignored: what nothing reads in them is added to it.
    """
    if isinstance(value, str):
        value = parsed(value, label)
    if not isinstance(value, list):
        raise BadRow(f'"{label}" is {type_name(value)}, not a list of messages')
    return [_message(turn, names, ignored) for turn in value]


def parsed(text: str, label: str) -> object:
    """Return what a text spells in JSON. Raises BadRow."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRow(f'"{label}" is not JSON') from error
    return value


def written(value: object, label: str) -> str:
    """Return a value as JSON. Raises BadRow: fields of Parquet may hold what JSON has no word for."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadRow(f"{label} holds what JSON cannot") from error
    if not encodes(text):
        raise BadRow(f"{label} is not Unicode text (half of a surrogate pair)")
    return text


def has_name(tool: object) -> bool:
    """Return whether this is a tool, or a call of one, with its name."""
    function = tool.get("function") or tool if isinstance(tool, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str) and bool(function["name"])


def _message(turn: object, names: TurnNames, ignored: set[str]) -> Message:
    if not isinstance(turn, dict):
        raise BadRow(f"a message is {type_name(turn)}, not an object")
    role_key, content_key = _keys(turn, names)
    said = text_of(turn, role_key, "a message's role")
    role = dict(names.roles).get(said) or ROLES.get(said)
    if role is None:
        raise BadRow(
            f'a message has the role "{said[:40]}", which is none here; "field_mapping.roles" says whose turns these are'
        )
    if role == FUNCTION_CALL:
        role, turn = "assistant", {**turn, role_key: "assistant", content_key: None, **_called(turn.get(content_key))}
    if len(turn) == 2 and isinstance(turn.get(content_key), str):  # the usual turn says nothing else
        return Message(role, text_of(turn, content_key, "a message's content"))
    more = _beside_what_is_said(turn, names, role, (role_key, content_key))
    content = _content(turn.get(content_key), more)
    carried = _carried(more, role)
    trained, reason = _is_trained(more)
    ignored.update(
        name for name, value in more.items() if name not in (*carried, *_WEIGHTS) and value not in ("", [], {})
    )
    if content is None and "tool_calls" not in carried:
        text_of(turn, content_key, "a message's content")  # says what is wrong with it
    content = "" if content is None else text_of({content_key: content}, content_key, "a message's content")
    return Message(role, content, trained, written(carried, "a message") if carried else "", reason)


def _keys(turn: Mapping[str, object], names: TurnNames) -> tuple[str, str]:
    """The fields of a turn's role and content: those that the manifest names, else OpenAI's or ShareGPT's."""
    mapped = names.role in turn
    role = names.role if mapped else "role" if "role" in turn else "from"
    usual = "value" if role == "from" or (mapped and "content" not in turn) else "content"
    return role, names.content if names.content in turn else usual


def _content(value: object, more: dict[str, object]) -> object:
    """What a turn says; the text of its parts where it is a list of them. Reasoning that stands among them goes to `more`."""
    if not isinstance(value, list):
        return value
    texts: list[str] = []
    for part in value:
        if not isinstance(part, (dict, str)):
            raise BadRow(f"a part of a message's content is {type_name(part)}, not text")
        kind = part.get("type", "text") if isinstance(part, dict) else "text"
        if kind not in _TEXT_PARTS and kind not in REASONING:
            raise BadRow(f'a message\'s content has a part of the type "{kind!s:.40}", but text alone is trained')
        said = (
            part
            if isinstance(part, str)
            else text_of(part, str(kind) if kind in REASONING else "text", "a part of a message's content")
        )
        if kind in REASONING:
            more["reasoning_content"] = f"{more.get('reasoning_content') or ''}{said}"
        else:
            texts.append(said)
    return "".join(texts)


def _called(value: object) -> dict[str, object]:
    """The calls of a turn that is one, or a list of them, as JSON; what stands beside a name is kept."""
    said = parsed(value, FUNCTION_CALL) if isinstance(value, str) else value
    calls: list[Any] = said if isinstance(said, list) else [said]
    if not calls or not all(map(has_name, calls)):
        raise BadRow('a message of the role "function_call" is not a call with its name as JSON')
    return {"tool_calls": [call if "function" in call else {"type": "function", "function": call} for call in calls]}


def _beside_what_is_said(
    turn: Mapping[str, object], names: TurnNames, role: str, keys: tuple[str, str]
) -> dict[str, object]:
    """What a turn has beside its role and content, OpenAI's and ShareGPT's, which must not contradict each other."""
    said = {*keys}
    if keys[0] == "role":
        sender = turn.get("from")
        if isinstance(sender, str) and sender in ROLES:  # else it is a name
            if ROLES[sender] != role:
                raise BadRow('a message\'s "from" is not its "role"')
            said.add("from")
    if not names.content:
        for name in ("content", "value"):
            if turn.get(name) not in (None, turn.get(keys[1])):
                raise BadRow(f'a message\'s "{name}" is not its "{keys[1]}"')
        said |= {"content", "value"}
    more = {name: value for name, value in turn.items() if name not in said and value is not None}
    if FUNCTION_CALL in more:  # OpenAI's, before there were several
        if more.get("tool_calls") or role != "assistant":
            raise BadRow('a message has "function_call" beside "tool_calls", or is no answer')
        more |= _called(more.pop(FUNCTION_CALL))
    return more


def _carried(more: Mapping[str, object], role: str) -> dict[str, object]:
    """What else a turn says; an empty text or list says nothing."""
    for name in _NOT_CARRIED:
        if more.get(name):
            raise BadRow(f'a message has "{name}", which cannot be trained')
    for name, (_, of) in _CARRIED.items():
        if more.get(name) and role != of == "assistant":
            raise BadRow(f'a message of the role "{role}" has "{name}", which only answers have')
    for name, (kind, _) in _CARRIED.items():
        if name in more and not isinstance(more[name], kind):
            raise BadRow(f'a message\'s "{name}" is {type_name(more[name])}')
    thoughts = [name for name in REASONING if more.get(name)]
    if any(more[name] != more[thoughts[0]] for name in thoughts):
        raise BadRow(f"a message has {' and '.join(map(json.dumps, thoughts))}, which differ")
    calls = more.get("tool_calls") or []
    if isinstance(calls, list) and not all(map(has_name, calls)):
        raise BadRow('a message\'s "tool_calls" is not a list of calls with names')
    return {name: more[name] for name, (_, of) in _CARRIED.items() if role == of and more.get(name)}


def _is_trained(more: Mapping[str, object]) -> tuple[bool | None, str]:
    """Whether a turn carries loss, as its weight or another of these fields says, and why not; None where none says."""
    said = {
        name: flag_of(more[name], f'a message\'s "{name}"') == kept for name, kept in _WEIGHTS.items() if name in more
    }
    untrained = [name for name, trained in said.items() if not trained]
    return (not untrained if said else None), mask_reasons.not_trained_by(untrained[0]) if untrained else ""
