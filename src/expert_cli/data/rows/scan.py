"""A first look at one source: the looks at its pieces, put together.

Columns are chosen by the names of all columns, and a name may turn up in the last row. Pieces that were judged by the names of
some are judged again, by all; all of them are where a column called weight turns out to hold no flags.
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from expert_cli.config.run_config import DataConfig
from expert_cli.config.splits import parse_split
from expert_cli.data.formats.registry import lines_in, pieces_of
from expert_cli.data.located import Located
from expert_cli.data.places import DataFile, size_of
from expert_cli.data.rows.columnar import RowReport
from expert_cli.data.rows.columns import Columns
from expert_cli.data.rows.kinds import kind_of
from expert_cli.data.rows.look import ALL_ROWS, Held, Judge, PieceLook, Refused, scan_pieces, source_blocks
from expert_cli.data.rows.validation import BAD_SHARE, WeightValues
from expert_cli.errors import InputError

PIECE_BYTES = 64 << 20
"""Of what a source is looked at and encoded at a time; a shard of a store holds rows of no more than that."""
_OTHER_TEMPLATE = 'Another base model, "prompt_template" or "chat_template_path" may write these rows; or mend them.'


@dataclass(frozen=True)
class SourcePieces:
    """The pieces of a source that hold rows of its slice.

    start: the number of the first row of the slice, from 0 over the source's files. names: of columns that are known by then.
    """

    held: tuple[Held, ...]
    start: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourceScan:
    """What was seen of one source.

    start: the number of the first row of its slice. kept: bool [rows of the slice], whether each is good and passes the filters
    of length. ranks, digests: 16 bytes for each of these, two uint64, where they are asked for.
    """

    start: int
    looks: Sequence[PieceLook]
    columns: Columns
    report: RowReport
    kept: NDArray[np.bool_]
    ranks: NDArray[np.uint64]
    digests: NDArray[np.uint64]


class _TooManyBad(InputError):
    """More than 1 % of a source's rows."""

    def __init__(self, message: str, bad: int, refused: int) -> None:
        hint = f"Mend these rows, or take them out; up to {BAD_SHARE:.0%} are left out with a warning."
        super().__init__(message, _OTHER_TEMPLATE if refused == bad else hint)
        self.bad = bad


def _cut_source(located: Located, data: DataConfig) -> SourcePieces:
    """Return the pieces of a source. Where it has a slice its rows are counted, as far as that matters.

    Bad rows count, so that "train[:100]" is the same rows once they are mended.
    """
    found = _read_together(located.files)
    split = parse_split(located.spec.split)
    if not split.start and not split.stop:
        return SourcePieces(tuple(found))
    if len(found) == 1 and split.rows_needed is not None:
        rows = range(int(split.start or 0), split.rows_needed)
        return SourcePieces((found[0]._replace(rows=rows),), rows.start)
    names = Judge(located, data, None, ranked=False).names()
    room = sys.maxsize if split.rows_needed is None else split.rows_needed
    counts: list[int] = []
    for one in found:
        counts.append(sum(block.count for block, _ in source_blocks(one.pieces, names, range(room - sum(counts)))))
    rows = split.rows(sum(counts))
    return SourcePieces(tuple(_in_slice(found, counts, rows)), rows.start, tuple(names.seen))


def _in_slice(found: Sequence[Held], counts: Sequence[int], rows: range) -> Iterator[Held]:
    """Those of the pieces that hold rows of a slice, each with its own of these and with the lines before it in its file."""
    end, lines = 0, 0
    path: DataFile | None = None
    for one, count in zip(found, counts, strict=True):
        first, *rest = one.pieces
        path, lines = first.path, lines if first.path == path else 0
        mine = range(max(0, rows.start - end), min(count, rows.stop - end))
        if mine:
            yield Held((first._replace(lines=lines), *rest), mine, one.size)
        if end + count < rows.stop:
            lines += lines_in(first)
        end += count


def _read_together(files: Sequence[DataFile]) -> list[Held]:
    """The pieces of files in order; small files that follow each other are read together."""
    found: list[Held] = []
    for path in files:
        pieces = pieces_of(path, PIECE_BYTES)
        size = size_of(path)
        before = found[-1] if found else None
        if before and len(pieces) == 1 and before.pieces[-1].is_whole and before.size + size <= PIECE_BYTES:
            found[-1] = Held((*before.pieces, *pieces), ALL_ROWS, before.size + size)
        else:
            found += [Held((piece,), ALL_ROWS, size // len(pieces)) for piece in pieces]
    return found


def _look_in_turn(judge: Judge, room: int) -> tuple[SourcePieces, list[PieceLook]]:
    """Look at the pieces of a source one after the other, each with the names and lines of those before it. room: bytes of rows
    that may be kept.
    """
    cut = _cut_source(judge.located, judge.data)
    looks: list[PieceLook] = []
    names, lines = list(cut.names), 0
    path: DataFile | None = None
    for held in cut.held:
        first, *rest = held.pieces
        lines = lines if first.path == path else first.lines
        look = scan_pieces(judge, held._replace(pieces=(first._replace(lines=lines), *rest)), known=names, room=room)
        if look.rows != ALL_ROWS:  # of a slice the lines before its rows were not looked at
            look.lines = lines_in(look.pieces[0])
        names, path, lines = look.names, first.path, lines + look.lines
        room -= look.cache.size
        looks.append(look)
    return cut, looks


def scan_source(
    located: Located,
    data: DataConfig,
    *,
    ranked: bool,
    room: int,
    refused: Refused | None = None,
    bad_share: float = BAD_SHARE,
) -> SourceScan:
    """Look at all rows of a source. room: bytes of rows that may be kept; refused: see `Judge`.

    Raises InputError: no row, columns that cannot be told, more than `bad_share` bad rows.
    """
    judge = Judge(located, data, refused, ranked)
    cut, looks = _look_in_turn(judge, room)
    try:
        return _scanned(judge, cut, looks, bad_share, room)
    except InputError as error:
        rare = _rare_names(judge, cut, looks)
        if not rare:
            raise
        try:
            return _scanned(replace(judge, rare=rare), cut, looks, bad_share, room)
        except _TooManyBad as again:
            raise (error if isinstance(error, _TooManyBad) and error.bad <= again.bad else again) from None
        except InputError:
            raise error from None


def _scanned(judge: Judge, cut: SourcePieces, looks: list[PieceLook], bad_share: float, room: int) -> SourceScan:
    """The scan of a source by all names that its pieces have; what is looked at again takes its place in `looks`."""
    names = list(dict.fromkeys(chain(cut.names, *(look.names for look in looks))))
    unread: dict[str, str] = {}
    while True:
        try:
            columns = judge.columns(names)
        except InputError:  # the names may be those of rows that cannot be read
            _refuse_bad(judge.located, _report(looks), bad_share)
            raise
        _look_again(judge, looks, columns, names, room)
        weights = _weights(looks)
        if weights.columns(columns, str(judge.located)) == columns:
            break
        unread[columns.weight] = weights.unread(columns.weight)
        judge = replace(judge, unread=judge.unread | {columns.weight})
    report = _report(looks)
    report.mapping, report.input_column = str(columns), columns.input
    within = getattr(columns, kind_of(columns).answer_role)
    fields = [f"{within}[].{name}" for name in sorted(set().union(*(look.fields for look in looks)))]
    report.ignored = [*(unread.get(name, name) for name in columns.ignored(names)), *fields]
    _refuse_bad(judge.located, report, bad_share, sum(look.refused for look in looks))
    kept = np.concatenate([np.empty(0, np.bool_), *(look.kept for look in looks)])
    ranks, digests = ([getattr(look, name) for look in looks] for name in ("ranks", "digests"))
    return SourceScan(cut.start, looks, columns, report, kept, halves(b"".join(ranks)), halves(b"".join(digests)))


def _look_again(judge: Judge, looks: list[PieceLook], columns: Columns, names: Sequence[str], room: int) -> None:
    """Look by all names at what was judged by other columns. room: bytes of rows that all looks may keep."""
    old = [at for at, look in enumerate(looks) if (look.columns, look.rare) != (columns, judge.rare)]
    for at in old:
        looks[at].cache.let_go()
    room -= sum(look.cache.size for look in looks)
    for at in old:
        before = looks[at]
        looks[at] = scan_pieces(judge, Held(before.pieces, before.rows, before.size), known=names, room=room)
        looks[at].lines = before.lines
        room -= looks[at].cache.size


def _report(looks: Sequence[PieceLook]) -> RowReport:
    total = RowReport()
    for look in looks:
        total.add(look.report)
    return total


def _weights(looks: Sequence[PieceLook]) -> WeightValues:
    total = WeightValues()
    for look in looks:
        total.extend(look.weights)
    return total


def _rare_names(judge: Judge, cut: SourcePieces, looks: Sequence[PieceLook]) -> frozenset[str]:
    """The columns of interest that up to 1 % of the rows have: too few to say what the others are."""
    counts: collections.Counter[str] = collections.Counter()
    names = judge.names(cut.names)
    total = 0
    for look in looks:
        for block, _ in source_blocks(look.pieces, names, look.rows):
            total += block.count
            for row in block.raw():
                counts.update(name for name, value in row.fields.items() if value is not None)
    return frozenset(name for name in filter(names.wants, names.seen) if counts[name] <= BAD_SHARE * total)


def halves(sixteens: bytes) -> NDArray[np.uint64]:
    """View numbers of 16 bytes as two halves each, uint64 [numbers, 2], the higher one first."""
    return np.frombuffer(sixteens, ">u8").astype(np.uint64).reshape(-1, 2)


def _refuse_bad(located: Located, report: RowReport, share: float, refused: int = 0) -> None:
    if not report.read:
        raise InputError(f"{located}: there are no rows", "Look at the file, and at the slice if there is one.")
    bad = sum(report.dropped.values())
    if bad > share * report.read:
        raise _TooManyBad(f"{located}: {bad} of {report.read} rows are bad: {report.bad_rows()}", bad, refused)
