"""Which rows of the sources are taken, and how often: slices, filters, repeats, weights, the split of validation rows.

Everything that needs a count or another row is decided here, in a first pass over all rows, before one is encoded. What is kept
is a number a row and, where it is needed, a hash of 16 bytes; the second pass reads the files again. Where chance decides, rows
are ordered by a keyed hash, never by a random generator whose algorithm may change.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from expert_cli.config.run_config import DataConfig, SourceSpec
from expert_cli.config.splits import parse_split
from expert_cli.data.columns import Columns, absent, choose_columns
from expert_cli.data.encode import Sample
from expert_cli.data.reading import RawRow, rows_of
from expert_cli.data.rows import BadRow, NotTrained, Row, flag_of, to_row
from expert_cli.data.schema_prompt import show_database
from expert_cli.data.sources import Located, LocatedData, locate_data
from expert_cli.errors import ExpertError, InputError
from expert_cli.utils.reporter import NullReporter, Reporter
from expert_cli.utils.text import excerpt, short_place

FIRST_ROWS = 200
"""So many rows of a source decide its columns."""
BAD_SHARE = 0.01
"""The share of bad rows in a source above which it is refused."""
NOT_TRAINED = "not to be trained"
_MOST_EXAMPLES, _MOST_ALIKE, _MOST_LEFT_OUT = 5, 2, 3
_OTHER_PROGRAMS = frozenset(("tools", "system", "system_prompt", "history"))
"""Columns that other programs train."""
Split = Literal["train", "validation"]


@dataclass
class RowReport:
    """What became of the rows that were read.

    `dropped`: bad rows by reason, the first few named in `examples`. `filtered`: good rows that a filter leaves out, or that
    say they are not to be trained, by reason; `left_out`: the first few of a filter, as (place, text). `mapping`: which column
    became what. `ignored`: columns, and fields of messages ("messages[].id"), that nothing reads. `trailing`: how many turns
    stand after the last answer of their conversation.
    """

    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    mapping: str = ""
    filtered: Counter[str] = field(default_factory=Counter)
    left_out: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
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
            examples.append((row.where, excerpt(" ".join(row.content()))))

    def filters(self) -> dict[str, Any]:
        """Return, by the reason, how many rows were left out, and the first few of them."""
        return {
            reason: {
                "rows": count,
                "examples": [{"where": short_place(at), "text": text} for at, text in self.left_out.get(reason, ())],
            }
            for reason, count in self.filtered.items()
        }

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
        if (bad := sum(self.dropped.values())) > share * self.read:
            more = "; ..." if bad > len(self.examples) else ""
            raise InputError(
                f"{where}: {bad} of {self.read} rows are bad: {'; '.join(self.examples)}{more}",
                f"Mend these rows, or take them out; up to {BAD_SHARE:.0%} are left out with a warning.",
            )


@dataclass(frozen=True)
class SelectedSource:
    """One source, decided. start: the number of the first row of its slice, from 0 over its files.

    copies: int32 [rows of the slice], how often each row is taken; 0 = bad, filtered out, not drawn, or of the other split.
    """

    located: Located
    columns: Columns
    data: DataConfig
    start: int
    copies: NDArray[np.int32]

    def __len__(self) -> int:
        """Return how many rows are taken, repeats counted."""
        return int(self.copies.sum())

    def rows(self, start: int = 0, stop: int = sys.maxsize) -> Iterator[Row]:
        """Yield the rows that are taken, by their numbers among these: all once, then those taken twice once more."""
        for turn in range(int(self.copies.max(initial=0))):
            taken = np.flatnonzero(self.copies > turn)
            mine = taken[max(start, 0) : max(stop, 0)]
            start, stop = start - len(taken), stop - len(taken)
            if len(mine):
                yield from self._numbered(mine)

    def _numbered(self, numbers: NDArray[np.int64]) -> Iterator[Row]:
        wanted = iter((numbers + self.start).tolist())
        number = next(wanted)
        for at, raw in enumerate(raw_rows(self.located)):
            if at == number:
                try:
                    yield _row(raw, self.columns, self.data)
                except (BadRow, NotTrained) as error:
                    raise InputError(
                        f"{self.located}: the files changed while they were read", "Start again."
                    ) from error
                number = next(wanted, -1)
                if number < 0:
                    return
        raise InputError(f"{self.located}: the files changed while they were read", "Start again.")


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

    def rows(self, split: Split = "train") -> Iterator[Row]:
        """Yield the rows of a split, source by source. Raises InputError: a file is not what it was."""
        return chain.from_iterable(source.rows() for source in self.sources(split))


def raw_rows(located: Located) -> Iterator[RawRow]:
    """Yield the rows of a source's files, whatever its slice."""
    return chain.from_iterable(map(rows_of, located.files))


def source_columns(located: Located, data: DataConfig) -> Columns:
    """Return the columns of a source, by the names that its first rows have. Raises InputError: they do not tell."""
    first = [row for row in islice(raw_rows(located), FIRST_ROWS) if not row.fault]
    names = dict.fromkeys(name for row in first for name in row.fields)
    if not names:
        return choose_columns(list(names), data.mapping, str(located)) if first else Columns("text", text="text")
    columns = choose_columns(list(names), data.mapping, str(located))

    def is_flag(name: str) -> bool:  # a column called weight may hold kilograms, or a factor of the loss
        try:
            return all(
                row.fields.get(name) is None or flag_of(row.fields[name], name) in (True, False) for row in first
            )
        except BadRow:
            return False

    weight, train = (name if name and is_flag(name) else "" for name in (columns.weight, columns.train))
    return replace(columns, weight=weight, train=train)


def absent_columns(data: DataConfig) -> dict[str, str]:
    """Return, by role, why a column that the manifest names is not in the first rows; reads those of what is on this machine.

    {} also where no row can be read: training says why.
    """
    here = replace(data, train=tuple(spec for spec in data.train[:1] if spec.is_local), validation=())
    names: dict[str, None] = {}
    with suppress(ExpertError):
        for located in locate_data(here, NullReporter()).train:
            names = dict.fromkeys(name for row in islice(raw_rows(located), FIRST_ROWS) for name in row.fields)
    return absent(list(names), data.mapping) if names else {}


def first_good_rows(data: DataConfig, located: Located, count: int = 64) -> list[Row]:
    """Return the good ones of the first rows of a source, whatever its slice: for a look, not for training."""
    columns = source_columns(located, data)
    found = []
    for raw in islice(raw_rows(located), FIRST_ROWS):
        try:
            found.append(_row(raw, columns, data))
        except (BadRow, NotTrained):
            continue
    return found[:count]


def select_rows(
    data: DataConfig, located: LocatedData, reporter: Reporter, *, bad_share: float = BAD_SHARE
) -> RowSelection:
    """Look at the rows of all sources, and decide.

    Raises InputError: a source with more than `bad_share` bad rows or no good one, columns that cannot be told, sources of
    different forms, a split that leaves nothing; EnvironmentProblem: a file that cannot be read.
    """
    splits = bool(data.validation_share) and not located.validation
    sample = Sample()
    select = partial(_select_from, data=data, reporter=reporter, sample=sample, bad_share=bad_share)
    train, report, ranks = select(located.train, ranked=splits)
    if not splits:
        held, held_report, _ = select(located.validation, ranked=False)
        return RowSelection(train, held, report, held_report, sample)
    train, held = _split(train, ranks, data.validation_share)
    return RowSelection(train, held, report, RowReport(sum(map(len, held)), mapping=report.mapping), sample)


class _Pass:
    """The first pass over one source: which of its rows are good, and what became of the others."""

    def __init__(self, located: Located, data: DataConfig, sample: Sample) -> None:
        self.located, self.data, self.sample = located, data, sample
        self.columns = source_columns(located, data)
        self.report = RowReport(mapping=str(self.columns))
        self.names: dict[str, None] = {}
        self.shapes: set[tuple[str, ...]] = set()
        self.unread: set[str] = set()
        self.good = bytearray()
        self.ranks, self.digests = bytearray(), bytearray()
        self.start = 0

    def run(self, *, ranked: bool, bad_share: float) -> None:
        """Look at the rows of the slice. Raises InputError."""
        filters, salt = self.data.filters, f"{self.data.seed}:"
        for raw in self._in_slice():
            self.report.read += 1
            self.good.append(0)
            try:
                if not raw.fault:
                    self._require_known(raw)
                row = _row(raw, self.columns, self.data)
            except BadRow as bad:
                self.report.drop(str(bad), raw.where)
                continue
            except NotTrained:
                self.report.filtered[NOT_TRAINED] += 1
                continue
            self.unread |= row.unread
            self.report.trailing += row.trailing
            if (filters.min_chars or filters.max_chars) and (reason := filters.reason(len(row))):
                self.report.leave_out(reason, row)
                continue
            self.good[-1] = 1
            self.sample.add((row.text,) if row.text else [turn["content"] for turn in row.messages])
            if filters.repeated:
                self.digests += row.digest(filters.deduplicate)
            if ranked:
                self.ranks += row.digest(salt=salt)
        within = getattr(self.columns, {"pair": "response"}.get(self.columns.form, self.columns.form))
        fields = [f"{within}[].{name}" for name in sorted(self.unread)]
        self.report.ignored = [*self.columns.unread(self.names), *fields]
        self.report.refuse_bad(str(self.located), bad_share)

    def _in_slice(self) -> Iterator[RawRow]:
        """The rows of the slice; bad ones count, so that "train[:100]" is the same rows once they are mended."""
        split = parse_split(self.located.spec.split)
        if not (split.start or split.stop):
            return raw_rows(self.located)
        total = split.rows_needed if split.rows_needed is not None else sum(1 for _ in raw_rows(self.located))
        numbers = split.rows(total)
        self.start = numbers.start
        return islice(raw_rows(self.located), numbers.start, max(numbers.start, numbers.stop))

    def _require_known(self, raw: RawRow) -> None:
        """Refuse a column that appears after the first rows and would have been read."""
        shape = tuple(raw.fields)
        if shape in self.shapes:
            return
        self.shapes.add(shape)
        before = list(self.names)
        self.names |= dict.fromkeys(shape)
        if self.report.read <= FIRST_ROWS or len(self.names) == len(before):
            return
        try:
            chosen = choose_columns(list(self.names), self.data.mapping, str(self.located))
            same = replace(chosen, weight="", train="") == replace(self.columns, weight="", train="")
        except InputError:
            same = False
        if not same:
            new = ", ".join(f'"{name}"' for name in self.names if name not in before)
            raise InputError(
                f"{raw.where}: {new} stands in no row before; the columns were chosen without: {self.columns}",
                'Name the columns in "field_mapping" of training.dataset, or put such a row first.',
            )


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
    sources: Sequence[Located], *, data: DataConfig, reporter: Reporter, sample: Sample, bad_share: float, ranked: bool
) -> tuple[tuple[SelectedSource, ...], RowReport, NDArray[np.uint64]]:
    """Select from sources of one form; repeated rows are looked for over all of them. ranked: rank the rows that are taken."""
    total = RowReport()
    selected: list[SelectedSource] = []
    ranks = [np.empty((0, 2), np.uint64)]
    seen: set[bytes] = set()
    for number, located in enumerate(sources):
        look = _Pass(located, data, sample)
        if selected and look.columns.form != selected[0].columns.form:
            raise InputError(
                f"{located}: rows are {look.columns.form} ({look.report.mapping}), those of {sources[0]} are "
                f"{selected[0].columns.form}",
                "Train on rows of one kind: messages, text, segments, pair.",
            )
        look.run(ranked=ranked, bad_share=bad_share)
        good = np.frombuffer(look.good, np.bool_).copy()
        source_ranks = _halves(look.ranks)
        source = SelectedSource(located, look.columns, data, look.start, np.zeros(len(good), np.int32))
        if data.filters.repeated:
            new = _first_ones(look.digests, seen)
            repeats = np.flatnonzero(good)[~new]
            examples = replace(source, copies=np.isin(np.arange(len(good)), repeats[:_MOST_LEFT_OUT]).astype(np.int32))
            for row in examples.rows():
                look.report.leave_out(data.filters.repeated, row)
            if len(repeats):
                look.report.filtered[data.filters.repeated] = len(repeats)
            good[repeats] = False
            source_ranks = source_ranks[new] if ranked else source_ranks
        count = _require_some(int(good.sum()), look)
        spec = located.spec
        weight = _replayed(located, count, sum(map(len, selected)), reporter) if spec.share else _weight(spec, count)
        source.copies[good] = repeat_counts(count, weight, data.seed, str(number)) * np.int32(spec.repeat)
        selected.append(source)
        if ranked:
            ranks.append(source_ranks[source.copies[good] > 0])
        _tell(located, count, look.report, reporter)
        total.add(look.report)
    return tuple(selected), total, np.concatenate(ranks)


def _first_ones(digests: bytearray, seen: set[bytes]) -> NDArray[np.bool_]:
    """Return which of some digests of 16 bytes are not among those before them, which are added to `seen`."""
    new = np.zeros(len(digests) // 16, np.bool_)
    for number in range(len(new)):
        digest = bytes(digests[16 * number : 16 * number + 16])
        new[number] = digest not in seen
        seen.add(digest)
    return new


def _halves(sixteens: bytearray) -> NDArray[np.uint64]:
    """View numbers of 16 bytes as two halves each, uint64 [numbers, 2], the higher one first."""
    return np.frombuffer(sixteens, ">u8").astype(np.uint64).reshape(-1, 2)


def _require_some(good: int, look: _Pass) -> int:
    if good:
        return good
    judged = look.report.read - sum(look.report.dropped.values())
    reasons = ", ".join(f"{reason}: {count}" for reason, count in look.report.filtered.items())
    raise InputError(
        f"{look.located}: no row of {judged} is left ({reasons})",
        'Loosen "filters", or mend "weight" and "train" of the rows.',
    )


def _weight(spec: SourceSpec, rows: int) -> float:
    """Return the weight of a source of so many good rows that draws no more than `max_rows`."""
    most: float = spec.max_rows / max(1, rows) if spec.max_rows is not None else spec.weight
    return min(spec.weight, most)


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

    def rank(row: int) -> bytes:
        return hashlib.blake2b(f"{seed}:{salt}:{row}".encode(), digest_size=16).digest()

    for row in sorted(range(rows), key=rank)[:extra] if extra else ():
        copies[row] += 1
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
    telling = [name for name in report.ignored if name.casefold() in _OTHER_PROGRAMS]
    if telling:
        reporter.warning(
            f"{located}: {', '.join(telling)}: not trained beside question and answer; "
            '"field_mapping" names columns of a system message, history and tools'
        )
    if report.dropped:
        bad = sum(report.dropped.values())
        more = "; ..." if bad > len(report.examples) else ""
        reporter.warning(
            f"{located}: {bad} of {report.read} rows are bad and left out: {'; '.join(report.examples)}{more}"
        )
