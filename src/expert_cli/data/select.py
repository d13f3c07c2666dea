"""Which rows of the sources are taken, and how often: slices, filters, repeats, weights, the split of validation rows.

The files are read once. Everything that needs a count or another row is decided afterwards, by hashes of 16 bytes that are
kept of each good row where they are needed. Where chance decides, rows are ordered by a keyed hash, never by a random
generator whose algorithm may change.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from expert_cli.config.data_sources import parse_split
from expert_cli.config.run_config import DataConfig
from expert_cli.data.columns import Columns, choose_columns, find_column, listed
from expert_cli.data.overlap import asked_hash
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
_BATCH_ROWS = 1_000
_MOST_EXAMPLES, _MOST_ALIKE, _MOST_LEFT_OUT = 5, 2, 3
Split = Literal["train", "validation"]
FlatMap: TypeAlias = Callable[[Callable[[Any], Iterator[Any]], Sequence[Any]], Iterator[Any]]
"""Calls a function with each of some things, and yields what the calls yield, in order: here, or on other machines."""
Hashes: TypeAlias = defaultdict[str, bytearray]


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

    def told(self, what: str = "are bad") -> str:
        """Return in words how many rows are bad, and the first ones."""
        bad = self.dropped.total()
        more = "; ..." if bad > len(self.examples) else ""
        return f"{bad} of {self.read} rows {what}: {'; '.join(self.examples)}{more}"

    def add(self, other: RowReport) -> None:
        """Add what became of other rows; of each reason the first few examples stay."""
        self.read += other.read
        self.trailing += other.trailing
        for told in other.examples:
            if len(self.examples) < _MOST_EXAMPLES and self.dropped[told.partition(": ")[2]] < _MOST_ALIKE:
                self.examples.append(told)
        self.dropped.update(other.dropped)
        self.filtered.update(other.filtered)
        for reason, examples in other.left_out.items():
            self.left_out[reason] = [*self.left_out.get(reason, ()), *examples][:_MOST_LEFT_OUT]
        self.ignored = list(dict.fromkeys([*self.ignored, *other.ignored]))
        self.mapping = "; ".join(dict.fromkeys(filter(None, [*self.mapping.split("; "), other.mapping])))

    def refuse_bad(self, where: str, share: float) -> None:
        """Raise InputError where more than so large a share of the rows is bad, or there is none."""
        if not self.read:
            raise InputError(f"{where}: there are no rows", "Look at the file, and at the slice if there is one.")
        if self.dropped.total() > share * self.read:
            raise InputError(
                f"{where}: {self.told()}",
                f"Mend these rows, or take them out; up to {BAD_SHARE:.0%} are left out with a warning. What a chat template "
                'refuses, another base model, "prompt_template" or "chat_template_path" may write.',
            )


class FileSlice(NamedTuple):
    """Rows of a file, by their numbers in it."""

    file: DataFile
    start: int
    stop: int


@dataclass
class RowBatch:
    """Rows of a file that were read one after the other. place: all of them; rows: the good ones; report: what became of all.

    hashes: where they are wanted, 16 bytes of each good row: "repeats" are equal for repeated rows, "asked" for one question,
    and "ranks" are their order for the validation split. usable: a byte a good row, 0 where it cannot be trained after all.
    """

    place: FileSlice
    report: RowReport
    rows: list[Row] = field(default_factory=list)
    hashes: Hashes = field(default_factory=lambda: defaultdict(bytearray))
    usable: bytes = b""


@dataclass(frozen=True)
class RowReader:
    """Reads rows of a source's files. names: the columns of its first rows; ranked, asked: which hashes are wanted."""

    located: Located
    columns: Columns
    names: Sequence[str]
    data: DataConfig
    ranked: bool = False
    asked: bool = False

    def __call__(self, part: FileSlice) -> Iterator[RowBatch]:
        """Yield rows of a file. Raises InputError: a column that came too late."""
        raws, start = islice(rows_of(part.file), part.start, part.stop), part.start
        names, shapes = list(self.names), set[tuple[str, ...]]()
        while some := list(islice(raws, _BATCH_ROWS)):
            batch = RowBatch(FileSlice(part.file, start, start + len(some)), RowReport(len(some)))
            unread = set[str]()
            for raw in some:
                if not raw.fault and (shape := tuple(raw.fields)) not in shapes:
                    shapes.add(shape)
                    self._require_known(raw, names)
                if (row := self._good_row(raw, batch.report)) is not None:
                    unread |= row.unread
                    self._add(row, batch)
            batch.usable = b"\1" * len(batch.rows)
            within = getattr(self.columns, {"pair": "response"}.get(self.columns.form, self.columns.form))
            batch.report.ignored = [*self.columns.unread(names), *(f"{within}[].{name}" for name in sorted(unread))]
            start += len(some)
            yield batch

    def _good_row(self, raw: RawRow, report: RowReport) -> Row | None:
        try:
            row = _row(raw, self.columns, self.data)
        except BadRow as bad:
            report.drop(str(bad), raw.where)
            return None
        except NotTrained:
            report.filtered["not to be trained"] += 1
            return None
        report.trailing += row.trailing
        filters = self.data.filters
        if (filters.min_chars or filters.max_chars) and (reason := filters.reason(len(row))):
            report.leave_out(reason, row)
            return None
        return row

    def _add(self, row: Row, batch: RowBatch) -> None:
        batch.rows.append(row)
        by = self.data.filters.deduplicate if self.data.filters.repeated else ""
        said = "\0".join(row.content()) if by == "row" or self.ranked else ""
        if by:
            batch.hashes["repeats"] += digest(said if by == "row" else row.answer)
        if self.ranked:
            batch.hashes["ranks"] += digest(f"{self.data.seed}:{said}")
        if self.asked:
            batch.hashes["asked"] += asked_hash(*row.question)

    def _require_known(self, raw: RawRow, names: list[str]) -> None:
        """Refuse a column that is not in the first rows and would have been read."""
        if new := [name for name in raw.fields if name not in names]:
            names += new
            try:
                chosen = choose_columns(names, self.data.mapping, str(self.located))
                same = replace(chosen, weight="", train="") == replace(self.columns, weight="", train="")
            except InputError:
                same = False
            if not same:
                raise InputError(
                    f"{raw.where}: {', '.join(map(json.dumps, new))} stands in none of the first {FIRST_ROWS} rows, by which "
                    f"the columns were chosen: {self.columns}",
                    'Name the columns in "field_mapping" of training.dataset, or put such a row first.',
                )


Batch = TypeVar("Batch", bound=RowBatch)


@dataclass
class SelectedSource:
    """One source: what is kept of its good rows, as of a batch, and where the batches are, with the number of their first row.

    first: the number of its first good row among those of all sources; copies: int32 [rows], how often each is taken.
    """

    reader: RowReader
    first: int
    report: RowReport
    places: list[tuple[int, FileSlice]] = field(default_factory=list)
    hashes: Hashes = field(default_factory=lambda: defaultdict(bytearray))
    usable: bytearray = field(default_factory=bytearray)
    copies: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))

    def __len__(self) -> int:
        """Return how many rows are taken, repeats counted."""
        return int(self.copies.sum())

    @property
    def located(self) -> Located:
        """Where it lies."""
        return self.reader.located

    @property
    def columns(self) -> Columns:
        """Its columns."""
        return self.reader.columns

    def add(self, batch: RowBatch) -> None:
        """Add the rows that follow."""
        self.report.add(batch.report)
        self.places.append((self.first + len(self.usable), batch.place))
        self.usable += batch.usable
        for name, more in batch.hashes.items():
            self.hashes[name] += more

    def taken(self) -> NDArray[np.int64]:
        """Return the numbers of the rows that are taken: all once, then those taken twice once more."""
        rounds = [np.flatnonzero(self.copies > turn) for turn in range(int(self.copies.max(initial=0)))]
        return np.concatenate([np.empty(0, np.int64), *rounds]) + self.first

    def row(self, number: int) -> Row:
        """Read one row again. Raises InputError: its file is not what it was."""
        first, place = self.places[bisect_right(self.places, number, key=lambda one: one[0]) - 1]
        try:
            return next(islice(self.reader(place), 1)).rows[number - first]
        except (StopIteration, IndexError) as error:
            raise InputError(f"{place.file}: changed while it was read", "Start again.") from error


@dataclass(frozen=True)
class RowSelection:
    """All sources, decided. validation: those that evaluate, each row once; () where none do. kept: rows, by their numbers."""

    train: tuple[SelectedSource, ...]
    validation: tuple[SelectedSource, ...]
    train_report: RowReport
    validation_report: RowReport
    kept: Sequence[Row] = ()

    def sources(self, split: Split) -> tuple[SelectedSource, ...]:
        """Return the sources of a split."""
        return self.train if split == "train" else self.validation

    def rows(self, split: Split = "train") -> Iterator[Row]:
        """Yield the rows of a split, source by source."""
        return (self.kept[number] for source in self.sources(split) for number in source.taken())


def first_rows(located: Located) -> list[RawRow]:
    """Return the first rows of a source's files, whatever its slice, by which its columns are chosen."""
    return list(islice(chain.from_iterable(map(rows_of, located.files)), FIRST_ROWS))


def _names(rows: Sequence[RawRow]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.fields))


def source_columns(located: Located, data: DataConfig) -> Columns:
    """Return the columns of a source, by the names that its first rows have. Raises InputError: they do not tell."""
    first = [row for row in first_rows(located) if not row.fault]
    if not first:
        return Columns("text", text="text")
    columns = choose_columns(_names(first), data.mapping, str(located))
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
    names: list[str] = []
    with suppress(ExpertError):
        for located in locate_data(here, NullReporter()).train:
            names = _names(first_rows(located))
    reason = f"names no column of the first rows; these have: {listed(names)}"
    columns = data.mapping.columns().items() if names else ()
    return {role: reason for role, column in columns if not find_column(column, names)}


def first_good_rows(data: DataConfig, located: Located, count: int = 64) -> list[Row]:
    """Return the good ones of the first rows of a source, whatever its slice: for a look, not for training."""
    columns = source_columns(located, data)
    found: list[Row] = []
    for raw in first_rows(located):
        with suppress(BadRow, NotTrained):
            found.append(_row(raw, columns, data))
    return found[:count]


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
    rows = 0

    def read(sources: Sequence[Located]) -> tuple[tuple[SelectedSource, ...], RowReport]:
        nonlocal rows
        found: list[SelectedSource] = []
        for one in sources:
            columns = source_columns(one, data)
            if found and columns.form != found[0].columns.form:
                raise InputError(
                    f"{one}: rows are {columns.form} ({columns}), those of {sources[0]} are {found[0].columns.form}",
                    "Train on rows of one kind: messages, text, segments, pair.",
                )
            reader = RowReader(one, columns, _names(first_rows(one)), data, ranked, asked)
            source = SelectedSource(reader, rows, RowReport(mapping=str(columns)))
            for batch in flat_map(made_of(reader), _file_slices(one)):
                source.add(batch)
                keep(batch)
                bar.update(rows + len(source.usable))
            rows += len(source.usable)
            source.report.refuse_bad(str(one), bad_share)
            found.append(source)
        return tuple(found), _choose(found, data, reporter)

    with reporter.progress("reading rows", None, "rows") as bar:
        (train, report), (held, held_report) = read(located.train), read(located.validation)
    if not ranked:
        return RowSelection(train, held, report, held_report)
    train, held = _split(train, data.validation_share)
    return RowSelection(train, held, report, RowReport(sum(map(len, held)), mapping=report.mapping))


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


def _choose(sources: Sequence[SelectedSource], data: DataConfig, reporter: Reporter) -> RowReport:
    """Decide how often each row is taken; repeated rows are looked for over all sources."""
    total = RowReport()
    seen: set[bytes] = set()
    for number, source in enumerate(sources):
        located, report = source.located, source.report
        good = np.frombuffer(source.usable, np.bool_).copy()
        if by := data.filters.repeated:
            repeats = [
                row for row, said in enumerate(_hashes(source.hashes["repeats"])) if good[row] and _is_known(said, seen)
            ]
            for row in repeats[:_MOST_LEFT_OUT]:
                report.leave_out(by, source.row(source.first + row))
            report.filtered[by] += len(repeats[_MOST_LEFT_OUT:])
            good[repeats] = False
        count, spec = int(good.sum()), located.spec
        if not count:
            reasons = ", ".join(f"{reason}: {count}" for reason, count in report.filtered.items())
            raise InputError(
                f"{located}: no row of {report.read - report.dropped.total()} is left ({reasons})",
                'Loosen "filters", or mend "weight" and "train" of the rows.',
            )
        weight = spec.weight if spec.max_rows is None else min(spec.weight, spec.max_rows / count)
        if spec.share:
            weight = _replayed(located, count, sum(map(len, sources[:number])), reporter)
        source.copies = np.zeros(len(good), np.int32)
        source.copies[good] = repeat_counts(count, weight, data.seed, str(number)) * np.int32(spec.repeat)
        filtered = "".join(f", {count} {reason}" for reason, count in report.filtered.items())
        unread = f"; not read: {', '.join(report.unread())}" if report.unread() else ""
        reporter.info(f"{located}: {count} rows{filtered}; {report.mapping}{unread}")
        if report.dropped:
            reporter.warning(f"{located}: {report.told('are bad and left out')}")
        total.add(report)
    return total


def _hashes(joined: bytearray) -> list[bytes]:
    found: list[bytes] = np.frombuffer(joined, "V16").tolist()
    return found


def _is_known(said: bytes, seen: set[bytes]) -> bool:
    """Whether a text was there before; it is noted."""
    before = len(seen)
    seen.add(said)
    return len(seen) == before


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
    sources: Sequence[SelectedSource], share: float
) -> tuple[tuple[SelectedSource, ...], tuple[SelectedSource, ...]]:
    """Return the sources as they train, and as they evaluate: each evaluated row once, however often it would have trained.

    Equal rows stay on one side, so that no row that trains is evaluated; the share is met from above by less than one such
    group, and is at least one row. Raises InputError where no row would be left to train.
    """
    taken = [np.flatnonzero(source.copies) for source in sources]
    ranks = np.concatenate(
        [np.frombuffer(one.hashes["ranks"], "S16")[rows] for one, rows in zip(sources, taken, strict=True)]
    )
    order = np.argsort(ranks, kind="stable")
    group_ends = np.append(np.flatnonzero(ranks[order][1:] != ranks[order][:-1]) + 1, len(order))
    wanted = max(1, round(share * len(order)))
    held = order[: group_ends[np.searchsorted(group_ends, wanted)]]
    if len(held) == len(order):
        raise InputError(
            f"{len(order)} rows ({len(group_ends)} different ones) cannot be split for evaluation (share {share})",
            "Name validation rows of their own, or train on more rows.",
        )
    is_held = np.zeros(len(order), np.bool_)
    is_held[held] = True
    train, evaluated = [], []
    for source, rows, mine in zip(sources, taken, np.split(is_held, np.cumsum([*map(len, taken)])[:-1]), strict=True):
        trained, once = source.copies.copy(), np.zeros_like(source.copies)
        trained[rows[mine]], once[rows[mine]] = 0, 1
        train.append(replace(source, copies=trained))
        evaluated.append(replace(source, copies=once))
    return tuple(train), tuple(evaluated)
