"""Selects rows of the sources: slices, filters, deduplication, weights, and the validation split.

Files are read once, except to count the rows for a slice. Decisions that depend on counts or on other rows are made afterwards,
by 16-byte hashes of the good rows. Random choices sort rows by a keyed hash, because a random generator may change.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, islice
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from expert_cli.config.data_sources import parse_split
from expert_cli.config.run_config import ColumnMapping, DataConfig
from expert_cli.data.columns import BadRow, Columns, choose_columns
from expert_cli.data.database_prompt import schema_prompt
from expert_cli.data.encode import EMPTY, Encoded, Encoder
from expert_cli.data.reading import RawRow, rows_of
from expert_cli.data.rows import Row, asked_hash, digest, to_row
from expert_cli.data.sources import DataFile, Located, LocatedData
from expert_cli.data.templates.mask import Rendered
from expert_cli.errors import InputError
from expert_cli.utils.reporter import Reporter

FIRST_ROWS = 200  # rows of a source that decide its columns
BAD_SHARE = 0.01  # the largest share of bad rows in a source that is accepted
_BATCH_ROWS = 1_000
_MOST_EXAMPLES = 5
Split = Literal["train", "validation"]
FlatMap: TypeAlias = Callable[[Callable[[Any], Iterator[Any]], Sequence[Any]], Iterator[Any]]
"""Calls a function with each item and yields the results of all calls in order, here or on other machines."""


def local_flat_map(function: Callable[[Any], Iterator[Any]], things: Sequence[Any]) -> Iterator[Any]:
    """Call the function in this process."""
    return chain.from_iterable(map(function, things))


@dataclass
class RowReport:
    """The numbers of rows that were read, dropped and filtered.

    dropped: bad rows by reason; examples: the first few, with their places. filtered: good rows left out, by reason. unread:
    columns, keys of messages ("messages[].id") and turns that are not read. forms: number of whole texts by form.
    """

    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    examples: list[tuple[str, str]] = field(default_factory=list)
    filtered: Counter[str] = field(default_factory=Counter)
    unread: dict[str, None] = field(default_factory=dict)
    forms: Counter[str] = field(default_factory=Counter)

    def drop(self, reason: str, where: str) -> None:
        """Count a bad row."""
        self.dropped[reason] += 1
        self.examples = [*self.examples, (where, reason)][:_MOST_EXAMPLES]

    def bad(self) -> str:
        """Return the number of bad rows in words, with the first example of each reason."""
        bad, first = self.dropped.total(), dict[str, str]()
        for where, reason in self.examples:
            first.setdefault(reason, f"{where}: {reason}")
        more = "; ..." if bad > len(first) else ""
        return f"{bad} of {self.read} rows are bad: {'; '.join(first.values())}{more}"

    def add(self, other: RowReport) -> None:
        """Add the report on the rows that follow."""
        self.read += other.read
        self.examples = [*self.examples, *other.examples][:_MOST_EXAMPLES]
        for mine, its in ((self.dropped, other.dropped), (self.filtered, other.filtered), (self.forms, other.forms)):
            mine.update(its)
        self.unread |= other.unread


FileSlice: TypeAlias = tuple[DataFile, int, int | None]
"""A file, and the numbers of its rows that are used: start, and stop (exclusive)."""


@dataclass
class RowBatch:
    """Good rows of a file in order, encoded if there is an encoder, and the report on all rows read.

    counts: int64 [rows], documents with a trained token in each row. hashes: 16 bytes for each row, if requested; "repeats" are
    equal for duplicates, "asked" for equal questions, and "ranks" order the rows for the validation split.
    """

    report: RowReport
    rows: list[Row] = field(default_factory=list)
    encoded: Encoded = EMPTY
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    hashes: dict[str, list[bytes]] = field(default_factory=lambda: {"repeats": [], "ranks": [], "asked": []})


@dataclass(frozen=True)
class RowReader:
    """Reads rows of a source. names: the columns of its first rows; ranked, asked: which hashes are requested."""

    located: Located
    columns: Columns
    names: Sequence[str]
    data: DataConfig
    encoder: Encoder | None = None
    ranked: bool = False
    asked: bool = False

    @classmethod
    def of(cls, located: Located, data: DataConfig, **more: Any) -> RowReader:
        """Choose a source's columns by the names in its first rows. Raises InputError if the choice is not clear."""
        if located.spec.as_asked:
            data = replace(data, mapping=ColumnMapping(), schema_prompt=None)
        raws = chain.from_iterable(map(rows_of, located.files))
        first = [row for row in islice(raws, FIRST_ROWS) if not row.fault]
        names = list(dict.fromkeys(name for row in first for name in row.fields))
        columns = choose_columns(names, data.mapping, str(located)) if first else Columns("text", text="text")
        return cls(located, columns, names, data, **more)

    def __call__(self, part: FileSlice) -> Iterator[RowBatch]:
        """Yield rows of a file, encoded in threads while the next rows are read. Raises InputError for a late column."""
        waiting: deque[Future[RowBatch]] = deque()
        with ThreadPoolExecutor(2) as thread:
            for batch in self._batches(*part):
                waiting.append(thread.submit(self._encoded, batch, self._rendered(batch)))
                if len(waiting) > 16:  # limits memory
                    yield waiting.popleft().result()
            yield from (done.result() for done in waiting)

    def _batches(self, file: DataFile, start: int, stop: int | None) -> Iterator[RowBatch]:
        raws, names = islice(rows_of(file), start, stop), dict.fromkeys(self.names)
        while some := list(islice(raws, _BATCH_ROWS)):
            batch = RowBatch(RowReport(len(some)))
            for raw in some:
                if not raw.fields.keys() <= names.keys():
                    self._require_known(raw, names)
                if (row := self._good_row(raw, batch.report)) is not None:
                    batch.rows.append(row)
            unread = set[str]().union(*(row.unread for row in batch.rows))
            batch.report.unread = dict.fromkeys([*self.columns.unread(names), *sorted(unread)])
            yield batch

    def _rendered(self, batch: RowBatch) -> list[list[Rendered]]:
        """Format rows with the template and hash them; rows that the template refuses are bad."""
        documents: list[list[Rendered]] = []
        if self.encoder:
            template, rows = self.encoder.template, batch.rows
            batch.rows = []
            for row, written in zip(rows, template.documents(rows), strict=True):
                if isinstance(written, str):
                    batch.report.drop(written, row.where)
                else:
                    batch.rows.append(row)
                    documents.append(written)
            batch.report.forms.update(template.forms)
            template.forms.clear()
        by, hashes = self.data.filters.deduplicate, batch.hashes
        for row in batch.rows if self.ranked or self.asked or by != "off" else ():
            said = "\0".join(row.content()) if by == "row" or self.ranked else ""
            if by != "off":
                hashes["repeats"].append(digest(said if by == "row" else row.answer))
            if self.ranked:
                hashes["ranks"].append(digest(f"{self.data.seed}:{said}"))
            if self.asked:
                asked, below = row.question
                hashes["asked"].append(asked_hash(asked, below if row.given is None else row.given or row.database))
        return documents

    def _encoded(self, batch: RowBatch, documents: list[list[Rendered]]) -> RowBatch:
        batch.counts = np.ones(len(batch.rows), np.int64)
        if self.encoder:
            batch.encoded, trained = self.encoder.encode([*chain(*documents)]).trained_only()
            row_of = np.repeat(np.arange(len(documents)), [*map(len, documents)])
            batch.counts, batch.rows = np.bincount(row_of[trained], minlength=len(documents)), []
        return batch

    def _row(self, raw: RawRow) -> Row:
        if raw.fault:
            raise BadRow(raw.fault)
        row = to_row(raw.fields, self.columns, self.data.mapping, raw.where)
        if shown := self.data.schema_prompt:
            if not row.is_pair or [turn["role"] for turn in row.messages[-2:]] != ["user", "assistant"]:
                raise BadRow("schema_prompt needs a row that ends with a question and its answer")
            file = shown.file_named(row.database) if row.database else None
            row.given = row.input
            row.input = schema_prompt(shown, row.messages[-2]["content"], row.input, file, row.answer)
        return row

    def _good_row(self, raw: RawRow, report: RowReport) -> Row | None:
        try:
            row = self._row(raw)
        except (BadRow, InputError) as bad:  # InputError: from the row's database
            report.drop(str(bad), raw.where)
            return None
        filters = self.data.filters
        if (filters.min_chars or filters.max_chars) and (reason := filters.reason(len(row))):
            report.filtered[reason] += 1
            return None
        return row

    def _require_known(self, raw: RawRow, names: dict[str, None]) -> None:
        """Raise InputError for a new column that would change the choice of columns."""
        new = [name for name in raw.fields if name not in names]
        names.update(dict.fromkeys(new))
        with suppress(InputError):
            if choose_columns([*names], self.data.mapping, str(self.located)) == self.columns:
                return
        named = ", ".join(map(json.dumps, new))
        told = f"{named} is in none of the first {FIRST_ROWS} rows, which decide the columns: {self.columns}"
        hint = 'name the columns in "field_mapping" of training.dataset, or put such a row first'
        raise InputError(f"{raw.where}: {told}", hint)


@dataclass
class RowSelection:
    """The good rows of all sources, and how often each split uses each row.

    readers: one for each source, training sources first; training_sources: their number. source: int [rows], the source of
    each row. hashes: S16 [rows]. copies: int32 [rows], by split. kept: the rows, if they are in memory.
    """

    readers: list[RowReader]
    training_sources: int
    source: NDArray[np.int64]
    hashes: dict[str, NDArray[np.bytes_]]
    copies: dict[Split, NDArray[np.int32]] = field(default_factory=dict)
    reports: dict[Split, RowReport] = field(default_factory=dict)
    kept: Sequence[Row] = ()

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits with rows."""
        return tuple(split for split, copies in self.copies.items() if split == "train" or copies.any())

    def taken(self, split: Split) -> list[NDArray[np.int64]]:
        """Return the row numbers of a split by source: every row once, then again the rows that are used twice, and so on."""
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


def select_rows(
    data: DataConfig, located: LocatedData, reporter: Reporter, *, bad_share: float = BAD_SHARE
) -> RowSelection:
    """Read all sources into memory and select rows. Raises InputError, EnvironmentProblem."""
    kept: list[Row] = []
    found = select(data, located, reporter, lambda batch: kept.extend(batch.rows), bad_share=bad_share)
    return replace(found, kept=kept)


def select(
    data: DataConfig,
    located: LocatedData,
    reporter: Reporter,
    keep: Callable[[RowBatch], object],
    *,
    flat_map: FlatMap = local_flat_map,
    bad_share: float = BAD_SHARE,
    encoder: Encoder | None = None,
    asked: bool = False,
) -> RowSelection:
    """Read all sources, pass the rows to `keep` in order, and select rows. asked: also hash the questions.

    Raises InputError (too many bad rows, unclear columns, a split without rows), EnvironmentProblem.
    """
    ranked = bool(data.validation_share) and not located.validation
    readers: list[RowReader] = []
    reports: list[RowReport] = []
    source: list[NDArray[np.int64]] = []
    hashes: dict[str, list[bytes]] = {"repeats": [], "ranks": [], "asked": []}
    with reporter.progress("reading rows", None, "rows") as bar:
        for number, one in enumerate((*located.train, *located.validation)):
            reader = RowReader.of(one, data, encoder=encoder, ranked=ranked, asked=asked)
            report = RowReport()
            for batch in flat_map(reader, _file_slices(one)):
                keep(batch)
                report.add(batch.report)
                source.append(np.full(len(batch.counts), number))
                for name, joined in hashes.items():
                    joined.append(b"".join(batch.hashes[name]))
                bar.update(report.read)
            if not report.read:
                raise InputError(f"{one}: there are no rows", "look at the file, and at the slice if there is one")
            if report.dropped.total() > bad_share * report.read:
                hint = f"correct or remove them, or use another prompt_template; up to {bad_share:.0%} are left out"
                raise InputError(report.bad(), hint)
            readers.append(reader)
            reports.append(report)
    found_hashes = {name: np.frombuffer(b"".join(joined), "S16") for name, joined in hashes.items()}
    found = RowSelection(readers, len(located.train), np.concatenate(source), found_hashes)
    _choose(found, "train", range(found.training_sources), reports, reporter)
    _choose(found, "validation", range(found.training_sources, len(readers)), reports, reporter)
    if ranked:
        _split(found, data.validation_share)
    return found


def _file_slices(located: Located) -> list[FileSlice]:
    """Return the rows of a slice by file. Bad rows count, so "train[:100]" means the same rows after they are corrected."""
    split = parse_split(located.spec.split)
    if not (split.start or split.stop):
        return [(file, 0, None) for file in located.files]
    sizes = [sum(1 for _ in islice(rows_of(file), split.rows_needed)) for file in located.files]
    begins = [*accumulate(sizes, initial=0)]
    rows = split.rows(begins[-1])
    parts = zip(located.files, begins, sizes, strict=False)
    slices = [(file, max(rows.start - at, 0), min(rows.stop - at, size)) for file, at, size in parts]
    return [part for part in slices if part[1] < part[2]]


def _choose(
    found: RowSelection, split: Split, sources: range, reports: Sequence[RowReport], reporter: Reporter
) -> None:
    """Decide how often each row of a split's sources is used; duplicates are searched for across all these sources."""
    total, copies = RowReport(), np.zeros(len(found.source), np.int32)
    is_first = np.ones(len(found.source), np.bool_)
    if len(said := found.hashes["repeats"]):
        mine = np.flatnonzero((found.source >= sources.start) & (found.source < sources.stop))
        is_first[:] = False
        is_first[mine[np.unique(said[mine], return_index=True)[1]]] = True
    for number, source in enumerate(sources):
        reader, report = found.readers[source], reports[source]
        located, spec, data = reader.located, reader.located.spec, reader.data
        is_mine = found.source == source
        rows = np.flatnonzero(is_mine & is_first)
        if repeats := int(is_mine.sum()) - len(rows):
            report.filtered[data.filters.repeated] += repeats
        filtered = [f"{count} {reason}" for reason, count in report.filtered.items()]
        if not len(rows):
            told = f"{located}: no row of {report.read - report.dropped.total()} is left ({', '.join(filtered)})"
            raise InputError(told, 'loosen "filters"')
        weight = _replayed(located, len(rows), int(copies.sum()), reporter) if spec.share else spec.weight
        copies[rows] = repeat_counts(len(rows), weight, data.seed, str(number))
        unread = f"; not read: {', '.join(report.unread)}" if report.unread else ""
        reporter.info(f"{located}: {', '.join([f'{len(rows)} rows', *filtered])}; {reader.columns}{unread}")
        if report.dropped:
            reporter.warning(f"{located}: left out: {report.bad()}")
        total.add(report)
    found.copies[split], found.reports[split] = copies, total


def _replayed(located: Located, rows: int, others: int, reporter: Reporter) -> float:
    """Return the weight that gives a source its share of all rows. others: the number of rows from earlier sources."""
    share = located.spec.share
    wanted = max(1, round(share / (1 - share) * others))
    told = f"; there are no more, replay.share {share:g} asks for {wanted}" if wanted > rows else ""
    reporter.info(f"{located}: {min(wanted, rows)} rows are trained again beside {others} others{told}")
    return min(1.0, wanted / rows)


def repeat_counts(rows: int, weight: float, seed: int, salt: str) -> NDArray[np.int32]:
    """Return how often each row is used. weight 0.4: 40 %, at least one, drawn by the seed; 1.5: all, half of them twice."""
    extra = max(round(weight % 1 * rows), int(0 < weight < 1 and rows > 0))
    copies = np.full(rows, int(weight), np.int32)
    if extra:
        copies[sorted(range(rows), key=lambda row: digest(f"{seed}:{salt}:{row}"))[:extra]] += 1
    return copies


def _split(found: RowSelection, share: float) -> None:
    """Move a share of the rows to validation, once each; equal rows stay together. Raises InputError if no row is left."""
    train = found.copies["train"]
    taken = np.flatnonzero(train)
    _, groups, sizes = np.unique(found.hashes["ranks"][taken], return_inverse=True, return_counts=True)
    held = taken[groups <= np.searchsorted(sizes.cumsum(), max(1, round(share * len(taken))))]
    if len(held) == len(taken):
        told = f"{len(taken)} rows ({len(sizes)} different) cannot be split for evaluation (share {share})"
        raise InputError(told, "name validation rows of their own, or train on more rows")
    train[held], found.copies["validation"][held] = 0, 1
    found.reports["validation"] = RowReport(len(held))
