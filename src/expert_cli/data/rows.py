"""Turns a raw row into a `Row`: a conversation, a whole text, or segments.

There is one function for each form. Values of other types are never converted to text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from expert_cli.config.run_config import ColumnMapping
from expert_cli.data.columns import (
    UNUSED,
    BadRow,
    Columns,
    field_of,
    is_blank,
    is_unicode,
    json_text,
    optional_text,
    parsed,
    require_json,
    text_of,
)
from expert_cli.utils.text import normalize, type_name

TRAILING = "turns after the last answer"
Turns = list[dict[str, Any]]
CALL = "function_call"
ROLES: Mapping[str, str] = {
    **{role: role for role in ("system", "developer", "user", "assistant", "tool", CALL)},
    **dict.fromkeys(("function", "observation"), "tool"),
    "human": "user",
    "gpt": "assistant",
}
"""The role used here for each role of OpenAI, ShareGPT and LLaMA-Factory."""
_PLAIN_ROLES = frozenset(("system", "user", "assistant"))
_WEIGHTS = ("weight", "train", "loss", "loss_mask", "loss_weight", "trainable", "training", "masked")
"""Keys by which OpenAI, axolotl and others say whether a turn is trained: all but "masked" are true for "trained"."""
REASONING = ("reasoning_content", "thinking", "reasoning")
_CARRIED: Mapping[str, tuple[type, str]] = {
    **dict.fromkeys(REASONING, (str, "assistant")),
    "tool_calls": (list, "assistant"),
    "tool_call_id": (str, "tool"),
    "name": (str, "tool"),
}
"""Other keys of a turn that are passed to the chat template, with their type and the role that may have them."""
NULL_ARGUMENTS = "arguments of calls that are null"
_MESSAGES = re.compile(r'\s*\[\s*\{\s*"(?:role|content|from|value)"\s*:')
"""Matches the beginning of messages written as JSON text, as in a CSV cell."""


@dataclass(slots=True)  # not frozen: frozen ones take three times as long to create
class Row:
    """A row of a file. where: "file:line".

    messages: for the chat template; trained: which of them carry loss. input: the template appends it to the last question.
    Without messages, the row is a formatted document: a text, or segments (text, trained). is_pair: it was read from columns of
    question and answer. given: the row's own input if a database is shown instead. unread: keys and turns that are not read.
    """

    where: str
    messages: Sequence[Mapping[str, Any]] = ()
    trained: Sequence[bool] = ()
    tools: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    input: str = ""
    database: str = ""
    text: str = ""
    segments: Sequence[tuple[str, bool]] = ()
    is_pair: bool = False
    given: str | None = None
    unread: Set[str] = frozenset()

    @property
    def answer(self) -> str:
        """The trained text: the last turn of the conversation with its calls, the whole text, or the trained segments."""
        if self.messages:
            return str(self.messages[-1]["content"]) + beside_content(self.messages[-1])
        return self.text or "".join(text for text, trained in self.segments if trained)

    @property
    def question(self) -> tuple[str, str]:
        """The question, and its input or (for messages) tools and system messages. A whole text is its own question."""
        if not self.messages:
            return self.text or "".join(text for text, _ in self.segments), ""
        if self.is_pair:
            return str(self.messages[-2]["content"]) if len(self.messages) > 1 else "", self.input
        before, said = list(self._beside().values()), []
        for turn in self.messages[:-1]:
            if turn["role"] in ("system", "developer"):
                before.append(turn["content"])
            else:
                role = "" if turn["role"] == "user" else f"{turn['role']}: "
                said.append(turn["content"] if not role else f"{role}{turn['content']}{beside_content(turn)}")
        return "\n".join(said), "\n".join(before)

    def _beside(self) -> dict[str, str]:
        """Return the tools and arguments that the template gets in addition to the messages, as JSON."""
        given = {"tools": self.tools, "chat_template_kwargs": self.kwargs}
        return {name: json_text(value) for name, value in given.items() if value}

    def content(self) -> tuple[str, ...]:
        """Return the complete content, with roles and untrained turns. Rows with equal content are duplicates."""
        if not self.messages:
            segments = (f"{'trained' if trained else 'not trained'}: {text}" for text, trained in self.segments)
            return (self.text,) if self.text else tuple(segments)
        pair = (*self.question, self.answer) if self.is_pair else ()
        beside = self._beside()
        if pair and not beside and len(self.messages) == 2:
            return pair
        said = (part for turn in self.messages for part in (turn["role"], turn["content"]))
        more = filter(None, map(beside_content, self.messages))
        read = (str(n) for n, turn in enumerate(self.messages) if turn["role"] == "assistant" and not self.trained[n])
        return (*pair, *chain(*beside.items()), *said, *more, *(f"{number} is not trained" for number in read))

    def __len__(self) -> int:
        """Return the number of characters in prompt and answer."""
        if not self.messages:
            return len(self.text) + sum(len(text) for text, _ in self.segments)
        beside = sum(map(len, self._beside().values()))
        said = sum(len(turn["content"]) + len(beside_content(turn)) for turn in self.messages)
        return beside + len(self.input) + said


def digest(said: str) -> bytes:
    """Return a hash of a text, 16 bytes."""
    return hashlib.blake2b(said.encode(), digest_size=16).digest()


def asked_hash(asked: str, below: str) -> bytes:
    """Return a hash of a question and its input, 16 bytes, ignoring letter case and spacing; zeros for no question."""
    return digest(f"{normalize(asked)}\0{normalize(below)}") if asked.strip() else bytes(16)


def to_row(fields: Mapping[str, object], columns: Columns, mapping: ColumnMapping, where: str) -> Row:
    """Convert a raw row. Raises BadRow."""
    if name := next(filter(fields.get, columns.unused), ""):
        raise BadRow(f'"{name}" is not empty, but {UNUSED[name.casefold()]}')
    if columns.form == "text":
        return Row(where, text=text_of(fields, columns.text, may_be_blank=False))
    if columns.form == "segments":
        return _of_segments(fields, columns, where)
    if columns.form == "messages":
        said = field_of(fields, columns.messages, object, "a list of messages")
        turns, trained, unread = turns_of(said, columns.messages, mapping)
        row = _up_to_answer(Row(where, turns, trained, unread=unread))
    else:
        row = _of_pair(fields, columns, mapping, where)
    if columns.tools or columns.chat_template_kwargs or columns.system:
        _add_beside(row, fields, columns)
    if row.tools or any("tool_calls" in turn for turn in row.messages):
        row.messages, row.tools, unread = mend_calls(row.messages, row.tools)
        row.unread |= unread
    return row


# By the form of the columns -------------------------------------------------------------------------------------------


def _of_segments(fields: Mapping[str, object], columns: Columns, where: str) -> Row:
    """Return a row of segments, each marked as trained or not (axolotl's input_output)."""
    pieces = []
    for segment in field_of(fields, columns.segments, list, "a list of segments"):
        if not isinstance(segment, dict):
            raise BadRow(f"a segment is {type_name(segment)}, not an object")
        trained = field_of(segment, "label", bool, "true or false", "a segment's label")
        pieces.append((text_of(segment, "text", "a segment's text"), trained))
    if not any(trained and text for text, trained in pieces):
        raise BadRow("no segment is to be trained")
    return Row(where, segments=tuple(pieces))


def _of_pair(fields: Mapping[str, object], columns: Columns, mapping: ColumnMapping, where: str) -> Row:
    """Return a row of Alpaca's instruction, input, output, under any names, or of TRL's prompt and completion as messages."""
    sides = (columns.instruction, "user"), (columns.response, "assistant")
    asked = fields.get(columns.instruction)
    if isinstance(asked, str) and _MESSAGES.match(asked):
        with suppress(BadRow):  # a question that only begins like messages
            fields = {**fields, columns.instruction: parsed(asked, columns.instruction)}
    if any(isinstance(fields.get(key), list) for key, _ in sides):
        if columns.database or (columns.input and fields.get(columns.input)):
            told = "is a list of messages, beside a column of the input or of a database"
            raise BadRow(f'"{columns.instruction}" {told}')
        both = []
        for key, role in sides:
            said = fields.get(key)
            if not isinstance(said, list) and not _MESSAGES.match(text_of(fields, key)):
                said = [{"role": role, "content": said}]
            both.append(turns_of(said, key, mapping))
        (prompt, _, unread), (turns, trained, more) = both
        row = _up_to_answer(Row(where, turns, trained, is_pair=True, unread=unread | more))
        row.messages, row.trained = [*prompt, *row.messages], [*[False] * len(prompt), *row.trained]
        return row
    asked, answered = text_of(fields, columns.instruction), text_of(fields, columns.response, may_be_blank=False)
    messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
    given, database = optional_text(fields, columns.input), optional_text(fields, columns.database)
    return Row(where, messages, [False, True], input=given, database=database, is_pair=True)


def _add_beside(row: Row, fields: Mapping[str, object], columns: Columns) -> None:
    """Add tools, template arguments and the system message from separate columns."""
    tools = parsed(columns.tools and fields.get(columns.tools), columns.tools) or ()
    tools = [parsed(tool, columns.tools) for tool in tools] if isinstance(tools, list) else tools
    if tools and not (isinstance(tools, list) and all(map(_has_name, tools))):
        raise BadRow(f'"{columns.tools}" is not a list of tools with names')
    column = columns.chat_template_kwargs
    kwargs = parsed(column and fields.get(column), column) or {}
    if not isinstance(kwargs, dict):
        raise BadRow(f'"{column}" is {type_name(kwargs)}, not an object')
    require_json(tools, columns.tools)
    require_json(kwargs, column)
    row.tools = tools
    row.kwargs = {name: value for name, value in kwargs.items() if value is not None}  # empty fields of a table
    if said := optional_text(fields, columns.system):
        if row.messages[0]["role"] == "system":
            raise BadRow(f'"{columns.system}" and the first message are both a system message')
        row.messages = [{"role": "system", "content": said}, *row.messages]
        row.trained = [False, *row.trained]


def _up_to_answer(row: Row) -> Row:
    """Drop the turns after the last answer, which cannot be trained."""
    answers = [number for number, turn in enumerate(row.messages) if turn["role"] == "assistant"]
    if not answers:
        raise BadRow("no assistant turn")
    if not any(row.trained):
        raise BadRow("no assistant turn is to be trained")
    for number in answers:
        turn = row.messages[number]
        if row.trained[number] and "tool_calls" not in turn and is_blank(turn["content"]):
            raise BadRow(f"{'the last' if number == answers[-1] else 'an earlier'} assistant turn is empty")
    if (count := answers[-1] + 1) < len(row.messages):
        row.messages, row.trained, row.unread = row.messages[:count], row.trained[:count], row.unread | {TRAILING}
    return row


# The turns of a conversation and their calls -------------------------------------------------------------------------


def turns_of(value: object, label: str, mapping: ColumnMapping) -> tuple[Turns, list[bool], Set[str]]:
    """Return turns for the chat template, which of them are trained, and the keys that are not read."""
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
    """Whether a turn has only a role and a text, which is the common case."""
    if type(turn) is not dict or len(turn) != 2:
        return False
    role, content = turn.get("role"), turn.get("content")
    return type(role) is str and role in _PLAIN_ROLES and type(content) is str and is_unicode(content)


def _turn(turn: Mapping[str, Any], mapping: ColumnMapping) -> tuple[dict[str, Any], bool, set[str]]:
    role_key = next((key for key in (mapping.role, "role") if key in turn), "from")
    content_key = next((key for key in (mapping.content, "content", "value") if turn.get(key) is not None), "content")
    said = text_of(turn, role_key, "a message's role")
    role = dict(mapping.roles).get(said) or ROLES.get(said)
    if role is None:
        told = f'a message has the role "{said[:40]}", which is not known'
        raise BadRow(f'{told}; name its meaning in "field_mapping.roles"')
    content = _joined(turn.get(content_key))
    more = {name: one for name, one in turn.items() if name not in (role_key, content_key) and one is not None}
    if role == CALL:
        role, content, more = "assistant", None, {**more, "tool_calls": _calls(content)}
    carried = _carried(more, role)
    weights = {name: more[name] for name in _WEIGHTS if name in more}
    for name, weight in weights.items():
        if weight not in (0, 1):
            raise BadRow(f'a message\'s "{name}" is {weight!r:.40}: only 0, 1, false and true are allowed')
    is_trained = role == "assistant" and all(one == (name != "masked") for name, one in weights.items())
    unread = {name for name, one in more.items() if name not in (*carried, *weights) and one not in ("", [], {})}
    if content is not None or "tool_calls" not in carried:
        beside = f" (beside {', '.join(sorted(unread))}, which nothing reads)" if unread and content is None else ""
        content = text_of({**turn, content_key: content}, content_key, f"a message's content{beside}")
    require_json(carried, "a message")
    return {"role": role, "content": content or "", **carried}, is_trained, unread


def _joined(content: object) -> object:
    """Return the content of a turn; a list of text parts is joined."""
    if not isinstance(content, list):
        return content
    for part in content:
        if not isinstance(part, dict):
            raise BadRow(f"a part of a message's content is {type_name(part)}, not an object")
        if (kind := part.get("type") or "text") != "text":
            raise BadRow(f'a message\'s content has a part of the type "{kind!s:.40}", but only text is trained')
    return "".join(text_of(part, "text", "a part of a message's content") for part in content)


def _calls(content: object) -> list[dict[str, Any]]:
    """Return the calls of a LLaMA-Factory turn, which has one call or a list of calls as JSON."""
    said = parsed(content, CALL)
    calls = said if isinstance(said, list) else [said]
    if not calls or not all(map(_has_name, calls)):
        raise BadRow('a message of the role "function_call" is not a call with its name as JSON')
    return calls


def _carried(more: Mapping[str, object], role: str) -> dict[str, object]:
    """Return the other keys of a turn that are used; empty ones count as missing."""
    if name := next(filter(more.get, UNUSED), ""):
        raise BadRow(f'a message has "{name}", but {UNUSED[name]}')
    for name, (kind, of) in _CARRIED.items():
        if more.get(name) and role != of == "assistant":
            raise BadRow(f'a message of the role "{role}" has "{name}", which only answers have')
        if name in more and not isinstance(more[name], kind):
            raise BadRow(f'a message\'s "{name}" is {type_name(more[name])}')
    calls: Any = more.get("tool_calls") or []
    if not all(map(_has_name, calls)):
        raise BadRow('a message\'s "tool_calls" is not a list of calls with names')
    return {name: more[name] for name, (_, of) in _CARRIED.items() if role == of and more.get(name)}


def mend_calls(turns: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> tuple[Turns, list[Any], Set[str]]:
    """Return turns and tools without the nulls that a table format adds, because all its objects have the same keys.

    In JSON Schema, only `default` and `const` may be null; an argument may be null if its tool's schema mentions null.
    Arguments that are missing, null or "" become {}. Dropped arguments are reported as unread.
    """
    tools, unread = [*map(_without_nulls, tools)], set[str]()
    parameters = {tool["name"]: _object(tool.get("parameters")) for tool in map(_function, tools)}

    def mended(call: Mapping[str, Any]) -> dict[str, Any]:
        function = _function(call)
        given = _arguments(function.get("arguments"))
        known = _object(parameters.get(function["name"], {}).get("properties"))
        kept = {name: one for name, one in given.items() if one is not None or "null" in json_text(known.get(name, ""))}
        unread.update([NULL_ARGUMENTS] if len(kept) < len(given) else [])
        outside = call if "function" in call else {}
        return {"type": "function", **outside, "function": {**function, "arguments": kept}}

    calling = ((turn, [*map(mended, turn.get("tool_calls", ()))]) for turn in turns)
    return [{**turn, "tool_calls": calls} if calls else {**turn} for turn, calls in calling], tools, unread


def _without_nulls(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return [*map(_without_nulls, schema)] if isinstance(schema, list) else schema
    kept = ((name, one) for name, one in schema.items() if one is not None or name in ("default", "const"))
    return {name: _without_nulls(one) for name, one in kept}


def _arguments(given: object) -> dict[str, Any]:
    """Return the arguments of a call, which may be an object or its JSON text."""
    value = parsed(given, "arguments")
    if isinstance(value, str):
        raise BadRow("arguments of a call are JSON text within JSON text: encode them once")
    if value is not None and not isinstance(value, dict):
        raise BadRow("arguments of a call are not an object")
    return value or {}


def _function(tool: object) -> dict[str, Any]:
    """Return the object with the name of a tool or call; {} if there is none."""
    return _object(_object(tool).get("function") or tool)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _has_name(tool: object) -> bool:
    name = _function(tool).get("name")
    return isinstance(name, str) and bool(name)


def beside_content(turn: Mapping[str, Any]) -> str:
    """Return the keys of a turn other than role and content, as JSON; "" for none."""
    return json_text({name: turn[name] for name in turn if name not in ("role", "content")}) if len(turn) > 2 else ""
