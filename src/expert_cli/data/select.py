"""Which rows of the sources are taken, and how often: slices, filters, repeats, weights, the split of validation rows.

The files are read once. Everything that needs a count or another row is decided afterwards, by hashes of 16 bytes that are
kept of each good row where they are needed. Where chance decides, rows are ordered by a keyed hash, never by a random
generator whose algorithm may change.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, compress, islice
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from expert_cli.config.data_sources import parse_split
from expert_cli.config.run_config import ColumnMapping, DataConfig
from expert_cli.data.columns import Columns, choose_columns
from expert_cli.data.database_prompt import show_database
from expert_cli.data.field_checks import BadRow
from expert_cli.data.overlap import asked_hash
from expert_cli.data.reading import RawRow, rows_of
from expert_cli.data.rows import Row, digest, to_row
from expert_cli.data.sources import DataFile, Located, LocatedData
from expert_cli.errors import InputError
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import short_place

FIRST_ROWS = 200
"""So many rows of a source decide its columns."""
BAD_SHARE = 0.01
"""The share of bad rows in a source above which it is refused."""
_BATCH_ROWS = 1_000
_MOST_EXAMPLES, _MOST_ALIKE = 5, 2
Split = Literal["train", "validation"]
FlatMap: TypeAlias = Callable[[Callable[[Any], Iterator[Any]], Sequence[Any]], Iterator[Any]]
"""Calls a function with each of some things, and yields what the calls yield, in order: here, or on other machines."""


def local_flat_map(function: Callable[[Any], Iterator[Any]], things: Sequence[Any]) -> Iterator[Any]:
    """Call the function in this process."""
    return chain.from_iterable(map(function, things))


@dataclass
class RowReport:
    """What became of the rows that were read.

    mapping: which column became what. dropped: bad rows by reason, the first few as "where: reason" in `examples`. filtered:
    good rows that are left out, by reason. unread: columns, fields of messages ("messages[].id") and turns that nothing reads.
    """

    read: int = 0
    mapping: str = ""
    dropped: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    filtered: Counter[str] = field(default_factory=Counter)
    unread: list[str] = field(default_factory=list)

    def drop(self, reason: str, where: str) -> None:
        """Count one bad row."""
        self.dropped[reason] += 1
        if self.dropped[reason] <= _MOST_ALIKE:
            self.examples = [*self.examples, f"{where}: {reason}"][:_MOST_EXAMPLES]

    def bad(self) -> str:
        """Return in words how many rows are bad, and the first ones."""
        bad = self.dropped.total()
        more = "; ..." if bad > len(self.examples) else ""
        return f"{bad} of {self.read} rows are bad: {'; '.join(self.examples)}{more}"

    def add(self, other: RowReport) -> None:
        """Add what became of rows that follow."""
        self.read += other.read
        self.mapping = "; ".join(dict.fromkeys(filter(None, [*self.mapping.split("; "), other.mapping])))
        self.dropped.update(other.dropped)
        self.examples = [*self.examples, *other.examples][:_MOST_EXAMPLES]
        self.filtered.update(other.filtered)
        self.unread = list(dict.fromkeys([*self.unread, *other.unread]))


class FileSlice(NamedTuple):
    """Rows of a file, by their numbers in it."""

    file: DataFile
    start: int
    stop: int


@dataclass
class RowBatch:
    """Good rows of a file in their order, their numbers in it, and what became of all that were read with them.

    hashes: where they are wanted, 16 bytes of each row: "repeats" are equal for repeated rows, "asked" for one question, and
    "ranks" are their order for the validation split.
    """

    file: DataFile
    report: RowReport
    rows: list[Row] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    hashes: dict[str, list[bytes]] = field(default_factory=lambda: {"repeats": [], "ranks": [], "asked": []})

    def keep(self, which: Sequence[bool]) -> None:
        """Keep some of the rows."""
        self.rows, self.numbers = [*compress(self.rows, which)], [*compress(self.numbers, which)]
        self.hashes = {name: [*compress(hashes, which)] for name, hashes in self.hashes.items()}


Batch = TypeVar("Batch", bound=RowBatch)


@dataclass(frozen=True)
class RowReader:
    """Reads rows of a source's files. names: the columns of its first rows; ranked, asked: which hashes are wanted."""

    located: Located
    columns: Columns
    names: Sequence[str]
    data: DataConfig
    ranked: bool = False
    asked: bool = False

    @classmethod
    def of(cls, located: Located, data: DataConfig, **wanted: bool) -> RowReader:
        """Choose the columns of a source by the names that its first rows have. Raises InputError: they do not tell."""
        if located.spec.as_asked:
            data = replace(data, mapping=ColumnMapping(), schema_prompt=None)
        first = [row for row in first_rows(located) if not row.fault]
        names = list(dict.fromkeys(name for row in first for name in row.fields))
        columns = choose_columns(names, data.mapping, str(located)) if first else Columns("text", text="text")
        return cls(located, columns, names, data, **wanted)

    def __call__(self, part: FileSlice) -> Iterator[RowBatch]:
        """Yield rows of a file. Raises InputError: a column that came too late."""
        raws = enumerate(islice(rows_of(part.file), part.start, part.stop), part.start)
        names = dict.fromkeys(self.names)
        is_hashed = self.ranked or self.asked or self.data.filters.deduplicate != "off"
        while some := list(islice(raws, _BATCH_ROWS)):
            batch, unread = RowBatch(part.file, RowReport(len(some))), set[str]()
            for number, raw in some:
                if not raw.fields.keys() <= names.keys():
                    self._require_known(raw, names)
                if (row := self._good_row(raw, batch.report)) is not None:
                    batch.rows.append(row)
                    batch.numbers.append(number)
                    if row.unread:
                        unread |= row.unread
                    if is_hashed:
                        self._hash(row, batch.hashes)
            batch.report.unread = [*self.columns.unread(names), *sorted(unread)]
            yield batch

    def _row(self, raw: RawRow) -> Row:
        if raw.fault:
            raise BadRow(raw.fault)
        row, shown = to_row(raw.fields, self.columns, self.data.mapping, raw.where), self.data.schema_prompt
        if shown is None:
            return row
        if not row.is_pair or [turn["role"] for turn in row.messages[-2:]] != ["user", "assistant"]:
            raise BadRow("it does not end with one question and its answer, so no schema_prompt")
        try:
            row.input = show_database(shown, row.database, row.input, row.messages[-2]["content"], row.answer)
        except InputError as error:
            raise BadRow(error.message) from error
        return row

    def _good_row(self, raw: RawRow, report: RowReport) -> Row | None:
        try:
            row = self._row(raw)
        except BadRow as bad:
            report.drop(str(bad), raw.where)
            return None
        filters = self.data.filters
        if (filters.min_chars or filters.max_chars) and (reason := filters.reason(len(row))):
            report.filtered[reason] += 1
            return None
        return row

    def _hash(self, row: Row, hashes: dict[str, list[bytes]]) -> None:
        by = self.data.filters.deduplicate
        said = "\0".join(row.content()) if by == "row" or self.ranked else ""
        if by != "off":
            hashes["repeats"].append(digest(said if by == "row" else row.answer))
        if self.ranked:
            hashes["ranks"].append(digest(f"{self.data.seed}:{said}"))
        if self.asked:
            hashes["asked"].append(asked_hash(*row.question))

    def _require_known(self, raw: RawRow, names: dict[str, None]) -> None:
        """Refuse a column that is not in the first rows and would have been read."""
        new = [name for name in raw.fields if name not in names]
        names.update(dict.fromkeys(new))
        with suppress(InputError):
            if choose_columns([*names], self.data.mapping, str(self.located)) == self.columns:
                return
        raise InputError(
            f"{raw.where}: {', '.join(map(json.dumps, new))} stands in none of the first {FIRST_ROWS} rows, by which "
            f"the columns were chosen: {self.columns}",
            'Name the columns in "field_mapping" of training.dataset, or put such a row first.',
        )


@dataclass
class RowSelection:
    """The good rows of all sources, by their numbers from 0, and how often each is taken for a split.

    readers: one a source, those that train first; training_sources: how many train. numbers: of the rows of each batch, the
    file and their numbers in it. source: int [rows], of which source each is. hashes: S16 [rows], by name. copies: int32
    [rows], by split. reports: by split. kept: the rows, where they are in memory.
    """

    readers: list[RowReader]
    training_sources: int
    numbers: list[tuple[DataFile, NDArray[np.int64]]]
    source: NDArray[np.int64]
    hashes: dict[str, NDArray[np.bytes_]]
    copies: dict[Split, NDArray[np.int32]] = field(default_factory=dict)
    reports: dict[Split, RowReport] = field(default_factory=dict)
    kept: Sequence[Row] = ()

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits that have rows."""
        return tuple(split for split, copies in self.copies.items() if split == "train" or copies.any())

    def taken(self, split: Split) -> list[NDArray[np.int64]]:
        """Return the rows that are taken of each source: all once, then those taken twice once more."""
        copies, found = self.copies[split], []
        is_own = split == "validation" and self.training_sources < len(self.readers)
        for one in range(self.training_sources, len(self.readers)) if is_own else range(self.training_sources):
            rows = np.flatnonzero((self.source == one) & (copies > 0))
            rounds = (rows[copies[rows] > turn] for turn in range(1, int(copies[rows].max(initial=0))))
            found.append(np.concatenate([rows, *rounds]))
        return found

    def rows(self, split: Split = "train") -> Iterator[Row]:
        """Yield the rows of a split, source by source."""
        return (self.kept[number] for rows in self.taken(split) for number in rows)

    def place(self, number: int) -> str:
        """Return where a row stands."""
        for file, within in self.numbers:
            if number < len(within):
                return f"{short_place(str(file))}:row {within[number] + 1}"
            number -= len(within)
        raise IndexError(number)


def first_rows(located: Located) -> list[RawRow]:
    """Return the first rows of a source's files, whatever its slice, by which its columns are chosen."""
    return list(islice(chain.from_iterable(map(rows_of, located.files)), FIRST_ROWS))


def select_rows(
    data: DataConfig, located: LocatedData, reporter: Reporter, *, bad_share: float = BAD_SHARE
) -> RowSelection:
    """Read the rows of all sources into memory, and decide which are taken.

    Raises InputError: a source with more than `bad_share` bad rows or no good one, columns that cannot be told, sources of
    different forms, a split that leaves nothing; EnvironmentProblem: a file that cannot be read.
    """
    kept: list[Row] = []

    def keep(batch: RowBatch) -> None:
        kept.extend(batch.rows)

    return replace(select(data, located, reporter, lambda reader: reader, keep, bad_share=bad_share), kept=kept)


def select(
    data: DataConfig,
    located: LocatedData,
    reporter: Reporter,
    made_of: Callable[[RowReader], Callable[[FileSlice], Iterator[Batch]]],
    keep: Callable[[Batch], None],
    *,
    flat_map: FlatMap = local_flat_map,
    bad_share: float = BAD_SHARE,
    asked: bool = False,
) -> RowSelection:
    """Read the rows of all sources, give `keep` what `made_of` makes of them, in order, and decide which rows are taken.

    asked: questions that stand on both sides are to be found. Raises what `select_rows` does.
    """
    ranked = bool(data.validation_share) and not located.validation
    readers: list[RowReader] = []
    reports: list[RowReport] = []
    numbers: list[tuple[DataFile, NDArray[np.int64]]] = []
    source: list[int] = []
    hashes: dict[str, list[bytes]] = {"repeats": [], "ranks": [], "asked": []}
    with reporter.progress("reading rows", None, "rows") as bar:
        for sources in (located.train, located.validation):
            for one in sources:
                reader = RowReader.of(one, data, ranked=ranked, asked=asked)
                form, before = reader.columns.form, readers[-1].columns.form if one is not sources[0] else ""
                if before not in ("", form):
                    told = f"{one}: rows are {form} ({reader.columns}), those of {readers[-1].located} are {before}"
                    raise InputError(told, "Train on rows of one kind: messages, text, segments, pair.")
                report = RowReport(mapping=str(reader.columns))
                for batch in flat_map(made_of(reader), _file_slices(one)):
                    keep(batch)
                    report.add(batch.report)
                    numbers.append((batch.file, np.array(batch.numbers, np.int64)))
                    source.append(len(readers))
                    for name, joined in hashes.items():
                        joined.append(b"".join(batch.hashes[name]))
                    bar.update(report.read)
                _refuse_bad(one, report, bad_share)
                readers.append(reader)
                reports.append(report)
    of_source = np.repeat(np.array(source, np.int64), [len(some) for _, some in numbers])
    found_hashes = {name: np.frombuffer(b"".join(joined), "S16") for name, joined in hashes.items()}
    found = RowSelection(readers, len(located.train), numbers, of_source, found_hashes)
    _choose(found, "train", range(found.training_sources), reports, reporter)
    _choose(found, "validation", range(found.training_sources, len(readers)), reports, reporter)
    if ranked:
        _split(found, data.validation_share)
    return found


def _refuse_bad(located: Located, report: RowReport, share: float) -> None:
    if not report.read:
        raise InputError(f"{located}: there are no rows", "Look at the file, and at the slice if there is one.")
    if report.dropped.total() > share * report.read:
        raise InputError(
            f"{located}: {report.bad()}",
            f"Mend these rows, or take them out; up to {share:.0%} are left out with a warning. What a chat template "
            'refuses, another base model, "prompt_template" or "chat_template_path" may write.',
        )


def _file_slices(located: Located) -> list[FileSlice]:
    """The rows of a slice, file by file; bad ones count, so that "train[:100]" is the same rows once they are mended."""
    split = parse_split(located.spec.split)
    if not (split.start or split.stop):
        return [FileSlice(file, 0, sys.maxsize) for file in located.files]
    left, at = sys.maxsize if split.rows_needed is None else split.rows_needed, 0
    whole = []
    for file in located.files:
        size = sum(1 for _ in islice(rows_of(file), left))
        whole.append(FileSlice(file, at, at + size))
        left, at = left - size, at + size
    rows = split.rows(at)
    slices = [FileSlice(file, max(rows.start, a) - a, min(rows.stop, b) - a) for file, a, b in whole]
    return [part for part in slices if part.start < part.stop]


def _choose(
    found: RowSelection, split: Split, sources: range, reports: Sequence[RowReport], reporter: Reporter
) -> None:
    """Decide how often each row of a split's sources is taken; repeated rows are looked for over all of them."""
    total, copies = RowReport(), np.zeros(len(found.source), np.int32)
    is_repeated = np.zeros(len(found.source), np.bool_)
    if len(said := found.hashes["repeats"]):
        mine = np.flatnonzero((found.source >= sources.start) & (found.source < sources.stop))
        is_repeated[mine] = True
        is_repeated[mine[np.unique(said[mine], return_index=True)[1]]] = False
    for number, source in enumerate(sources):
        reader, report = found.readers[source], reports[source]
        located, spec, data = reader.located, reader.located.spec, reader.data
        is_mine = found.source == source
        repeats, rows = np.flatnonzero(is_mine & is_repeated), np.flatnonzero(is_mine & ~is_repeated)
        if len(repeats):
            report.filtered[data.filters.repeated] += len(repeats)
        filtered = [f"{count} {reason}" for reason, count in report.filtered.items()]
        if not len(rows):
            told = f"{located}: no row of {report.read - report.dropped.total()} is left ({', '.join(filtered)})"
            raise InputError(told, 'Loosen "filters".')
        weight = _replayed(located, len(rows), int(copies.sum()), reporter) if spec.share else spec.weight
        copies[rows] = repeat_counts(len(rows), weight, data.seed, str(number))
        unread = f"; not read: {', '.join(report.unread)}" if report.unread else ""
        reporter.info(f"{located}: {', '.join([f'{len(rows)} rows', *filtered])}; {report.mapping}{unread}")
        if report.dropped:
            reporter.warning(f"{located}: left out: {report.bad()}")
        total.add(report)
    found.copies[split], found.reports[split] = copies, total


def _replayed(located: Located, rows: int, others: int, reporter: Reporter) -> float:
    """Return the weight by which the rows of a source are its share of all: beside `others`, those of the sources before."""
    wanted = max(1, round(located.spec.share / (1 - located.spec.share) * others))
    told = f"{located}: {min(wanted, rows)} rows are trained again beside {others} others"
    if wanted > rows:
        reporter.warning(f"{told}: there are no more, replay.share {located.spec.share:g} asks for {wanted}")
    else:
        reporter.info(told)
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


def _split(found: RowSelection, share: float) -> None:
    """Let rows evaluate, each once, however often it would have trained.

    Equal rows stay on one side, so that no row that trains is evaluated; the share is met from above by less than one such
    group, and is at least one row. Raises InputError where no row would be left to train.
    """
    train = found.copies["train"]
    taken = np.flatnonzero(train)
    ranks = found.hashes["ranks"][taken]
    order = np.argsort(ranks, kind="stable")
    group_ends = np.append(np.flatnonzero(ranks[order][1:] != ranks[order][:-1]) + 1, len(order))
    wanted = max(1, round(share * len(order)))
    held = taken[order[: group_ends[np.searchsorted(group_ends, wanted)]]]
    if len(held) == len(taken):
        told = f"{len(taken)} rows ({len(group_ends)} different ones) cannot be split for evaluation (share {share})"
        raise InputError(told, "Name validation rows of their own, or train on more rows.")
    train[held], found.copies["validation"][held] = 0, 1
    found.reports["validation"] = RowReport(len(held), mapping=found.reports["train"].mapping)
