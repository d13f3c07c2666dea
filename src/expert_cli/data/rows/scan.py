"""A first look at one source: every row is judged.

Columns are chosen by the names of all columns, and a name may turn up in the last row. The rows are judged by the names
known so far; if a later one changes the choice, they are all judged again, by all names. So they are where a column called
weight turns out to hold no flags.
"""

from __future__ import annotations

import collections
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from expert_cli.config.run_config import DataConfig, Deduplicate, RowFilters
from expert_cli.config.splits import parse_split
from expert_cli.data.formats.raw_row import Block, ColumnFilter
from expert_cli.data.formats.registry import read_blocks
from expert_cli.data.located import Located
from expert_cli.data.rows.block_check import Checked, check_block
from expert_cli.data.rows.cache import RowCache
from expert_cli.data.rows.columnar import RowReport, Rows
from expert_cli.data.rows.columns import Columns, names_of_interest
from expert_cli.data.rows.kinds import choose_columns, kind_of
from expert_cli.data.rows.sampling import content_rank
from expert_cli.data.rows.validation import BAD_SHARE, NOT_TRAINED, WeightValues
from expert_cli.errors import InputError

ALL_ROWS = range(sys.maxsize)


@dataclass
class SourceScan:
    """What was seen of one source.

    start: the number of the first row of its slice. rows: those that were read, while they fit. kept: for every row of the
    slice, block by block, whether it is good and passes the filters. ranks: 16 bytes for each of these, where asked for.
    digests: theirs, where repeats are left out. fields: of messages, that nothing reads. weights: what the rows have there.
    refused: how many rows are bad by the template alone.
    """

    start: int
    rows: RowCache
    columns: Columns = field(default_factory=Columns)
    report: RowReport = field(default_factory=RowReport)
    kept: list[NDArray[np.bool_]] = field(default_factory=list)
    ranks: bytearray = field(default_factory=bytearray)
    digests: set[bytes] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)
    weights: WeightValues = field(default_factory=WeightValues)
    refused: int = 0


_OTHER_TEMPLATE = 'Another base model, "prompt_template" or "chat_template_path" may write these rows; or mend them.'


class _TooManyBad(InputError):
    """More than 1 % of a source's rows."""

    def __init__(self, message: str, bad: int, refused: int) -> None:
        hint = f"Mend these rows, or take them out; up to {BAD_SHARE:.0%} are left out with a warning."
        super().__init__(message, _OTHER_TEMPLATE if refused == bad else hint)
        self.bad = bad


Refused = Callable[[Rows], Mapping[int, str]]
"""The rows, by their numbers, that whatever comes after cannot use, each with the reason."""


def scan_source(
    located: Located,
    data: DataConfig,
    seen: set[bytes],
    *,
    ranked: bool,
    room: int,
    refused: Refused | None = None,
    bad_share: float = BAD_SHARE,
) -> SourceScan:
    """Look at all rows of a source; `seen` are the digests of earlier sources, to which those of its rows are added.

    room: how many bytes of rows may be kept. refused: what is bad about rows that look good, as a template sees it.

    Raises InputError: no row, columns that cannot be told, more than `bad_share` bad rows, no row that passes the filters.
    """
    names = ColumnFilter(names_of_interest(data.mapping))
    judge = _Judge(located, data, names, _slice(located, names), seen, ranked, room, refused, bad_share)
    try:
        scan = judge.scan()
    except InputError as error:
        judge.rare = _rare_names(located, names, judge.slice)
        if not judge.rare:
            raise
        try:
            scan = judge.scan()
        except _TooManyBad as again:
            raise (error if isinstance(error, _TooManyBad) and error.bad <= again.bad else again) from None
        except InputError:
            raise error from None
    seen |= scan.digests
    return scan


def _rare_names(located: Located, names: ColumnFilter, rows: range) -> frozenset[str]:
    """The columns of interest that up to 1 % of the rows have: too few to say what the others are."""
    counts: collections.Counter[str] = collections.Counter()
    total = 0
    for block, _ in source_blocks(located.files, names, rows):
        total += block.count
        for row in block.raw():
            counts.update(name for name, value in row.fields.items() if value is not None)
    return frozenset(name for name in filter(names.wants, names.seen) if counts[name] <= BAD_SHARE * total)


def source_blocks(files: Sequence[Path], names: ColumnFilter, rows: range = ALL_ROWS) -> Iterator[tuple[Block, int]]:
    """Yield the rows of a source's files that are in `rows`, in blocks, each with the number of its first among these."""
    read = 0
    for path in files:
        if read == rows.stop:
            return
        for block in read_blocks(path, names, rows.stop - read):
            before = max(rows.start - read, 0)
            if before <= block.count:
                yield block.after(before), max(read - rows.start, 0)
            read += block.count


def _slice(located: Located, names: ColumnFilter) -> range:
    """The rows of the source's slice, of all its rows; these are counted only where that matters.

    Bad rows count, so that "train[:100]" is the same rows once they are mended.
    """
    split = parse_split(located.spec.split)
    if not split.start and not split.stop:
        return ALL_ROWS
    if split.rows_needed is not None:
        return range(int(split.start or 0), split.rows_needed)
    return split.rows(sum(block.count for block, _ in source_blocks(located.files, names)))


@dataclass
class _Judge:
    """Judges one source. rare: columns that are not read, as hardly any row has them; unread: names, as reports give them."""

    located: Located
    data: DataConfig
    names: ColumnFilter
    slice: range
    seen: set[bytes]
    ranked: bool
    room: int
    refused: Refused | None
    bad_share: float
    rare: frozenset[str] = frozenset()
    unread: dict[str, str] = field(default_factory=dict)

    def scan(self) -> SourceScan:
        """Judge the rows of the slice. Raises InputError; see `scan_source`."""
        scan = None
        while scan is None:
            scan = self.all_rows()
        _refuse_bad(self.located, scan.report, self.bad_share, scan.refused)
        if not any(kept.any() for kept in scan.kept):
            good = scan.report.read - sum(scan.report.dropped.values())
            reasons = ", ".join(f"{reason}: {count}" for reason, count in scan.report.filtered.items())
            hint = 'Loosen "filters", or mend "weight" and "train" of the rows.'
            raise InputError(f"{self.located}: no row of {good} is left ({reasons})", hint)
        return scan

    def all_rows(self) -> SourceScan | None:
        """Judge the rows of the slice; None if what turned up late changed what was decided for earlier rows."""
        scan = SourceScan(self.slice.start, RowCache(self.located.files, self.room))
        report, columns, known = scan.report, None, 0
        blocks = source_blocks(self.located.files, self.names, self.slice)
        for block, first in blocks:
            if len(self.names.seen) != known:
                known = len(self.names.seen)
                before, columns = columns, None
                with suppress(InputError):  # these names do not tell; others may turn up
                    columns = self._choose()
                if columns != before and report.read:
                    collections.deque(blocks, maxlen=0)  # for the rest of the names
                    return None
            report.read += block.count
            if columns:
                scan.kept.append(self._judge(block, first, columns, scan))
            elif block.texts is None:  # a row that cannot be read is bad, whatever the columns are
                for row in block.raw():
                    if row.fault:
                        report.drop(row.fault, row.where)
        if columns is None:
            _refuse_bad(
                self.located, report, self.bad_share
            )  # names that tell nothing may be those of rows that cannot be read
            columns = self._choose()
        if columns != scan.weights.columns(columns, str(self.located)):
            self.unread[columns.weight] = scan.weights.unread(columns.weight)
            return None
        scan.columns, report.mapping, report.input_column = columns, str(columns), columns.input
        within = getattr(columns, kind_of(columns).answer_role)
        fields = [f"{within}[].{name}" for name in sorted(scan.fields)]
        report.ignored = [*(self.unread.get(name, name) for name in columns.ignored(self.names.seen)), *fields]
        return scan

    def _choose(self) -> Columns:
        """The columns by the names so far. Raises InputError: these do not tell."""
        known = [name for name in self.names.seen if name not in self.rare]
        columns = choose_columns(known, self.data.mapping, str(self.located))
        return replace(columns, weight="") if columns.weight in self.unread else columns

    def _judge(self, block: Block, first: int, columns: Columns, scan: SourceScan) -> NDArray[np.bool_]:
        """Judge the rows of a block, whose own first row is number `first`."""
        checked = check_block(block, columns, first, scan.weights, self.data.schema_prompt)
        if self.refused and (reasons := self.refused(checked.rows)):
            checked = checked.without(reasons)
            scan.refused += len(reasons)
        if self.rare:
            checked = checked.without(_with_rare(block, first, checked, self.rare))
        scan.rows.add(checked)
        scan.fields |= checked.rows.ignored
        scan.report.trailing += sum(checked.rows.trailing)
        if checked.untrained:
            scan.report.filtered[NOT_TRAINED] += checked.untrained
        for where, reason in checked.bad:
            scan.report.drop(reason, where)
        passing = self._filtered(checked.rows, scan)
        kept = np.zeros(block.count, np.bool_)
        kept[checked.numbers[passing] - first] = True
        if self.ranked:
            for row in passing:
                scan.ranks += content_rank(checked.rows.content(row), self.data.seed)
        return kept

    def _filtered(self, rows: Rows, scan: SourceScan) -> Sequence[int]:
        """The numbers of the rows that pass the filters."""
        filters = self.data.filters
        if filters == RowFilters():
            return range(len(rows))
        kept: list[int] = []
        for row, length in enumerate(rows.lengths()):
            digest = _digest(rows, row, filters.deduplicate)
            reason = filters.reason(length, repeats=digest in self.seen or digest in scan.digests)
            if reason:
                scan.report.leave_out(reason, rows.origins[row], rows.content(row))
                continue
            kept.append(row)
            if digest:
                scan.digests.add(digest)
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


def _refuse_bad(located: Located, report: RowReport, share: float, refused: int = 0) -> None:
    if not report.read:
        raise InputError(f"{located}: there are no rows", "Look at the file, and at the slice if there is one.")
    bad = sum(report.dropped.values())
    if bad > share * report.read:
        raise _TooManyBad(f"{located}: {bad} of {report.read} rows are bad: {report.bad_rows()}", bad, refused)
