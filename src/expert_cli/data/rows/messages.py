"""Rows of conversations: what their turns say, what else of them is carried, and which answers are trained."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from sys import getsizeof
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar

from expert_cli.data.rows.columnar import BESIDE, KWARGS, TOOLS, Example, Message, Rows
from expert_cli.data.rows.columns import ColumnNames, Columns, mapping_text
from expert_cli.data.rows.forms import MESSAGE_FORMS, Form
from expert_cli.data.rows.turn import has_name, parsed, read_turns, written
from expert_cli.data.rows.validation import BadRow, text_of
from expert_cli.errors import InputError
from expert_cli.utils.text import type_name

if TYPE_CHECKING:
    from expert_cli.data.templates.segment import Document
    from expert_cli.data.templates.template import Template

_TURN_BYTES = 200
"""What a turn takes in memory beside its text."""
_BEFORE = ("system", "developer", *BESIDE)
"""The roles that ask nothing."""
Conversation = tuple[Message, ...]


@dataclass
class MessageRows(Rows):
    """Conversations: a tuple of messages each, which ends with an assistant turn."""

    kind = "messages"
    roles = ("messages", "tools", "system", "parallel_tool_calls", KWARGS)
    answer_role = "messages"
    is_whole_text = False
    row_forms: ClassVar[Mapping[str, Form]] = MESSAGE_FORMS

    messages: list[Conversation] = field(default_factory=list)

    @classmethod
    def choose(cls, names: ColumnNames) -> Columns | None:
        column = names.mapped("messages") or names.usual("messages")
        instruction, response = names.usual("instruction"), names.usual("response")
        if column and instruction and response and not names.mapping.messages:
            raise InputError(
                f'{names.where}: rows hold both a conversation ("{column}") and a pair ("{instruction}", "{response}")',
                f'Write "field_mapping": {json.dumps({"messages": column})} or {mapping_text(instruction, response)}.',
            )
        beside: dict[str, Any] = {role: names.named_or_usual(role) for role in ("tools", "system")}
        beside |= {role: names.usual(role) for role in ("parallel_tool_calls", KWARGS)}
        return Columns(messages=column, turns=names.turns(), **beside) if column else None

    def append(self, fields: Mapping[str, object], columns: Columns) -> None:
        """Take the turns up to the last one of the assistant, which is the answer."""
        key = columns.messages
        if fields.get(key) is None:
            raise BadRow(f'"{key}" is {"null" if key in fields else "missing"}')
        messages = read_turns(fields[key], key, columns.turns, self.ignored)
        _require_single_calls(fields, columns, messages)
        turns = up_to_answer(messages)
        self.messages.append((*beside(fields, columns, messages), *turns))
        self.trailing.append(len(messages) - len(turns))

    def content(self, row: int) -> tuple[str, ...]:
        return said_in(self.messages[row])

    def answer(self, row: int) -> str:
        return self.messages[row][-1].content + self.messages[row][-1].fields

    def question(self, row: int) -> tuple[str, str]:
        turns = self.messages[row][:-1]
        before = "\n".join(turn.content for turn in turns if turn.role in _BEFORE)
        asked = (turn for turn in turns if turn.role not in _BEFORE)
        said = (turn.content if turn.role == "user" else f"{turn.role}: {turn.content}{turn.fields}" for turn in asked)
        return "\n".join(said), before

    def lengths(self) -> list[int]:
        return list(map(length_of, self.messages))

    def memory(self) -> int:
        return sum(map(getsizeof, self.origins)) + memory_of(self.messages)

    def conversations(self, template: Template) -> Iterable[Conversation]:  # noqa: ARG002
        return self.messages

    def documents(self, template: Template, forms: dict[str, int]) -> list[Document]:  # noqa: ARG002
        return [template.conversation(turns, at) for turns, at in zip(self.messages, self.origins, strict=True)]

    def shot(self, row: int) -> Example | None:
        turns = [turn for turn in self.messages[row] if turn.role not in ("system", "developer")][:2]
        if [turn.role for turn in turns] != ["user", "assistant"] or any(turn.fields for turn in turns):
            return None
        return Example(turns[0].content, "", turns[1].content, self.origins[row])


def said_in(turns: Conversation) -> tuple[str, ...]:
    """Return all that a conversation says, and which turns are not trained: two that say the same are repeats."""
    plain = (part for turn in turns for part in (turn.role, turn.content))
    more = (turn.fields for turn in turns if turn.fields)
    untrained = (f"{number} is not trained" for number, turn in enumerate(turns) if turn.trained is False)
    return (*plain, *more, *untrained)


def length_of(turns: Conversation) -> int:
    """Return how many characters a conversation says."""
    return sum(len(turn.content) + len(turn.fields) for turn in turns)


def memory_of(conversations: Iterable[Conversation]) -> int:
    """Return about how many bytes conversations take in memory."""
    turns = [turn for row in conversations for turn in row]
    texts = chain.from_iterable((turn.content, turn.fields) for turn in turns)
    return sum(map(getsizeof, texts)) + _TURN_BYTES * len(turns)


def up_to_answer(messages: Sequence[Message]) -> Conversation:
    """Return the turns up to the last one of the assistant; nothing could train those that follow. Raises BadRow."""
    answers = [number for number, message in enumerate(messages) if message.role == "assistant"]
    if not answers:
        raise BadRow("no assistant turn")
    if all(messages[number].trained is False for number in answers) and not any(turn.trained for turn in messages):
        raise BadRow("no assistant turn is to be trained")
    last = messages[answers[-1]]
    if not last.content.strip() and "tool_calls" not in last.fields:
        raise BadRow("the last assistant turn is empty")
    return tuple(messages[: answers[-1] + 1])


def beside(fields: Mapping[str, object], columns: Columns, messages: Sequence[Message]) -> Iterator[Message]:
    """Yield tools, arguments of the chat template and the system message that stand in columns of their own. Raises BadRow."""
    tools = fields.get(columns.tools) if columns.tools else None
    if isinstance(tools, str):
        tools = parsed(tools, columns.tools) if tools.strip() else None
    if tools:
        if not isinstance(tools, list) or not all(map(has_name, tools)):
            raise BadRow(f'"{columns.tools}" is not a list of tools with names')
        yield Message(TOOLS, written(tools, columns.tools))
    if given := _kwargs(fields, columns.chat_template_kwargs):
        yield Message(KWARGS, written(given, columns.chat_template_kwargs))
    if columns.system and fields.get(columns.system) not in (None, ""):
        if messages and messages[0].role == "system":
            raise BadRow(f'"{columns.system}" and the first message are both a system message')
        yield Message("system", text_of(fields, columns.system))


def _kwargs(fields: Mapping[str, object], column: str) -> dict[str, object]:
    """What a row gives its chat template; a field of Parquet that a row does not have is null there."""
    given = fields.get(column) if column else None
    if isinstance(given, str):
        given = parsed(given, column) if given.strip() else None
    if not isinstance(given, (dict, NoneType)):
        raise BadRow(f'"{column}" is {type_name(given)}, not an object')
    return {name: value for name, value in (given or {}).items() if value is not None}


def _require_single_calls(fields: Mapping[str, object], columns: Columns, messages: Sequence[Message]) -> None:
    """Refuse a turn of several calls in a row that says there are none."""
    parallel = fields.get(columns.parallel_tool_calls) if columns.parallel_tool_calls else None
    if parallel is None:
        return
    if not isinstance(parallel, bool):
        raise BadRow(f'"{columns.parallel_tool_calls}" is {type_name(parallel)}, not true or false')
    calls = (json.loads(message.fields).get("tool_calls") or () for message in messages if message.fields)
    if not parallel and any(len(called) > 1 for called in calls):
        raise BadRow(f'"{columns.parallel_tool_calls}" is false, but a turn has several calls')
