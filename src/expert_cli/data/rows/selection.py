"""A first look at all rows: which columns are read, which rows are good, how often each is taken.

Everything that needs a count or another row is decided here, before a row is encoded: the choice of columns (by the names
of all of them), slices, filters, repeats, weights, the split. What is kept is a number a row, and the rows themselves
where they are few; the second look, `batches`, picks among these or reads the files again. Memory: 5 bytes a row of the
files, 16 more for a split, about 100 where repeats are looked for; one block of text, or at most `ROOM_BYTES` of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from expert_cli.config.run_config import DataConfig, SourceSpec
from expert_cli.data.formats.raw_row import ColumnFilter
from expert_cli.data.located import Located, LocatedData
from expert_cli.data.rows.block_check import Checked, check_block
from expert_cli.data.rows.cache import ROOM_BYTES, RowCache
from expert_cli.data.rows.columnar import RowReport, Rows
from expert_cli.data.rows.columns import Columns
from expert_cli.data.rows.kinds import KINDS, kind_of
from expert_cli.data.rows.sampling import repeat_counts, replayed_rows, validation_split
from expert_cli.data.rows.scan import Refused, SourceScan, scan_source, source_blocks
from expert_cli.data.rows.validation import BAD_SHARE
from expert_cli.errors import InputError
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig
from expert_cli.utils.reporter import Reporter

Split = Literal["train", "validation"]
_TELLING = frozenset(("tools", "system", "system_prompt", "history"))
"""Columns that other programs train."""


@dataclass(frozen=True)
class SelectedSource:
    """One source, decided.

    columns: those that are read. start: the number of the first row of its slice, from 0 over its files. copies: int32
    [rows of the slice], how often each row is taken; 0 = bad, filtered out, not drawn, or on the other side of the split.
    kept: the good rows, where they are few. schema_prompt: what questions are shown of their database.
    """

    located: Located
    columns: Columns
    start: int
    copies: NDArray[np.int32]
    kept: RowCache
    schema_prompt: SchemaPromptConfig | None = None

    def __len__(self) -> int:
        """Return how many rows are taken, repeats counted."""
        return int(self.copies.sum())


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


def select_rows(
    data: DataConfig,
    located: LocatedData,
    reporter: Reporter,
    *,
    refused: Refused | None = None,
    bad_share: float = BAD_SHARE,
) -> RowSelection:
    """Look at the rows of all sources; `refused`: which of the good ones are bad rows for what comes after.

    Raises InputError: a source with more than `bad_share` bad rows or no good one, columns that cannot be told, sources of
    different kinds, a split that leaves nothing; EnvironmentProblem: a file that cannot be read.
    """
    splits = bool(data.validation_share) and not located.validation
    scan = partial(scan_source, data=data, refused=refused, bad_share=bad_share)
    train, report, ranks = _select_from(located.train, data, reporter, scan, ranked=splits, room=ROOM_BYTES)
    if located.validation:
        room = ROOM_BYTES - sum(source.kept.size for source in train)
        validation, validation_report, _ = _select_from(
            located.validation, data, reporter, scan, ranked=False, room=room
        )
        return RowSelection(train, validation, report, validation_report)
    if not splits:
        return RowSelection(train, None, report, None)
    train, evaluated = _split(train, ranks, data.validation_share)
    count = sum(map(len, evaluated))
    return RowSelection(
        train, evaluated, report, RowReport(count, mapping=report.mapping, input_column=report.input_column)
    )


def batches(sources: Sequence[SelectedSource]) -> Iterator[Rows]:
    """Yield the rows that are taken: sources in order, each as many rounds as its most frequent row.

    Raises InputError if a file is not what it was when it was scanned.
    """
    for source in sources:
        for turn in range(int(source.copies.max(initial=0))):
            yield from _turn(source, source.copies > turn)


def all_rows(sources: Sequence[SelectedSource]) -> Rows:
    """Return the rows of `batches`, which raises what this does, all at once."""
    rows = kind_of(sources[0].columns)()
    for batch in batches(sources):
        rows.extend(batch, range(len(batch)))
    return rows


def _turn(source: SelectedSource, taken: NDArray[np.bool_]) -> Iterator[Rows]:
    kept = source.kept.blocks()
    for checked in _read_again(source, taken) if kept is None else kept:
        wanted = taken[checked.numbers]
        if wanted.any():
            yield checked.rows if wanted.all() else checked.rows.take(np.flatnonzero(wanted).tolist())


def _read_again(source: SelectedSource, taken: NDArray[np.bool_]) -> Iterator[Checked]:
    """Yield the blocks of a source that hold rows that are taken."""
    columns = ColumnFilter(frozenset(name.casefold() for name in source.columns.read()))
    changed = InputError(f"{source.located}: the files changed while they were read", "Start again.")
    rows = range(source.start, source.start + len(taken))
    read = 0
    for block, first in source_blocks(source.located.files, columns, rows):
        read = first + block.count
        due = taken[first:read]
        if not due.any():
            continue
        checked = check_block(block, source.columns, first, schema_prompt=source.schema_prompt)
        if taken[checked.numbers].sum() != due.sum():
            raise changed
        yield checked
    if read != len(taken):
        raise changed


def _select_from(
    sources: Sequence[Located],
    data: DataConfig,
    reporter: Reporter,
    scan_of: Callable[..., SourceScan],
    *,
    ranked: bool,
    room: int,
) -> tuple[tuple[SelectedSource, ...], RowReport, bytearray]:
    """Select from sources of one kind; repeated rows are looked for over all of them.

    scan_of: `scan_source` of these rows. ranked: rank the rows that are taken. room: how many bytes of rows may be kept.
    """
    total = RowReport()
    selected: list[SelectedSource] = []
    ranks = bytearray()
    seen: set[bytes] = set()
    for number, located in enumerate(sources):
        scan = scan_of(located, seen=seen, ranked=ranked, room=room)
        room -= scan.rows.size
        kind = kind_of(scan.columns)
        first = kind_of(selected[0].columns) if selected else kind
        if kind.answer_role != first.answer_role:
            raise InputError(
                f"{located}: rows are {kind.kind} ({scan.report.mapping}), those of {sources[0]} are {first.kind}",
                f"Train on rows of one kind: {', '.join(KINDS)}.",
            )
        kept = np.concatenate(scan.kept)
        copies = np.zeros(len(kept), np.int32)
        good = int(kept.sum())
        others = sum(map(len, selected))
        weight = _replayed(located, good, others, reporter) if located.spec.share else _weight(located.spec, good)
        copies[kept] = repeat_counts(good, weight, data.seed, str(number)) * np.int32(located.spec.repeat)
        selected.append(SelectedSource(located, scan.columns, scan.start, copies, scan.rows, data.schema_prompt))
        if ranked:
            ranks += np.frombuffer(scan.ranks, "V16")[copies[kept] > 0].tobytes()
        _tell(located, good, scan.report, reporter)
        total.add(scan.report)
    return tuple(selected), total, ranks


def _weight(spec: SourceSpec, rows: int) -> float:
    """Return the weight of a source of so many good rows that draws no more than `max_rows`."""
    return spec.weight if spec.max_rows is None else min(spec.weight, spec.max_rows / max(1, rows))


def _replayed(located: Located, rows: int, others: int, reporter: Reporter) -> float:
    """Return the weight by which the rows of a source are its share of all: beside `others`, those of the sources before."""
    wanted = replayed_rows(located.spec.share, others)
    reporter.info(f"{located}: {min(wanted, rows)} rows are trained again beside {others} others")
    if wanted > rows:
        reporter.warning(
            f"{located}: replay.share {located.spec.share:g} asks for {wanted} rows beside {others} others, there are "
            f"{rows}: all are trained again, {rows / (rows + others):.1%} of the training rows"
        )
    return min(1.0, wanted / rows)


def _split(
    sources: Sequence[SelectedSource], ranks: bytearray, share: float
) -> tuple[tuple[SelectedSource, ...], tuple[SelectedSource, ...]]:
    """The sources as they train, and as they evaluate: each evaluated row once, however often it would have trained."""
    held = validation_split(ranks, share)
    taken = [np.flatnonzero(source.copies) for source in sources]
    ends = np.cumsum([len(rows) for rows in taken])
    train, evaluated = [], []
    for source, rows, end in zip(sources, taken, ends, strict=True):
        start = end - len(rows)
        mine = rows[held[np.searchsorted(held, start) : np.searchsorted(held, end)] - start]
        trained, once = source.copies.copy(), np.zeros_like(source.copies)
        trained[mine], once[mine] = 0, 1
        train.append(replace(source, copies=trained))
        evaluated.append(replace(source, copies=once))
    return tuple(train), tuple(evaluated)


def _tell(located: Located, rows: int, report: RowReport, reporter: Reporter) -> None:
    filtered = "".join(f", {count} {reason}" for reason, count in report.filtered.items())
    unread = f"; not read: {', '.join(report.unread())}" if report.unread() else ""
    reporter.info(f"{located}: {rows} rows{filtered}; {report.mapping}{unread}")
    telling = [name for name in report.ignored if name.casefold() in _TELLING]
    if telling:
        reporter.warning(
            f"{located}: {', '.join(telling)}: not trained beside question and answer; "
            '"field_mapping" names columns of a system message, history and tools'
        )
    if report.dropped:
        bad = sum(report.dropped.values())
        reporter.warning(f"{located}: {bad} of {report.read} rows are bad and left out: {report.bad_rows()}")
