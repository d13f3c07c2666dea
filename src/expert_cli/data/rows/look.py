"""A look at pieces of a source: each of its rows is judged, by the columns that the names of its rows tell."""

from __future__ import annotations

import collections
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from expert_cli.config.run_config import DataConfig, Deduplicate, RowFilters
from expert_cli.data.formats.raw_row import Block, ColumnFilter, Piece, Pieces
from expert_cli.data.formats.registry import read_blocks
from expert_cli.data.located import Located
from expert_cli.data.rows.block_check import Checked, check_block
from expert_cli.data.rows.cache import RowCache
from expert_cli.data.rows.columnar import RowReport, Rows
from expert_cli.data.rows.columns import Columns, names_of_interest
from expert_cli.data.rows.kinds import choose_columns
from expert_cli.data.rows.sampling import content_rank
from expert_cli.data.rows.validation import NOT_TRAINED, WeightValues
from expert_cli.errors import InputError

ALL_ROWS = range(sys.maxsize)
Refused = Callable[[Rows], Mapping[int, str]]
"""The rows, by their numbers, that whatever comes after cannot use, each with the reason."""


@dataclass(frozen=True)
class Judge:
    """How the rows of one source are judged.

    refused: what is bad about rows that look good, as a template sees it. ranked: rank the good rows. rare: columns that are
    not read, as hardly any row has them; unread: those called weight that hold something else.
    """

    located: Located
    data: DataConfig
    refused: Refused | None
    ranked: bool
    rare: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()

    def columns(self, names: Sequence[str]) -> Columns:
        """Return the columns by these names. Raises InputError: they do not tell."""
        known = [name for name in names if name not in self.rare]
        columns = choose_columns(known, self.data.mapping, str(self.located))
        return replace(columns, weight="") if columns.weight in self.unread else columns

    def names(self, known: Sequence[str] = ()) -> ColumnFilter:
        """Return what keeps the columns of interest, and knows these names already."""
        names = ColumnFilter(names_of_interest(self.data.mapping))
        for name in known:
            names.select([name])
        return names


@dataclass
class PieceLook:
    """What was seen of pieces of a source that are read together.

    rows: which of their rows were looked at. size: about how many bytes they are. rare: see `Judge`. names: of all columns.
    columns: those that were read; None: the names do not tell. kept: bool [rows], whether each is good and passes the filters
    of length. ranks, digests: 16 bytes for each of these, where asked for. fields: of messages, that nothing reads. refused:
    how many rows are bad by the template alone. cache: the good rows, where they are few. lines: how many of a file were read.
    """

    pieces: Pieces
    rows: range
    size: int
    cache: RowCache
    rare: frozenset[str]
    names: list[str] = field(default_factory=list)
    columns: Columns | None = None
    kept: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    ranks: bytearray = field(default_factory=bytearray)
    digests: bytearray = field(default_factory=bytearray)
    report: RowReport = field(default_factory=RowReport)
    fields: set[str] = field(default_factory=set)
    weights: WeightValues = field(default_factory=WeightValues)
    refused: int = 0
    lines: int = 0


def source_blocks(pieces: Sequence[Piece], names: ColumnFilter, rows: range = ALL_ROWS) -> Iterator[tuple[Block, int]]:
    """Yield the rows of a source that are in `rows`, in blocks, each with the number of its first among these."""
    read = 0
    for piece in pieces:
        if read == rows.stop:
            return
        for block in read_blocks(piece, names, rows.stop - read):
            before = max(rows.start - read, 0)
            if before <= block.count:
                yield block.after(before), max(read - rows.start, 0)
            read += block.count


class Held(NamedTuple):
    """Pieces that are read together, which of their rows are in the source's slice, and about how many bytes they are."""

    pieces: Pieces
    rows: range
    size: int


def scan_pieces(judge: Judge, held: Held, *, known: Sequence[str] = (), room: int = 0) -> PieceLook:
    """Judge the rows of pieces. known: names of the source's other columns. room: bytes of rows to keep.

    Rows are judged by the names so far; where a later one changes the choice, all of them again, by all names.
    """
    names = judge.names(known)
    look = None
    while look is None:
        cache = RowCache([piece.path for piece in held.pieces], room, held.size)
        look = _judged(judge, PieceLook(held.pieces, held.rows, held.size, cache, judge.rare), names)
    return look


def _judged(judge: Judge, look: PieceLook, names: ColumnFilter) -> PieceLook | None:
    """The look, None if what turned up late changed what was decided for earlier rows."""
    known, kept = -1, []
    blocks = source_blocks(look.pieces, names, look.rows)
    for block, first in blocks:
        if len(names.seen) != known:
            known = len(names.seen)
            before, look.columns = look.columns, None
            with suppress(InputError):  # these names do not tell; others may turn up
                look.columns = judge.columns(names.seen)
            if look.columns != before and look.report.read:
                collections.deque(blocks, maxlen=0)  # for the rest of the names
                return None
        look.report.read += block.count
        look.lines += block.lines
        if look.columns:
            kept.append(_kept(judge, block, first, look.columns, look))
        elif block.texts is None:  # a row that cannot be read is bad, whatever the columns are
            for row in block.raw():
                if row.fault:
                    look.report.drop(row.fault, row.where)
    look.names = names.seen
    look.kept = np.concatenate([look.kept, *kept])
    return look


def _kept(judge: Judge, block: Block, first: int, columns: Columns, look: PieceLook) -> NDArray[np.bool_]:
    """Judge the rows of a block, whose own first row is number `first`."""
    checked = check_block(block, columns, first, look.weights, judge.data.schema_prompt)
    if judge.refused and (reasons := judge.refused(checked.rows)):
        checked = checked.without(reasons)
        look.refused += len(reasons)
    if judge.rare:
        checked = checked.without(_with_rare(block, first, checked, judge.rare))
    look.cache.add(checked)
    look.fields |= checked.rows.ignored
    look.report.trailing += sum(checked.rows.trailing)
    if checked.untrained:
        look.report.filtered[NOT_TRAINED] += checked.untrained
    for where, reason in checked.bad:
        look.report.drop(reason, where)
    passing = _long_enough(checked.rows, judge.data.filters, look.report)
    kept = np.zeros(block.count, np.bool_)
    kept[checked.numbers[passing] - first] = True
    for row in passing if judge.ranked or judge.data.filters.deduplicate != "off" else ():
        look.digests += _digest(checked.rows, row, judge.data.filters.deduplicate)
        if judge.ranked:
            look.ranks += content_rank(checked.rows.content(row), judge.data.seed)
    return kept


def _long_enough(rows: Rows, filters: RowFilters, report: RowReport) -> Sequence[int]:
    """The numbers of the rows that pass the filters of length."""
    if filters == RowFilters(deduplicate=filters.deduplicate):
        return range(len(rows))
    kept: list[int] = []
    for row, length in enumerate(rows.lengths()):
        if reason := filters.reason(length):
            report.leave_out(reason, rows.origins[row], rows.content(row))
        else:
            kept.append(row)
    return kept


def _with_rare(block: Block, first: int, checked: Checked, rare: frozenset[str]) -> dict[int, str]:
    """Which good rows have columns that hardly any row has: as who wrote them meant it, they are of another kind."""
    odd: dict[int, str] = {}
    for number, row in enumerate(block.raw(), first):
        name = next((name for name in row.fields if name in rare and row.fields[name] is not None), "")
        if name:
            odd[number] = f'"{name}" stands in hardly any other row, and is not read'
    return {at: odd[number] for at, number in enumerate(checked.numbers.tolist()) if number in odd}


def _digest(rows: Rows, row: int, by: Deduplicate) -> bytes:
    """A hash of what must not stand twice, b"" if anything may."""
    if by == "off":
        return b""
    texts = rows.content(row) if by == "row" else (rows.answer(row),)
    return hashlib.blake2b(json.dumps(texts).encode(), digest_size=16).digest()
