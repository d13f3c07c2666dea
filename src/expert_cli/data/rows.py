"""The form in which rows travel between the reader and the template: columns of text, never one object a row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

RowKind = Literal["pair", "messages", "text"]


@dataclass(frozen=True)
class Message:
    """One turn of a conversation; role is "system", "user" or "assistant"."""

    role: str
    content: str


@dataclass
class Rows:
    """Rows of one kind, column by column; all lists of a kind have the same length.

    pair: instruction, input ("" where there is none), response. messages: one tuple of messages a row, ending with an
    assistant turn. text: whole documents. `origins` has one "file:line" (or "dataset row N") a row, for error messages.
    """

    kind: RowKind
    instruction: list[str] = field(default_factory=list)
    input: list[str] = field(default_factory=list)
    response: list[str] = field(default_factory=list)
    messages: list[tuple[Message, ...]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.origins)


@dataclass
class RowReport:
    """What became of the rows that were read: how many are good, how many were left out for which reason."""

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    mapping: str = ""

    def drop(self, reason: str, where: str, *, keep_examples: int = 5) -> None:
        """Count one row left out; the first few are kept as "where: reason"."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        if len(self.examples) < keep_examples:
            self.examples.append(f"{where}: {reason}")
