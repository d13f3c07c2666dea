"""Which rows of the sources are taken, and how often: slices, filters, repeats, weights, the split of validation rows.

Everything that needs a count or another row is decided here, in a first pass over all rows, before one is encoded. What is kept
is a number a row and, where it is needed, a hash of 16 bytes; the second pass reads the files again. Where chance decides, rows
are ordered by a keyed hash, never by a random generator whose algorithm may change.

Both passes go file by file, so that they can be spread over machines: `FlatMap`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from expert_cli.config.run_config import DataConfig
from expert_cli.config.splits import parse_split
from expert_cli.data.columns import Columns, choose_columns, find_column, listed
from expert_cli.data.encode import Sample
from expert_cli.data.reading import RawRow, rows_of
from expert_cli.data.rows import BadRow, NotTrained, Row, digest, flag_of, to_row
from expert_cli.data.schema_prompt import show_database
from expert_cli.data.sources import DataFile, Located, LocatedData, locate_data
from expert_cli.errors import ExpertError, InputError
from expert_cli.utils.reporter import NullReporter, Reporter
from expert_cli.utils.text import excerpt, short_place

FIRST_ROWS = 200
"""So many rows of a source decide its columns."""
BAD_SHARE = 0.01
"""The share of bad rows in a source above which it is refused."""
NOT_TRAINED = "not to be trained"
_MOST_EXAMPLES, _MOST_ALIKE, _MOST_LEFT_OUT = 5, 2, 3
Split = Literal["train", "validation"]
FlatMap: TypeAlias = Callable[[Callable[[Any], Iterator[Any]], Sequence[Any]], Iterator[Any]]
"""Calls a function with each of some things, and yields what the calls yield, in order: here, or on other machines."""


def local_flat_map(function: Callable[[Any], Iterator[Any]], things: Sequence[Any]) -> Iterator[Any]:
    """Call the function in this process."""
    return chain.from_iterable(map(function, things))


@dataclass
class RowReport:
    """What became of the rows that were read.

    dropped: bad rows by reason, the first few named in `examples`. filtered: good rows that are left out, by reason; left_out:
    the first few of a filter. mapping: which column became what. ignored: columns, and fields of messages ("messages[].id"),
    that nothing reads. trailing: how many turns stand after the last answer of their conversation.
    """

    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    mapping: str = ""
    filtered: Counter[str] = field(default_factory=Counter)
    left_out: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    trailing: int = 0

    def unread(self) -> list[str]:
        """Return what nothing reads: columns, fields of messages, turns after the last answer."""
        return [*self.ignored, *([f"turns after the last answer: {self.trailing}"] if self.trailing else [])]

    def drop(self, reason: str, where: str) -> None:
        """Count one bad row; the first few are kept as "where: reason", of one reason two."""
        self.dropped[reason] += 1
        if self.dropped[reason] <= _MOST_ALIKE and len(self.examples) < _MOST_EXAMPLES:
            self.examples.append(f"{where}: {reason}")

    def leave_out(self, reason: str, row: Row) -> None:
        """Count one good row that a filter leaves out; the first few are kept with the beginning of what they say."""
        self.filtered[reason] += 1
        examples = self.left_out.setdefault(reason, [])
        if len(examples) < _MOST_LEFT_OUT:
            examples.append({"where": short_place(row.where), "text": excerpt(" ".join(row.content()))})

    def filters(self) -> dict[str, Any]:
        """Return, by the reason, how many rows were left out, and the first few of them."""
        shown = self.left_out
        return {reason: {"rows": count, "examples": shown.get(reason, [])} for reason, count in self.filtered.items()}

    def told(self, rows: int, what: str = "are bad") -> str:
        """Return in words how many of so many rows are bad, and the first ones."""
        bad = self.dropped.total()
        return f"{bad} of {rows} rows {what}: {'; '.join(self.examples)}{'; ...' if bad > len(self.examples) else ''}"

    def add(self, other: RowReport) -> None:
        """Add the counts of another source; its mapping is appended where it differs."""
        self.read += other.read
        self.trailing += other.trailing
        self.dropped.update(other.dropped)
        self.filtered.update(other.filtered)
        for reason, examples in other.left_out.items():
            self.left_out[reason] = [*self.left_out.get(reason, ()), *examples][:_MOST_LEFT_OUT]
        self.ignored = list(dict.fromkeys([*self.ignored, *other.ignored]))
        self.examples = (self.examples + other.examples)[:_MOST_EXAMPLES]
        self.mapping = "; ".join(dict.fromkeys(filter(None, [*self.mapping.split("; "), other.mapping])))

    def refuse_bad(self, where: str, share: float = BAD_SHARE) -> None:
        """Raise InputError where more than so large a share of the rows is bad, or there is none."""
        if not self.read:
            raise InputError(f"{where}: there are no rows", "Look at the file, and at the slice if there is one.")
        if self.dropped.total() > share * self.read:
            raise InputError(
                f"{where}: {self.told(self.read)}",
                f"Mend these rows, or take them out; up to {BAD_SHARE:.0%} are left out with a warning.",
            )


class FileSlice(NamedTuple):
    """Rows of a file, by their numbers in it."""

    file: DataFile
    start: int
    stop: int

    def raw_rows(self) -> Iterator[RawRow]:
        """Yield them as they were read."""
        return islice(rows_of(self.file), self.start, self.stop)


@dataclass(frozen=True)
class TakenRows:
    """Rows of one file that are taken. numbers: int64, theirs in the file; source: the number of their source.

    first: the number of the first one among all rows of the split.
    """

    file: DataFile
    numbers: NDArray[np.int64]
    columns: Columns
    data: DataConfig
    source: int
    first: int

    def rows(self) -> Iterator[Row]:
        """Yield them. Raises InputError: the file is not what it was."""
        left = set(self.numbers.tolist())
        with suppress(BadRow, NotTrained):
            for number, raw in enumerate(islice(rows_of(self.file), int(self.numbers[-1]) + 1)):
                if number in left:
                    row = _row(raw, self.columns, self.data)
                    left.remove(number)
                    yield row
        if left:
            raise InputError(f"{self.file}: changed while it was read", "Start again.")


@dataclass(frozen=True)
class SelectedSource:
    """One source, decided. copies: int32 [rows of its slices], how often each is taken: 0 where it is left out."""

    located: Located
    columns: Columns
    data: DataConfig
    slices: tuple[FileSlice, ...]
    copies: NDArray[np.int32]

    def __len__(self) -> int:
        """Return how many rows are taken, repeats counted."""
        return int(self.copies.sum())

    def taken(self, source: int = 0, first: int = 0) -> Iterator[TakenRows]:
        """Yield the rows that are taken, file by file: all once, then those taken twice once more."""
        ends = np.cumsum([0, *(part.stop - part.start for part in self.slices)])
        for turn in range(int(self.copies.max(initial=0))):
            for part, at in zip(self.slices, ends.tolist(), strict=False):
                mine = np.flatnonzero(self.copies[at : at + part.stop - part.start] > turn) + part.start
                if len(mine):
                    yield TakenRows(part.file, mine, self.columns, self.data, source, first)
                    first += len(mine)

    def rows(self) -> Iterator[Row]:
        """Yield the rows that are taken. Raises InputError: a file is not what it was."""
        return chain.from_iterable(piece.rows() for piece in self.taken())


@dataclass(frozen=True)
class RowSelection:
    """All sources, decided. `validation`: those that evaluate, each row once; () where none do. sample: texts of the rows."""

    train: tuple[SelectedSource, ...]
    validation: tuple[SelectedSource, ...]
    train_report: RowReport
    validation_report: RowReport
    sample: Sample

    def sources(self, split: Split) -> tuple[SelectedSource, ...]:
        """Return the sources of a split."""
        return self.train if split == "train" else self.validation

    def taken(self, split: Split) -> Iterator[TakenRows]:
        """Yield the rows of a split, source by source and file by file."""
        first = 0
        for number, source in enumerate(self.sources(split)):
            yield from source.taken(number, first)
            first += len(source)

    def rows(self, split: Split = "train") -> Iterator[Row]:
        """Yield the rows of a split, source by source. Raises InputError: a file is not what it was."""
        return chain.from_iterable(piece.rows() for piece in self.taken(split))


def first_rows(located: Located) -> list[RawRow]:
    """Return the first rows of a source's files, whatever its slice, by which its columns are chosen."""
    return list(islice(chain.from_iterable(map(rows_of, located.files)), FIRST_ROWS))


def _names(rows: Sequence[RawRow]) -> dict[str, None]:
    return dict.fromkeys(name for row in rows for name in row.fields)


def source_columns(located: Located, data: DataConfig) -> Columns:
    """Return the columns of a source, by the names that its first rows have. Raises InputError: they do not tell."""
    first = [row for row in first_rows(located) if not row.fault]
    if not first:
        return Columns("text", text="text")
    columns = choose_columns(list(_names(first)), data.mapping, str(located))
    for flag in ("weight", "train"):  # a column called weight may hold kilograms, or a factor of the loss
        name: str = getattr(columns, flag)
        try:
            for row in first:
                flag_of(row.fields.get(name), name)
        except BadRow:
            no_flag: dict[str, Any] = {flag: ""}
            columns = replace(columns, **no_flag)
    return columns


def absent_columns(data: DataConfig) -> dict[str, str]:
    """Return, by role, why a column that the manifest names is not in the first rows; reads those of what is on this machine.

    {} also where no row can be read: training says why.
    """
    here = replace(data, train=tuple(spec for spec in data.train[:1] if spec.is_local), validation=())
    names: dict[str, None] = {}
    with suppress(ExpertError):
        for located in locate_data(here, NullReporter()).train:
            names = _names(first_rows(located))
    reason = f"names no column of the first rows; these have: {listed(list(names))}"
    columns = data.mapping.columns().items() if names else ()
    return {role: reason for role, column in columns if not find_column(column, list(names))}


def first_good_rows(data: DataConfig, located: Located, count: int = 64) -> list[Row]:
    """Return the good ones of the first rows of a source, whatever its slice: for a look, not for training."""
    columns = source_columns(located, data)
    found: list[Row] = []
    for raw in first_rows(located):
        with suppress(BadRow, NotTrained):
            found.append(_row(raw, columns, data))
    return found[:count]


def select_rows(
    data: DataConfig,
    located: LocatedData,
    reporter: Reporter,
    *,
    bad_share: float = BAD_SHARE,
    flat_map: FlatMap = local_flat_map,
) -> RowSelection:
    """Look at the rows of all sources, and decide.

    Raises InputError: a source with more than `bad_share` bad rows or no good one, columns that cannot be told, sources of
    different forms, a split that leaves nothing; EnvironmentProblem: a file that cannot be read.
    """
    splits = bool(data.validation_share) and not located.validation
    sample = Sample()
    select = partial(_select_from, data=data, reporter=reporter, sample=sample, bad_share=bad_share, flat_map=flat_map)
    train, report, ranks = select(located.train, ranked=splits)
    if not splits:
        held, held_report, _ = select(located.validation, ranked=False)
        return RowSelection(train, held, report, held_report, sample)
    train, held = _split(train, ranks, data.validation_share)
    return RowSelection(train, held, report, RowReport(sum(map(len, held)), mapping=report.mapping), sample)


@dataclass
class _Scan:
    """What the first pass finds in some rows of a source. good: a byte a row; ranks, digests: 16 bytes a good one."""

    columns: Columns
    names: dict[str, None]
    report: RowReport = field(default_factory=RowReport)
    unread: set[str] = field(default_factory=set)
    good: bytearray = field(default_factory=bytearray)
    ranks: bytearray = field(default_factory=bytearray)
    digests: bytearray = field(default_factory=bytearray)
    sample: Sample = field(default_factory=Sample)

    def add(self, other: _Scan) -> None:
        """Add what was found in the rows that follow."""
        self.report.add(other.report)
        self.sample.add_sample(other.sample)
        self.names |= other.names
        self.unread |= other.unread
        self.good += other.good
        self.ranks += other.ranks
        self.digests += other.digests


def _scan(part: FileSlice, *, found: _Scan, data: DataConfig, where: str, ranked: bool) -> Iterator[_Scan]:
    """Look at rows of a file; `found`: what is known of the source before. Raises InputError: a column that came too late."""
    scan = _Scan(found.columns, dict(found.names))
    filters, salt, shapes = data.filters, f"{data.seed}:", set[tuple[str, ...]]()
    for raw in part.raw_rows():
        scan.report.read += 1
        scan.good.append(0)
        if not raw.fault and (shape := tuple(raw.fields)) not in shapes:
            shapes.add(shape)
            _require_known(raw, scan, data, where)
        try:
            row = _row(raw, scan.columns, data)
        except BadRow as bad:
            scan.report.drop(str(bad), raw.where)
            continue
        except NotTrained:
            scan.report.filtered[NOT_TRAINED] += 1
            continue
        scan.unread |= row.unread
        scan.report.trailing += row.trailing
        if (filters.min_chars or filters.max_chars) and (reason := filters.reason(len(row))):
            scan.report.leave_out(reason, row)
            continue
        scan.good[-1] = 1
        scan.sample.add([turn["content"] for turn in row.messages] or [row.answer])
        said = "\0".join(row.content()) if filters.repeated or ranked else ""
        if filters.repeated:
            scan.digests += digest(said if filters.deduplicate == "row" else row.answer)
        if ranked:
            scan.ranks += digest(f"{salt}{said}")
    yield scan


def _require_known(raw: RawRow, scan: _Scan, data: DataConfig, where: str) -> None:
    """Refuse a column that is not in the first rows and would have been read."""
    if new := [name for name in raw.fields if name not in scan.names]:
        scan.names |= dict.fromkeys(new)
        try:
            chosen = choose_columns(list(scan.names), data.mapping, where)
            same = replace(chosen, weight="", train="") == replace(scan.columns, weight="", train="")
        except InputError:
            same = False
        if not same:
            raise InputError(
                f"{raw.where}: {', '.join(map(json.dumps, new))} stands in none of the first {FIRST_ROWS} rows, by which the "
                f"columns were chosen: {scan.columns}",
                'Name the columns in "field_mapping" of training.dataset, or put such a row first.',
            )


def _file_slices(located: Located) -> list[FileSlice]:
    """The rows of a slice, file by file; bad ones count, so that "train[:100]" is the same rows once they are mended."""
    split, left = parse_split(located.spec.split), sys.maxsize
    if not (split.start or split.stop):
        return [FileSlice(file, 0, left) for file in located.files]
    if split.rows_needed is not None:
        left = split.rows_needed
    sizes = []
    for file in located.files:
        sizes.append(sum(1 for _ in islice(rows_of(file), left)) if left else 0)
        left -= sizes[-1]
    wanted, ends = split.rows(sum(sizes)), np.cumsum([0, *sizes]).tolist()
    files = zip(located.files, ends, sizes, strict=False)
    slices = [FileSlice(file, max(0, wanted.start - at), min(size, wanted.stop - at)) for file, at, size in files]
    return [part for part in slices if part.start < part.stop]


def _row(raw: RawRow, columns: Columns, data: DataConfig) -> Row:
    """Return what a raw row means, and what its question is shown of its database. Raises BadRow, NotTrained."""
    if raw.fault:
        raise BadRow(raw.fault)
    row = to_row(raw.fields, columns, data.mapping, raw.where)
    if data.schema_prompt is None:
        return row
    if not row.is_pair:
        raise InputError(
            f'"schema_prompt" is for rows of question and answer; these are {columns.form}',
            'Take "schema_prompt" out of training.dataset.',
        )
    if [turn["role"] for turn in row.messages[-2:]] != ["user", "assistant"]:
        raise BadRow("it does not end with one question and its answer, so no schema_prompt")
    try:
        shown = show_database(data.schema_prompt, row.database, row.input, row.messages[-2]["content"], row.answer)
    except InputError as error:
        raise BadRow(error.message) from error
    return replace(row, input=shown)


def _select_from(
    sources: Sequence[Located],
    *,
    data: DataConfig,
    reporter: Reporter,
    sample: Sample,
    bad_share: float,
    flat_map: FlatMap,
    ranked: bool,
) -> tuple[tuple[SelectedSource, ...], RowReport, NDArray[np.uint64]]:
    """Select from sources of one form; repeated rows are looked for over all of them. ranked: also rank the rows."""
    total = RowReport()
    selected: list[SelectedSource] = []
    ranks = [np.empty((0, 2), np.uint64)]
    seen: set[bytes] = set()
    for number, located in enumerate(sources):
        columns = source_columns(located, data)
        if selected and columns.form != selected[0].columns.form:
            raise InputError(
                f"{located}: rows are {columns.form} ({columns}), those of {sources[0]} are {selected[0].columns.form}",
                "Train on rows of one kind: messages, text, segments, pair.",
            )
        scan = _Scan(columns, _names(first_rows(located)), RowReport(mapping=str(columns)))
        slices, asked = [], _file_slices(located)
        scan_slice = partial(_scan, found=scan, data=data, where=str(located), ranked=ranked)
        for part, found in zip(asked, flat_map(scan_slice, asked), strict=True):
            scan.add(found)
            slices.append(part._replace(stop=part.start + len(found.good)))
        report = scan.report
        within = getattr(columns, {"pair": "response"}.get(columns.form, columns.form))
        unread = [f"{within}[].{name}" for name in sorted(scan.unread)]
        report.ignored = [*columns.unread(scan.names), *unread]
        report.refuse_bad(str(located), bad_share)
        sample.add_sample(scan.sample)
        good = np.frombuffer(scan.good, np.bool_).copy()
        source_ranks = np.frombuffer(scan.ranks, ">u8").reshape(-1, 2)  # each in two halves, the higher one first
        source = SelectedSource(located, columns, data, tuple(slices), np.zeros(len(good), np.int32))
        if data.filters.repeated:
            new = _first_ones(scan.digests, seen)
            repeats = np.flatnonzero(good)[~new]
            examples = replace(source, copies=np.isin(np.arange(len(good)), repeats[:_MOST_LEFT_OUT]).astype(np.int32))
            for row in examples.rows():
                report.leave_out(data.filters.repeated, row)
            if len(repeats):
                report.filtered[data.filters.repeated] = len(repeats)
            good[repeats] = False
            source_ranks = source_ranks[new] if ranked else source_ranks
        count, spec = int(good.sum()), located.spec
        if not count:
            reasons = ", ".join(f"{reason}: {count}" for reason, count in report.filtered.items())
            raise InputError(
                f"{located}: no row of {report.read - report.dropped.total()} is left ({reasons})",
                'Loosen "filters", or mend "weight" and "train" of the rows.',
            )
        weight = spec.weight if spec.max_rows is None else min(spec.weight, spec.max_rows / count)
        if spec.share:
            weight = _replayed(located, count, sum(map(len, selected)), reporter)
        source.copies[good] = repeat_counts(count, weight, data.seed, str(number)) * np.int32(spec.repeat)
        selected.append(source)
        if ranked:
            ranks.append(source_ranks[source.copies[good] > 0])
        _tell(located, count, report, reporter)
        total.add(report)
    return tuple(selected), total, np.concatenate(ranks)


def _first_ones(digests: bytearray, seen: set[bytes]) -> NDArray[np.bool_]:
    """Return which of some digests of 16 bytes are not among those before them, which are added to `seen`."""
    new = np.zeros(len(digests) // 16, np.bool_)
    for number, one in enumerate(np.frombuffer(digests, "V16").tolist()):
        new[number] = one not in seen
        seen.add(one)
    return new


def _replayed(located: Located, rows: int, others: int, reporter: Reporter) -> float:
    """Return the weight by which the rows of a source are its share of all: beside `others`, those of the sources before."""
    share = located.spec.share
    wanted = max(1, round(share / (1 - share) * others))
    reporter.info(f"{located}: {min(wanted, rows)} rows are trained again beside {others} others")
    if wanted > rows:
        reporter.warning(
            f"{located}: replay.share {share:g} asks for {wanted} rows beside {others} others, there are "
            f"{rows}: all are trained again, {rows / (rows + others):.1%} of the training rows"
        )
    return min(1.0, wanted / rows)


def repeat_counts(rows: int, weight: float, seed: int, salt: str) -> NDArray[np.int32]:
    """Return how often each row is taken: 0.4 a seeded 40 % of them once, 2.0 all twice, 1.5 all once and half again.

    A weight above 0 takes at least one row; `salt` tells sources apart, so that equal ones are sampled differently.
    """
    whole = int(weight)
    extra = round((weight - whole) * rows)
    if whole == 0 and weight > 0 and rows:
        extra = max(extra, 1)
    copies = np.full(rows, whole, np.int32)
    if extra:
        drawn = sorted(range(rows), key=lambda row: digest(f"{seed}:{salt}:{row}"))
        copies[drawn[:extra]] += 1
    return copies


def _split(
    sources: Sequence[SelectedSource], ranks: NDArray[np.uint64], share: float
) -> tuple[tuple[SelectedSource, ...], tuple[SelectedSource, ...]]:
    """Return the sources as they train, and as they evaluate: each evaluated row once, however often it would have trained."""
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


def validation_split(ranks: NDArray[np.uint64], share: float) -> NDArray[np.int64]:
    """Return the rows that evaluate: the first `share` of them by rank. `ranks`: [rows, 2], those of all rows in halves.

    Equal rows stay on one side, so that no row that trains is evaluated; the share is met from above by less than one
    such group, and is at least one row. Raises InputError where no row would be left to train.
    """
    order = np.lexsort((ranks[:, 1], ranks[:, 0]))
    changes = (np.diff(ranks[order], axis=0) != 0).any(axis=1)
    group_ends = np.append(np.flatnonzero(changes) + 1, len(order))
    wanted = max(1, round(share * len(order)))
    chosen = order[: group_ends[np.searchsorted(group_ends, wanted)]]
    if len(chosen) == len(order):
        raise InputError(
            f"{len(order)} rows ({len(group_ends)} different ones) cannot be split for evaluation (share {share})",
            "Name validation rows of their own, or train on more rows.",
        )
    return np.sort(chosen)


def _tell(located: Located, rows: int, report: RowReport, reporter: Reporter) -> None:
    filtered = "".join(f", {count} {reason}" for reason, count in report.filtered.items())
    unread = f"; not read: {', '.join(report.unread())}" if report.unread() else ""
    reporter.info(f"{located}: {rows} rows{filtered}; {report.mapping}{unread}")
    if report.dropped:
        reporter.warning(f"{located}: {report.told(report.read, 'are bad and left out')}")
