"""A first look at all rows: which columns are read, which rows are good, how often each is taken.

Everything that needs a count or another row is decided here, before a row is encoded: the choice of columns (by the names
of all of them), slices, filters, repeats, weights, the split. What is kept is a number a row, and the rows themselves
where they are few; the second look, `batches`, picks among these or reads the files again. Memory: 5 bytes a row of the
files, 16 more for a split, up to 64 where repeats are looked for; one block of text, or at most `ROOM_BYTES` of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from expert_cli.config.run_config import DataConfig, SourceSpec
from expert_cli.data.located import Located, LocatedData
from expert_cli.data.rows.cache import ROOM_BYTES
from expert_cli.data.rows.columnar import MOST_LEFT_OUT, RowReport
from expert_cli.data.rows.kinds import KINDS, kind_of
from expert_cli.data.rows.look import Refused
from expert_cli.data.rows.sampling import first_ones, repeat_counts, replayed_rows, validation_split
from expert_cli.data.rows.scan import SourceScan, scan_source
from expert_cli.data.rows.selected import RowSelection, Section, SelectedSource
from expert_cli.data.rows.validation import BAD_SHARE
from expert_cli.errors import InputError
from expert_cli.utils.reporter import Reporter

_TELLING = frozenset(("tools", "system", "system_prompt", "history"))
"""Columns that other programs train."""


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
        room = ROOM_BYTES - sum(section.kept.size for source in train for section in source.sections)
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


def _select_from(
    sources: Sequence[Located],
    data: DataConfig,
    reporter: Reporter,
    scan_of: Callable[..., SourceScan],
    *,
    ranked: bool,
    room: int,
) -> tuple[tuple[SelectedSource, ...], RowReport, NDArray[np.uint64]]:
    """Select from sources of one kind; repeated rows are looked for over all of them.

    scan_of: `scan_source` of these rows. ranked: rank the rows that are taken. room: how many bytes of rows may be kept.
    """
    total = RowReport()
    selected: list[SelectedSource] = []
    ranks = [np.empty((0, 2), np.uint64)]
    scans = _scans(sources, scan_of, ranked=ranked, room=room)
    ends = np.cumsum([len(scan.digests) for scan in scans])[:-1]
    new = np.split(first_ones(np.concatenate([scan.digests for scan in scans])), ends)
    for number, (located, scan) in enumerate(zip(sources, scans, strict=True)):
        source = _source(scan, located, data)
        if data.filters.repeated:
            scan = _without_repeats(scan, source, data, new[number])  # noqa: PLW2901  the same scan, less its repeats
        good = _good_rows(scan, located)
        others = sum(map(len, selected))
        weight = _replayed(located, good, others, reporter) if located.spec.share else _weight(located.spec, good)
        source.copies[scan.kept] = repeat_counts(good, weight, data.seed, str(number)) * np.int32(located.spec.repeat)
        selected.append(source)
        if ranked:
            ranks.append(scan.ranks[source.copies[scan.kept] > 0])
        _tell(located, good, scan.report, reporter)
        total.add(scan.report)
    return tuple(selected), total, np.concatenate(ranks)


def _scans(
    sources: Sequence[Located], scan_of: Callable[..., SourceScan], *, ranked: bool, room: int
) -> list[SourceScan]:
    """The scans of sources. Raises InputError: they are of different kinds."""
    scans: list[SourceScan] = []
    for located in sources:
        scan = scan_of(located, ranked=ranked, room=room)
        room -= sum(look.cache.size for look in scan.looks)
        kind = kind_of(scan.columns)
        first = kind_of(scans[0].columns) if scans else kind
        if kind.answer_role != first.answer_role:
            raise InputError(
                f"{located}: rows are {kind.kind} ({scan.report.mapping}), those of {sources[0]} are {first.kind}",
                f"Train on rows of one kind: {', '.join(KINDS)}.",
            )
        scans.append(scan)
    return scans


def _source(scan: SourceScan, located: Located, data: DataConfig) -> SelectedSource:
    """A source of which no row is taken yet."""
    ends = np.cumsum([len(look.kept) for look in scan.looks]).tolist()
    sections = tuple(
        Section(look.pieces, look.rows, end - len(look.kept), len(look.kept), look.size, look.cache)
        for look, end in zip(scan.looks, ends, strict=True)
    )
    copies = np.zeros(len(scan.kept), np.int32)
    return SelectedSource(located, scan.columns, scan.start, copies, sections, data.schema_prompt)


def _without_repeats(scan: SourceScan, source: SelectedSource, data: DataConfig, new: NDArray[np.bool_]) -> SourceScan:
    """The scan without the rows that repeat earlier ones; new: which of the good ones do not."""
    repeats = np.flatnonzero(scan.kept)[~new]
    for section in source.sections:
        examples = np.isin(np.arange(section.first, section.first + section.count), repeats[:MOST_LEFT_OUT])
        for rows in source.rows(section, examples) if examples.any() else ():
            for row, where in enumerate(rows.origins):
                scan.report.leave_out(data.filters.repeated, where, rows.content(row))
    if len(repeats):
        scan.report.filtered[data.filters.repeated] = len(repeats)
    kept = scan.kept.copy()
    kept[repeats] = False
    ranks = scan.ranks[new] if len(scan.ranks) else scan.ranks
    return replace(scan, kept=kept, ranks=ranks)


def _good_rows(scan: SourceScan, located: Located) -> int:
    """How many rows are left. Raises InputError: none is."""
    good = int(scan.kept.sum())
    if not good:
        judged = scan.report.read - sum(scan.report.dropped.values())
        reasons = ", ".join(f"{reason}: {count}" for reason, count in scan.report.filtered.items())
        hint = 'Loosen "filters", or mend "weight" and "train" of the rows.'
        raise InputError(f"{located}: no row of {judged} is left ({reasons})", hint)
    return good


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
    sources: Sequence[SelectedSource], ranks: NDArray[np.uint64], share: float
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
