"""The places that rows come from -> checked rows, in order, with a count of what became of each.

    locate    file, folder, hub id -> the files to read, in order
    read      files -> raw rows -> slice -> choice of columns -> check -> filters
    take      split off the evaluated rows, repeat the trained ones by weight

Nothing is written: the readers work on the files themselves, so no cache appears beside the data.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from expert_cli.console import Reporter
from expert_cli.data.columns import choose_columns, names_of_interest
from expert_cli.data.folders import folder_files
from expert_cli.data.hub import hub_files
from expert_cli.data.rawrows import ColumnFilter, RawRow
from expert_cli.data.readers import read_file
from expert_cli.data.rowcheck import append_row
from expert_cli.data.rows import RowReport, Rows
from expert_cli.data.sampling import copies_by_weight, held_out, parse_split
from expert_cli.errors import InputError
from expert_cli.runconfig import ColumnMapping, DataConfig, RowFilters, SourceSpec

BAD_SHARE = 0.01
"""The share of bad rows in a source above which it is refused."""


@dataclass(frozen=True)
class Located:
    """One source and the files its rows are in; `revision` is the commit of a hub data set, else ""."""

    spec: SourceSpec
    files: tuple[Path, ...]
    revision: str = ""

    def __str__(self) -> str:
        """Return the source as messages name it."""
        config = f"::{self.spec.config}" if self.spec.config else ""
        return f"{self.spec.path}{config}" + (f" [{self.spec.split}]" if self.spec.split != "train" else "")


@dataclass(frozen=True)
class LocatedData:
    """All sources of a run, those that train and those that evaluate."""

    train: tuple[Located, ...]
    validation: tuple[Located, ...]

    def files(self) -> list[Path]:
        """Return the files that are read, in order, each once."""
        return list(dict.fromkeys(path for source in self.train + self.validation for path in source.files))


@dataclass(frozen=True)
class DataRows:
    """The rows of a run. `validation` is None where none evaluate; split-off rows are counted in `train_report`."""

    train: Rows
    validation: Rows | None
    train_report: RowReport
    validation_report: RowReport | None
    located: LocatedData

    @property
    def files(self) -> list[Path]:
        """Return the local files that were read, in order."""
        return self.located.files()


@dataclass
class _Source:
    """The good rows of one source and how often each is taken."""

    rows: Rows
    copies: list[int] = field(default_factory=list)


def locate_data(data: DataConfig, reporter: Reporter, *, alternatives: Sequence[Path] = ()) -> LocatedData:
    """Return the files of all sources; hub data sets are downloaded where the network is allowed. Reads no row.

    `alternatives`: local data files that an error about an unreachable hub offers. Raises InputError, EnvironmentProblem.
    """

    def locate(spec: SourceSpec) -> Located:
        split = parse_split(spec.split).name
        if spec.kind == "hub":
            found = hub_files(spec, split, reporter, offline=data.offline, alternatives=alternatives)
            return Located(spec, found.files, found.revision)
        path = Path(spec.path)
        if spec.tried or not path.exists():
            places = ", ".join(spec.tried) or spec.path
            raise InputError(f"{spec.path}: no such file or folder; looked for at: {places}", _path_hint(alternatives))
        return Located(spec, (path,) if spec.kind == "file" else tuple(folder_files(path, spec.config, split)))

    return LocatedData(tuple(map(locate, data.train)), tuple(map(locate, data.validation)))


def read_training_rows(data: DataConfig, reporter: Reporter, *, alternatives: Sequence[Path] = ()) -> DataRows:
    """Return the rows that train and those that evaluate, sources in order and rows in file order.

    A row of weight 2 stands in its source's first and second round. Raises InputError: a source with more than 1 % bad rows
    or no good one, columns that cannot be told, sources of different kinds; EnvironmentProblem: unreachable data.
    """
    located = locate_data(data, reporter, alternatives=alternatives)
    return read_located(data, located, reporter)


def read_located(data: DataConfig, located: LocatedData, reporter: Reporter) -> DataRows:
    """Return the rows of sources that are located already; see `read_training_rows`."""
    train, report = _read_sources(located.train, data, reporter)
    if located.validation:
        validation, validation_report = _read_sources(located.validation, data, reporter)
        return DataRows(_taken(train), _taken(validation), report, validation_report, located)
    if not data.validation_share:
        return DataRows(_taken(train), None, report, None, located)
    evaluated = _split_off(train, data)
    split_report = RowReport(read=len(evaluated), mapping=report.mapping, input_column=report.input_column)
    return DataRows(_taken(train), evaluated, report, split_report, located)


def first_rows(data: DataConfig, sources: Sequence[Located], count: int = 64) -> tuple[Rows, RowReport]:
    """Return the good ones of the first `count` rows of the first source, whatever its slice: for a look, not for training."""
    columns_read = ColumnFilter(names_of_interest(data.mapping))
    raw = list(islice(_raw_rows(sources[0].files, columns_read), count))
    report = RowReport(read=len(raw))
    return _checked(raw, columns_read.seen, data.mapping, report, str(sources[0])), report


def _path_hint(alternatives: Sequence[Path]) -> str:
    there = f" Data on this machine: {', '.join(map(str, alternatives))}." if alternatives else ""
    return f"Correct the path, or give the rows with --dataset PATH.{there}"


def _read_sources(sources: Sequence[Located], data: DataConfig, reporter: Reporter) -> tuple[list[_Source], RowReport]:
    """Read sources of one kind; repeated rows are looked for over all of them."""
    total = RowReport()
    read: list[_Source] = []
    seen: set[tuple[str, ...]] = set()
    for number, located in enumerate(sources):
        rows, report = _read_source(located, data, seen)
        if read and rows.kind != read[0].rows.kind:
            raise InputError(
                f"{located}: rows are {rows.kind} ({report.mapping}), those of {sources[0]} are {read[0].rows.kind}",
                "Train on rows of one kind: question and answer, messages, or text.",
            )
        read.append(_Source(rows, copies_by_weight(len(rows), located.spec.weight, data.seed, str(number))))
        _tell(located, rows, report, reporter)
        total.add(report)
    return read, total


def _read_source(located: Located, data: DataConfig, seen: set[tuple[str, ...]]) -> tuple[Rows, RowReport]:
    columns_read = ColumnFilter(names_of_interest(data.mapping))
    raw = _sliced(located, columns_read)
    if not raw:
        raise InputError(f"{located}: there are no rows", "Look at the file, and at the slice if there is one.")
    report = RowReport(read=len(raw))
    good = _checked(raw, columns_read.seen, data.mapping, report, str(located))
    if sum(report.dropped.values()) > BAD_SHARE * len(raw):
        raise _too_many_bad(located, report)
    kept = _filtered(good, data.filters, seen, report)
    if not len(kept):
        reasons = ", ".join(f"{reason}: {count}" for reason, count in report.filtered.items())
        raise InputError(f"{located}: the filters leave no row of {len(good)} ({reasons})", 'Loosen "filters".')
    return kept, report


def _checked(
    raw: Sequence[RawRow], names: Sequence[str], mapping: ColumnMapping, report: RowReport, where: str
) -> Rows:
    """The good rows; the bad ones, and the choice of columns, go into `report`."""
    if all(row.fault for row in raw):
        # There are no columns to choose from; what is wrong with the rows says more.
        for row in raw:
            report.drop(row.fault, row.where)
        return Rows("pair")
    columns = choose_columns(names, mapping, where)
    report.mapping = str(columns)
    report.input_column = columns.input
    rows = Rows(columns.kind)
    for row in raw:
        fault = row.fault or append_row(rows, row.fields, columns, row.where)
        if fault:
            report.drop(fault, row.where)
    return rows


def _sliced(located: Located, columns: ColumnFilter) -> list[RawRow]:
    """The raw rows of the source's slice, bad ones counted in: "train[:100]" is the same rows once they are mended."""
    split = parse_split(located.spec.split)
    with closing(_raw_rows(located.files, columns)) as rows:
        read = list(islice(rows, split.rows_needed))
    chosen = split.rows(len(read))
    return read[chosen.start : chosen.stop]


def _raw_rows(files: Sequence[Path], columns: ColumnFilter) -> Generator[RawRow, None, None]:
    for path in files:
        yield from read_file(path, columns)


def _too_many_bad(located: Located, report: RowReport) -> InputError:
    bad = sum(report.dropped.values())
    listed = "; ".join(report.examples)
    return InputError(
        f"{located}: {bad} of {report.read} rows are bad: {listed}" + ("; ..." if bad > len(report.examples) else ""),
        f"Mend these rows, or take them out; up to {BAD_SHARE:.0%} are left out with a warning.",
    )


def _filtered(rows: Rows, filters: RowFilters, seen: set[tuple[str, ...]], report: RowReport) -> Rows:
    """The rows that pass the filters; `seen` holds the rows met so far where repeats are left out."""
    if filters == RowFilters():
        return rows
    kept: list[int] = []
    for row in range(len(rows)):
        content = rows.content(row)
        characters = rows.characters(row)
        if characters < filters.min_chars:
            report.leave_out(f"shorter than {filters.min_chars} characters")
        elif filters.max_chars is not None and characters > filters.max_chars:
            report.leave_out(f"longer than {filters.max_chars} characters")
        elif filters.deduplicate and content in seen:
            report.leave_out("repeated")
        else:
            kept.append(row)
            if filters.deduplicate:
                seen.add(content)
    passed = Rows(rows.kind)
    passed.extend(rows, kept)
    return passed


def _tell(located: Located, rows: Rows, report: RowReport, reporter: Reporter) -> None:
    filtered = "".join(f", {count} {reason}" for reason, count in report.filtered.items())
    reporter.say(f"{located}: {len(rows)} rows{filtered}; {report.mapping}")
    if report.dropped:
        bad = sum(report.dropped.values())
        reporter.warn(f"{located}: {bad} of {report.read} rows are bad and left out: {'; '.join(report.examples)}")


def _taken(sources: Sequence[_Source]) -> Rows:
    """The rows of all sources, each source as many rounds as its most frequent row."""
    taken = Rows(sources[0].rows.kind)
    for source in sources:
        for turn in range(max(source.copies, default=0)):
            taken.extend(source.rows, (row for row, copies in enumerate(source.copies) if copies > turn))
    return taken


def _split_off(sources: Sequence[_Source], data: DataConfig) -> Rows:
    """Take the evaluated rows out of the sources, each once however often it would have trained, and return them."""
    places = [(source, row) for source in sources for row, copies in enumerate(source.copies) if copies]
    contents = [source.rows.content(row) for source, row in places]
    validation = Rows(sources[0].rows.kind)
    for number in sorted(held_out(contents, data.validation_share, data.seed)):
        source, row = places[number]
        validation.extend(source.rows, [row])
        source.copies[row] = 0
    return validation
