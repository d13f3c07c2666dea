"""Rows as they stand in a file, before anything is decided about them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from expert_cli.data.places import DataFile
from expert_cli.errors import InputError

Texts = Mapping[str, list[str | None]]
"""Columns, one text (or None) a row."""


class Piece(NamedTuple):
    """A piece of a data file: the rows that begin from `start` on and before `stop`, in bytes or in what its format counts.

    lines: how many lines the file has before it.
    """

    path: DataFile
    start: int = 0
    stop: int = sys.maxsize
    lines: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether it is all of its file."""
        return self.start == 0 and self.stop == sys.maxsize


Pieces = tuple[Piece, ...]
"""What is read at a time: whole files that are small, or one piece of a file."""


class RawRow(NamedTuple):
    """One row as it was read from `where`; `fault` says why it could not be read and is "" otherwise."""

    where: str
    fields: Mapping[str, object]
    fault: str = ""


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a file.

    texts: of each column of interest one text (or None) a row, valid Unicode; None where the rows hold anything else. raw:
    reads the same rows one by one. place: where the row of a number stands, counted from 0 in the block. lines: how many lines
    of its file the block is, 0 where rows are told by another number.
    """

    count: int
    texts: Texts | None
    raw: Callable[[], Iterable[RawRow]]
    place: Callable[[int], str]
    lines: int = 0

    @classmethod
    def of_rows(cls, rows: Sequence[RawRow]) -> Block:
        """Return rows that were read one by one as a block."""
        return cls(len(rows), None, lambda: rows, lambda number: rows[number].where)

    def after(self, count: int) -> Block:
        """Return the rows behind the first `count`, which may be none."""
        if not count:
            return self
        texts = self.texts and {name: column[count:] for name, column in self.texts.items()}
        return Block(
            self.count - count,
            texts,
            lambda: islice(self.raw(), count, None),
            lambda n: self.place(count + n),
            self.lines,
        )


class ColumnFilter:
    """Keeps of each row the columns of interest, and remembers the names of all."""

    def __init__(self, wanted: frozenset[str]) -> None:
        """Take the names of interest in small letters."""
        self._wanted = wanted
        self._by_shape: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._seen: dict[str, None] = {}

    @property
    def seen(self) -> list[str]:
        """Return the names of all columns met so far, in order."""
        return list(self._seen)

    def wants(self, name: str) -> bool:
        """Return whether a column of that name is of interest."""
        return name.casefold() in self._wanted

    def select(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of `names` that are of interest."""
        shape = tuple(names)
        kept = self._by_shape.get(shape)
        if kept is None:
            kept = tuple(filter(self.wants, shape))
            self._by_shape[shape] = kept
            self._seen.update(dict.fromkeys(shape))
        return kept

    def select_once(self, names: Sequence[str], what: str) -> tuple[str, ...]:
        """Return those of a table's columns that are of interest. Raises InputError: `what` names one of them twice."""
        kept = self.select(names)
        if len(set(kept)) < len(kept):
            repeated = next(name for name in kept if kept.count(name) > 1)
            raise InputError(f'{what} names "{repeated}" more than once', "Keep one of these columns.")
        return kept
