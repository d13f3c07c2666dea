"""The rows that are taken, once that is decided, read section by section."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from expert_cli.data.formats.raw_row import ColumnFilter, Pieces
from expert_cli.data.located import Located
from expert_cli.data.rows.block_check import Checked, check_block
from expert_cli.data.rows.cache import RowCache
from expert_cli.data.rows.columnar import RowReport, Rows
from expert_cli.data.rows.columns import Columns
from expert_cli.data.rows.kinds import kind_of
from expert_cli.data.rows.look import source_blocks
from expert_cli.errors import InputError
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig

Split = Literal["train", "validation"]


@dataclass(frozen=True)
class Section:
    """Pieces of a source that are read together.

    rows: which of their rows are in the slice; first: the number that the first of them has there; count: how many these are.
    size: about how many bytes are read. kept: the good rows, where they are few; their numbers count from the first.
    """

    pieces: Pieces
    rows: range
    first: int
    count: int
    size: int
    kept: RowCache


@dataclass(frozen=True)
class SelectedSource:
    """One source, decided.

    columns: those that are read. start: the number of the first row of its slice, from 0 over its files. copies: int32
    [rows of the slice], how often each row is taken; 0 = bad, filtered out, not drawn, or on the other side of the split.
    schema_prompt: what questions are shown of their database.
    """

    located: Located
    columns: Columns
    start: int
    copies: NDArray[np.int32]
    sections: tuple[Section, ...]
    schema_prompt: SchemaPromptConfig | None = None

    def __len__(self) -> int:
        """Return how many rows are taken, repeats counted."""
        return int(self.copies.sum())

    def rows(self, section: Section, taken: NDArray[np.bool_]) -> Iterator[Rows]:
        """Yield those of a section's rows that are taken, bool [rows of the section].

        Raises InputError if the file is not what it was when it was scanned.
        """
        kept = section.kept.blocks()
        for checked in self._read_again(section, taken) if kept is None else kept:
            wanted = taken[checked.numbers]
            if wanted.any():
                yield checked.rows if wanted.all() else checked.rows.take(np.flatnonzero(wanted).tolist())

    def _read_again(self, section: Section, taken: NDArray[np.bool_]) -> Iterator[Checked]:
        """Yield the blocks of a section that hold rows that are taken."""
        columns = ColumnFilter(frozenset(name.casefold() for name in self.columns.read()))
        changed = InputError(f"{self.located}: the files changed while they were read", "Start again.")
        rows = range(section.rows.start, section.rows.start + section.count)
        read = 0
        for block, first in source_blocks(section.pieces, columns, rows):
            read = first + block.count
            due = taken[first:read]
            if not due.any():
                continue
            checked = check_block(block, self.columns, first, schema_prompt=self.schema_prompt)
            if taken[checked.numbers].sum() != due.sum():
                raise changed
            yield checked
        if read != len(taken):
            raise changed


class Reading(NamedTuple):
    """A section of a source that is read for the rows that are taken more often than `turn` times."""

    source: SelectedSource
    turn: int
    section: Section

    @property
    def taken(self) -> NDArray[np.bool_]:
        """Whether each row of the section is read."""
        first = self.section.first
        return self.source.copies[first : first + self.section.count] > self.turn

    def rows(self) -> Iterator[Rows]:
        """Yield these rows; raises what `SelectedSource.rows` does."""
        yield from self.source.rows(self.section, self.taken)


def readings(sources: Sequence[SelectedSource]) -> list[Reading]:
    """Return what is read: sources in order, all sections of one as often as its most frequent row is taken."""
    return [
        Reading(source, turn, section)
        for source in sources
        for turn in range(int(source.copies.max(initial=0)))
        for section in source.sections
    ]


@dataclass(frozen=True)
class RowSelection:
    """All sources, decided. `validation` is None where none evaluate; split-off rows are counted in `train_report`."""

    train: tuple[SelectedSource, ...]
    validation: tuple[SelectedSource, ...] | None
    train_report: RowReport
    validation_report: RowReport | None

    @property
    def replayed(self) -> int:
        """How many training rows are those of an earlier training."""
        return sum(len(source) for source in self.train if source.located.spec.share)

    def sources(self, split: Split) -> tuple[SelectedSource, ...]:
        """Return the sources of a split; none where none evaluate."""
        return self.train if split == "train" else self.validation or ()

    def readings(self, split: Split) -> list[Reading]:
        """Return what is read of a split, in order."""
        return readings(self.sources(split))


def batches(sources: Sequence[SelectedSource]) -> Iterator[Rows]:
    """Yield the rows that are taken, reading by reading. Raises InputError: a file is not what it was when it was scanned."""
    for reading in readings(sources):
        yield from reading.rows()


def all_rows(sources: Sequence[SelectedSource]) -> Rows:
    """Return the rows of `batches`, which raises what this does, all at once."""
    rows = kind_of(sources[0].columns)()
    for batch in batches(sources):
        rows.extend(batch, range(len(batch)))
    return rows
