"""A raw row -> the one `Row` that everything after it knows: a conversation, a whole text, or segments.

One function a form of file. Nothing is turned into text that is not text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from expert_cli.config.run_config import ColumnMapping
from expert_cli.data.columns import Columns
from expert_cli.data.conversation import beside_content, has_name, mend_calls, turns_of
from expert_cli.data.field_checks import (
    BadRow,
    answer_of,
    field_of,
    is_blank,
    json_text,
    optional_text,
    parsed,
    require_json,
    text_of,
)
from expert_cli.utils.text import type_name

TRAILING = "turns after the last answer"


class RowExample(NamedTuple):
    """A row as a question: what is asked, what stands below it, the right answer, and where the row stands."""

    prompt: str
    input: str
    answer: str
    where: str


@dataclass(slots=True)  # not frozen: there are millions, and each would take three times as long to make
class Row:
    """What one row of a file means, and where it stands ("file:line"). One of messages, text and segments is there.

    messages: as chat templates read them; trained: which of them are answers that carry loss. input: what stands below the
    last question, which the template joins to it. text: a document that is written in a template already. segments: (text,
    trained) pieces of a document. is_pair: read from columns of question and answer. unread: fields of messages, and turns,
    that nothing reads.
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
    unread: Set[str] = frozenset()

    @property
    def is_whole_text(self) -> bool:
        """Whether it is written in a template already, so that nothing is put around it."""
        return not self.messages

    @property
    def answer(self) -> str:
        """What it trains: the last turn of its conversation with its calls, or the whole text."""
        if self.messages:
            return str(self.messages[-1]["content"]) + beside_content(self.messages[-1])
        return self.text or "".join(text for text, trained in self.segments if trained)

    @property
    def question(self) -> tuple[str, str]:
        """What it asks, and its input or what stands before the conversation; of a whole text all that it says."""
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
        """What the template is given beside the conversation, as JSON."""
        given = {"tools": self.tools, "chat_template_kwargs": self.kwargs}
        return {name: json_text(value) for name, value in given.items() if value}

    def content(self) -> tuple[str, ...]:
        """Return all that it says, roles and what is not trained included: two rows are repeats when this is equal."""
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
        """Return how many characters it says, prompt and answer together."""
        if not self.messages:
            return len(self.text) + sum(len(text) for text, _ in self.segments)
        beside = sum(map(len, self._beside().values()))
        return (
            beside + len(self.input) + sum(len(turn["content"]) + len(beside_content(turn)) for turn in self.messages)
        )

    def example(self) -> RowExample | None:
        """Return it as an example before a question, None where it is more than a question and an answer."""
        turns = [turn for turn in self.messages if turn["role"] not in ("system", "developer")]
        if [turn["role"] for turn in turns] != ["user", "assistant"] or any(map(beside_content, turns)):
            return None
        return RowExample(turns[0]["content"], self.input, turns[1]["content"], self.where)


def digest(said: str) -> bytes:
    """Return 16 bytes that are equal for equal texts."""
    return hashlib.blake2b(said.encode(), digest_size=16).digest()


def to_row(fields: Mapping[str, object], columns: Columns, mapping: ColumnMapping, where: str) -> Row:
    """Return what a raw row means. Raises BadRow."""
    for name in columns.media:
        if fields.get(name):
            raise BadRow(f'"{name}" is there, but text alone is trained')
    if columns.form == "text":
        return Row(where, text=answer_of(fields, columns.text))
    if columns.form == "segments":
        return _of_segments(fields, columns, where)
    row = (_of_messages if columns.form == "messages" else _of_pair)(fields, columns, mapping, where)
    if columns.tools or columns.chat_template_kwargs or columns.system:
        _add_beside(row, fields, columns)
    if row.tools or any("tool_calls" in turn for turn in row.messages):
        row.messages, row.tools, unread = mend_calls(row.messages, row.tools)
        row.unread |= unread
    return row


# By the form of the columns -----------------------------------------------------------------------------------------------


def _of_segments(fields: Mapping[str, object], columns: Columns, where: str) -> Row:
    """Pieces of a document that say whether they are trained: axolotl's input_output."""
    pieces = []
    for segment in field_of(fields, columns.segments, list, "a list of segments"):
        if not isinstance(segment, dict):
            raise BadRow(f"a segment is {type_name(segment)}, not an object")
        trained = field_of(segment, "label", bool, "true or false", "a segment's label")
        pieces.append((text_of(segment, "text", "a segment's text"), trained))
    if not any(trained and text for text, trained in pieces):
        raise BadRow("no segment is to be trained")
    return Row(where, segments=tuple(pieces))


def _of_messages(fields: Mapping[str, object], columns: Columns, mapping: ColumnMapping, where: str) -> Row:
    """A conversation: OpenAI's messages, ShareGPT's conversations, or the same as JSON text."""
    key = columns.messages
    turns, trained, unread = turns_of(field_of(fields, key, object, "a list of messages"), key, mapping)
    return _up_to_answer(Row(where, turns, trained, unread=unread))


def _of_pair(fields: Mapping[str, object], columns: Columns, mapping: ColumnMapping, where: str) -> Row:
    """Alpaca's instruction, input and output, whatever they are called.

    Or TRL's prompt and completion, which are messages: of these the completion's answers are trained.
    """
    sides = (columns.instruction, "user"), (columns.response, "assistant")
    if any(isinstance(fields.get(key), list) for key, _ in sides):
        if columns.database or (columns.input and fields.get(columns.input)):
            told = "is a list of messages, beside a column of the input or of a database"
            raise BadRow(f'"{columns.instruction}" {told}')
        both = (
            fields[key] if isinstance(fields.get(key), list) else [{"role": role, "content": text_of(fields, key)}]
            for key, role in sides
        )
        (prompt, _, unread), (turns, trained, more) = (
            turns_of(said, key, mapping) for said, (key, _) in zip(both, sides, strict=True)
        )
        row = _up_to_answer(Row(where, turns, trained, is_pair=True, unread=unread | more))
        row.messages, row.trained = [*prompt, *row.messages], [*[False] * len(prompt), *row.trained]
        return row
    asked, answered = text_of(fields, columns.instruction), answer_of(fields, columns.response)
    messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
    given, database = optional_text(fields, columns.input), optional_text(fields, columns.database)
    return Row(where, messages, [False, True], input=given, database=database, is_pair=True)


def _add_beside(row: Row, fields: Mapping[str, object], columns: Columns) -> None:
    """Add tools, arguments of the chat template and the system message that stand in columns of their own."""
    tools = parsed(columns.tools and fields.get(columns.tools), columns.tools) or ()
    if tools and not (isinstance(tools, list) and all(map(has_name, tools))):
        raise BadRow(f'"{columns.tools}" is not a list of tools with names')
    column = columns.chat_template_kwargs
    kwargs = parsed(column and fields.get(column), column) or {}
    if not isinstance(kwargs, dict):
        raise BadRow(f'"{column}" is {type_name(kwargs)}, not an object')
    require_json(tools, columns.tools)
    require_json(kwargs, column)
    row.tools = tools
    row.kwargs = {name: value for name, value in kwargs.items() if value is not None}  # of a table: empty fields
    if said := optional_text(fields, columns.system):
        if row.messages[0]["role"] == "system":
            raise BadRow(f'"{columns.system}" and the first message are both a system message')
        row.messages = [{"role": "system", "content": said}, *row.messages]
        row.trained = [False, *row.trained]


def _up_to_answer(row: Row) -> Row:
    """Leave out the turns after the last answer: nothing could train them."""
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
