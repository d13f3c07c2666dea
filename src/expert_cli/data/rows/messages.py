"""Rows of conversations: what their turns say, what else of them is carried, and which answers are trained."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from sys import getsizeof
from typing import TYPE_CHECKING, ClassVar

from expert_cli.data.rows.columnar import Example, Message, Rows
from expert_cli.data.rows.columns import ColumnNames, Columns, mapping_text
from expert_cli.data.rows.validation import BadRow, encodes, flag_of, text_of, type_name
from expert_cli.errors import InputError

if TYPE_CHECKING:
    from expert_cli.data.templates.segment import Document
    from expert_cli.data.templates.template import Template

_ROLES = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "human": "user",
    "gpt": "assistant",
    "tool": "tool",
}
"""The roles of a conversation, OpenAI's and ShareGPT's, and what they are here."""

_WEIGHTS: Mapping[str, bool] = {"weight": True, "train": True, "loss": True, "loss_mask": True, "masked": False}
"""Whether an answer is trained, as OpenAI, axolotl and others write it, and whether 1 or true says that it is."""
REASONING = ("reasoning_content", "thinking", "reasoning")
_CARRIED: Mapping[str, tuple[type, str]] = {
    **dict.fromkeys(REASONING, (str, "assistant")),
    "tool_calls": (list, "assistant"),
    "tool_call_id": (str, "tool"),
    "name": (str, "tool"),
}
"""What else of a turn reaches the chat template: what it must be, and the role whose turns have it; templates leave it out of
others."""
_NOT_CARRIED = ("function_call", "audio", "images", "image", "videos", "refusal", "prefix", "mask", "train_detail")
"""What changes what a turn says or trains, and cannot be expressed."""
_TURN_BYTES = 200
"""What a turn takes in memory beside its text."""


@dataclass
class MessageRows(Rows):
    """Conversations: a tuple of messages each, which ends with an assistant turn."""

    kind = "messages"
    roles = ("messages", "tools", "system")
    answer_role = "messages"
    masking_rule = rendered_rule = "5"
    is_whole_text = False
    example_row: ClassVar[Mapping[str, object]] = {
        "messages": [{"role": "user", "content": "How many?"}, {"role": "assistant", "content": "Four."}],
        "system": "Count.",
    }

    messages: list[tuple[Message, ...]] = field(default_factory=list)

    @classmethod
    def choose(cls, names: ColumnNames) -> Columns | None:
        column = names.mapped("messages") or names.usual("messages")
        instruction, response = names.usual("instruction"), names.usual("response")
        if column and instruction and response and not names.mapping.messages:
            raise InputError(
                f'{names.where}: rows hold both a conversation ("{column}") and a pair ("{instruction}", "{response}")',
                f'Write "field_mapping": {json.dumps({"messages": column})} or {mapping_text(instruction, response)}.',
            )
        return Columns(messages=column, tools=names.usual("tools"), system=names.usual("system")) if column else None

    def append(self, fields: Mapping[str, object], columns: Columns) -> None:
        """Take the turns up to the last one of the assistant, which is the answer; nothing could train those that follow."""
        key = columns.messages
        if fields.get(key) is None:
            raise BadRow(f'"{key}" is {"null" if key in fields else "missing"}')
        turns = fields[key]
        if not isinstance(turns, list):
            raise BadRow(f'"{key}" is {type_name(turns)}, not a list of messages')
        messages = [_message(turn, self.ignored) for turn in turns]
        answers = [number for number, message in enumerate(messages) if message.role == "assistant"]
        if not answers:
            raise BadRow("no assistant turn")
        if not any(messages[number].trained for number in answers):
            raise BadRow("no assistant turn is to be trained")
        last = messages[answers[-1]]
        if not last.content.strip() and "tool_calls" not in last.fields:
            raise BadRow("the last assistant turn is empty")
        end = answers[-1] + 1
        self.messages.append((*_beside(fields, columns, messages), *messages[:end]))
        self.trailing.append(len(messages) - end)

    def content(self, row: int) -> tuple[str, ...]:
        turns = self.messages[row]
        plain = (part for turn in turns for part in (turn.role, turn.content))
        more = (turn.fields for turn in turns if turn.fields)
        untrained = (f"{number} is not trained" for number, turn in enumerate(turns) if not turn.trained)
        return (*plain, *more, *untrained)

    def answer(self, row: int) -> str:
        return self.messages[row][-1].content + self.messages[row][-1].fields

    def question(self, row: int) -> tuple[str, str]:
        turns = self.messages[row][:-1]
        before = "\n".join(turn.content for turn in turns if turn.role in ("system", "tools"))
        asked = (turn for turn in turns if turn.role not in ("system", "tools"))
        said = (turn.content if turn.role == "user" else f"{turn.role}: {turn.content}{turn.fields}" for turn in asked)
        return "\n".join(said), before

    def lengths(self) -> list[int]:
        return [sum(len(turn.content) + len(turn.fields) for turn in turns) for turns in self.messages]

    def memory(self) -> int:
        turns = [turn for row in self.messages for turn in row]
        texts = chain(self.origins, (text for turn in turns for text in (turn.content, turn.fields)))
        return sum(map(getsizeof, texts)) + _TURN_BYTES * len(turns)

    def conversations(self, template: Template) -> Iterable[tuple[Message, ...]]:  # noqa: ARG002
        return self.messages

    def documents(self, template: Template, forms: dict[str, int]) -> list[Document]:  # noqa: ARG002
        return [template.conversation(turns, at) for turns, at in zip(self.messages, self.origins, strict=True)]

    def shot(self, row: int) -> Example | None:
        turns = [turn for turn in self.messages[row] if turn.role != "system"][:2]
        if [turn.role for turn in turns] != ["user", "assistant"] or any(turn.fields for turn in turns):
            return None
        return Example(turns[0].content, "", turns[1].content, self.origins[row])


def _beside(fields: Mapping[str, object], columns: Columns, messages: Sequence[Message]) -> Iterator[Message]:
    """The tools that may be called and the system message, where they stand in columns of their own."""
    tools = fields.get(columns.tools) if columns.tools else None
    if isinstance(tools, str):
        tools = _parsed(tools, columns.tools) if tools.strip() else None
    if tools:
        if not isinstance(tools, list) or not all(map(_has_name, tools)):
            raise BadRow(f'"{columns.tools}" is not a list of tools with names')
        yield Message("tools", _written(tools, columns.tools))
    if columns.system and fields.get(columns.system) not in (None, ""):
        if messages[0].role == "system":
            raise BadRow(f'"{columns.system}" and the first message are both a system message')
        yield Message("system", text_of(fields, columns.system))


def _has_name(tool: object) -> bool:
    function = tool.get("function") or tool if isinstance(tool, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str) and bool(function["name"])


def _message(turn: object, ignored: set[str]) -> Message:
    if not isinstance(turn, dict):
        raise BadRow(f"a message is {type_name(turn)}, not an object")
    role_key, content_key = ("role", "content") if "role" in turn else ("from", "value")
    role = text_of(turn, role_key, "a message's role")
    if role not in _ROLES:
        raise BadRow(f'a message has the role "{role[:40]}", which is not trained')
    role = _ROLES[role]
    if len(turn) == 2 and content_key in turn:  # the usual turn says nothing else
        return Message(role, text_of(turn, content_key, "a message's content"))
    more = _beside_what_is_said(turn, role, content_key)
    carried = _carried(more, role)
    trained = _is_trained(more, role)
    ignored.update(
        name for name, value in more.items() if name not in (*carried, *_WEIGHTS) and value not in ("", [], {})
    )
    if turn.get(content_key) is None and "tool_calls" in carried:
        return Message(role, "", trained, _written(carried, "a message"))
    content = text_of(turn, content_key, "a message's content")
    return Message(role, content, trained, _written(carried, "a message") if carried else "")


def _beside_what_is_said(turn: Mapping[str, object], role: str, content_key: str) -> dict[str, object]:
    """What a turn has beside its role and content, OpenAI's and ShareGPT's, which must not contradict each other."""
    sender = turn.get("from")
    known = isinstance(sender, str) and sender in _ROLES  # else it is a name
    if known and _ROLES[str(sender)] != role:
        raise BadRow('a message\'s "from" is not its "role"')
    for name in ("content", "value"):
        if turn.get(name) not in (None, turn.get(content_key)):
            raise BadRow(f'a message\'s "{name}" is not its "{content_key}"')
    said = ("role", "content", "value", *(["from"] if known else []))
    return {name: value for name, value in turn.items() if name not in said and value is not None}


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
    if isinstance(calls, list) and not all(map(_has_name, calls)):
        raise BadRow('a message\'s "tool_calls" is not a list of calls with names')
    return {name: more[name] for name, (_, of) in _CARRIED.items() if role == of and more.get(name)}


def _is_trained(more: Mapping[str, object], role: str) -> bool:
    """Whether a turn carries loss, as its weight or another of these fields says."""
    said = {
        name: flag_of(more[name], f'a message\'s "{name}"') == kept for name, kept in _WEIGHTS.items() if name in more
    }
    for name, trained in said.items():
        if trained and role != "assistant":
            raise BadRow(f'a message of the role "{role}" has "{name}": {more[name]!r}, but only answers are trained')
    return all(said.values())


def _parsed(text: str, key: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRow(f'"{key}" is not JSON') from error
    return value


def _written(value: object, label: str) -> str:
    """A value as JSON. Fields of Parquet may hold what JSON has no word for."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadRow(f"{label} holds what JSON cannot") from error
    if not encodes(text):
        raise BadRow(f"{label} is not Unicode text (half of a surrogate pair)")
    return text
