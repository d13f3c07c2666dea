"""The form in which rows travel between the reader and the template: columns of text, never one object a row."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from itertools import chain
from sys import getsizeof
from typing import Literal

RowKind = Literal["pair", "messages", "text"]
_TURN_BYTES = 200
"""What a turn takes in memory beside its text."""


@dataclass(frozen=True)
class Message:
    """One turn of a conversation; role is "system", "user", "assistant" or "tool".

    trained: False for an answer that carries no loss. fields: what else the turn has that chat templates read
    (reasoning_content, tool_calls, tool_call_id, name), as JSON, "" = nothing. A first turn of the role "tools" is none of
    the conversation: its content is the JSON list of the tools that the assistant may call.
    """

    role: str
    content: str
    trained: bool = True
    fields: str = ""


@dataclass
class Rows:
    """Rows of one kind, column by column; all lists of a kind have the same length.

    pair: instruction, input ("" where there is none), response. messages: one tuple of messages a row, ending with an
    assistant turn. text: whole documents. `origins` has one "file:line" (or "file:row N") a row, for error messages.
    `ignored`: fields of messages that were not read; `trailing`: of each conversation, how many turns after its last answer.
    """

    kind: RowKind
    instruction: list[str] = field(default_factory=list)
    input: list[str] = field(default_factory=list)
    response: list[str] = field(default_factory=list)
    messages: list[tuple[Message, ...]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)
    ignored: set[str] = field(default_factory=set)
    trailing: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.origins)

    def columns(self) -> list[list[str]]:
        """Return the columns of text that this kind fills, in reading order; none for messages."""
        if self.kind == "pair":
            return [self.instruction, self.input, self.response]
        return [self.text] if self.kind == "text" else []

    def content(self, row: int) -> tuple[str, ...]:
        """Return all text of one row, roles included: two rows are repeats when this is equal."""
        if self.kind == "messages":
            turns = self.messages[row]
            plain = tuple(part for turn in turns for part in (turn.role, turn.content))
            more = (turn.fields for turn in turns if turn.fields)
            return (
                *plain,
                *more,
                *(f"{number} is not trained" for number, turn in enumerate(turns) if not turn.trained),
            )
        return tuple(column[row] for column in self.columns())

    def answer(self, row: int) -> str:
        """Return what one row trains: its response, the last turn of its conversation with its calls, or its whole text."""
        if self.kind == "messages":
            return self.messages[row][-1].content + self.messages[row][-1].fields
        return (self.response if self.kind == "pair" else self.text)[row]

    def characters(self, row: int) -> int:
        """Return the length of a row's text, prompt and answer together."""
        if self.kind == "messages":
            return sum(len(turn.content) + len(turn.fields) for turn in self.messages[row])
        return sum(len(column[row]) for column in self.columns())

    def lengths(self) -> list[int]:
        """Return the length of every row's text."""
        if self.kind == "messages":
            return [self.characters(row) for row in range(len(self))]
        return [sum(lengths) for lengths in zip(*(map(len, column) for column in self.columns()), strict=True)]

    def memory(self) -> int:
        """Return about how many bytes the rows take in memory."""
        turns = [turn for row in self.messages for turn in row]
        texts = chain(self.origins, (text for turn in turns for text in (turn.content, turn.fields)), *self.columns())
        return sum(map(getsizeof, texts)) + _TURN_BYTES * len(turns)

    def extend(self, other: Rows, rows: Iterable[int]) -> None:
        """Append the numbered rows of `other`, which is of the same kind, in the order given."""
        numbers = list(rows)
        for mine, theirs in zip(self.columns(), other.columns(), strict=True):
            mine.extend(theirs[row] for row in numbers)
        if self.kind == "messages":
            self.messages.extend(other.messages[row] for row in numbers)
            self.trailing.extend(other.trailing[row] for row in numbers)
        self.origins.extend(other.origins[row] for row in numbers)
        self.ignored |= other.ignored

    def without(self, rows: Container[int]) -> Rows:
        """Return the rows but for the numbered ones."""
        kept = Rows(self.kind)
        kept.extend(self, (row for row in range(len(self)) if row not in rows))
        return kept


@dataclass
class RowReport:
    """What became of the rows that were read.

    `dropped`: bad rows by reason, the first few named in `examples`. `filtered`: good rows that a filter of the manifest
    leaves out, or that say they are not to be trained, by reason. `mapping`: which column became what; `input_column`: the
    one that became the input. `ignored`: columns, and fields of messages ("messages[].id"), that nothing reads. `trailing`:
    how many turns stand after the last answer of their conversation.
    """

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    mapping: str = ""
    input_column: str = ""
    filtered: dict[str, int] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    trailing: int = 0

    def unread(self) -> list[str]:
        """Return what nothing reads: columns, fields of messages, turns after the last answer."""
        return [*self.ignored, *([f"turns after the last answer: {self.trailing}"] if self.trailing else [])]

    def drop(self, reason: str, where: str, *, keep_examples: int = 5) -> None:
        """Count one bad row; the first few are kept as "where: reason"."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        if len(self.examples) < keep_examples:
            self.examples.append(f"{where}: {reason}")

    def count_filtered(self, reason: str, count: int = 1) -> None:
        """Count good rows that are left out for a reason."""
        self.filtered[reason] = self.filtered.get(reason, 0) + count

    def add(self, other: RowReport, *, keep_examples: int = 5) -> None:
        """Add the counts of another source; its mapping is appended where it differs."""
        self.read += other.read
        self.trailing += other.trailing
        for mine, theirs in ((self.dropped, other.dropped), (self.filtered, other.filtered)):
            for reason, count in theirs.items():
                mine[reason] = mine.get(reason, 0) + count
        self.input_column = self.input_column or other.input_column
        self.ignored = list(dict.fromkeys([*self.ignored, *other.ignored]))
        self.examples = (self.examples + other.examples)[:keep_examples]
        if other.mapping not in self.mapping.split("; "):
            self.mapping = f"{self.mapping}; {other.mapping}" if self.mapping else other.mapping
