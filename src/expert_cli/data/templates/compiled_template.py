"""A chat template compiled for a sequence of roles: constant pieces, and places that the contents of rows fill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

from expert_cli.data.templates.segment import Document, Segment


class Slot(NamedTuple):
    """A piece that rows fill in: constant text and the numbers of messages, in order. reason: as `Segment` has it."""

    parts: tuple[str | int, ...]
    trained: bool
    reason: str = ""


class PieceColumn(NamedTuple):
    """One piece of many documents: the same text in all of them, or the users' texts, one a document."""

    texts: str | list[str]
    control: bool
    trained: bool


@dataclass(frozen=True)
class CompiledTemplate:
    """The pieces of a conversation of some roles: what its last answer is asked with, and all of it.

    trims: how the template strips which messages.
    """

    prompt: tuple[Segment | Slot, ...]
    whole: tuple[Segment | Slot, ...]
    trims: dict[int, Callable[[str], str]]
    end_token: str

    def fill(self, contents: Sequence[str], *, with_answer: bool) -> Document:
        """Put the messages' contents in their places."""
        if self.trims:
            contents = [self.trims.get(number, str)(text) for number, text in enumerate(contents)]
        return tuple(
            piece
            if isinstance(piece, Segment)
            else Segment(
                "".join([p if isinstance(p, str) else contents[p] for p in piece.parts]),
                False,
                piece.trained,
                piece.reason,
            )
            for piece in (self.whole if with_answer else self.prompt)
        )

    def fill_columns(self, contents: Sequence[list[str]]) -> list[PieceColumn]:
        """Put the messages' contents, column by column, in their places: the documents of `fill` with their answers."""
        stripped = [
            [*map(self.trims[number], column)] if number in self.trims else column
            for number, column in enumerate(contents)
        ]
        return [
            PieceColumn(*piece[:3])
            if isinstance(piece, Segment)
            else PieceColumn(_joined(piece.parts, stripped), False, piece.trained)
            for piece in self.whole
        ]


def _joined(parts: tuple[str | int, ...], contents: Sequence[list[str]]) -> list[str]:
    """The texts of a slot, one a document."""
    numbers = [part for part in parts if isinstance(part, int)]
    if len(numbers) > 1:
        columns = [repeat(part) if isinstance(part, str) else contents[part] for part in parts]
        return ["".join(texts) for texts in zip(*columns, strict=False)]
    at = parts.index(numbers[0])
    before, after = ("".join(map(str, some)) for some in (parts[:at], parts[at + 1 :]))
    column = contents[numbers[0]]
    return [f"{before}{text}{after}" for text in column] if before or after else column
