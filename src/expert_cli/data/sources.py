"""The places that rows come from -> checked rows, in order, with a count of what became of each.

    locate    file, folder, hub id -> the files to read, in order
    survey    files -> slice -> choice of columns -> check -> filters -> weights and split, a number a row
    read      files -> the rows that are taken: here all at once, in `stream.py` as they are encoded

Nothing is written: the readers work on the files themselves, so no cache appears beside the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from expert_cli.console import Reporter
from expert_cli.data.columns import choose_columns, names_of_interest
from expert_cli.data.folders import folder_files
from expert_cli.data.hub import hub_files
from expert_cli.data.located import Located, LocatedData
from expert_cli.data.rawrows import ColumnFilter
from expert_cli.data.readers import read_file
from expert_cli.data.rowcheck import append_row
from expert_cli.data.rows import RowReport, Rows
from expert_cli.data.sampling import parse_split
from expert_cli.data.survey import SurveyedSource, batches, survey_data
from expert_cli.errors import InputError
from expert_cli.runconfig import DataConfig, SourceSpec

__all__ = ["DataRows", "Located", "LocatedData", "locate_data", "read_located", "read_training_rows"]


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
    survey = survey_data(data, located, reporter)
    train = _taken(survey.train, data)
    validation = None if survey.validation is None else _taken(survey.validation, data)
    return DataRows(train, validation, survey.train_report, survey.validation_report, located)


def first_rows(data: DataConfig, sources: Sequence[Located], count: int = 64) -> tuple[Rows, RowReport]:
    """Return the good ones of the first `count` rows of the first source, whatever its slice: for a look, not for training."""
    names = ColumnFilter(names_of_interest(data.mapping))
    raw = list(islice(chain.from_iterable(read_file(path, names) for path in sources[0].files), count))
    report = RowReport(read=len(raw))
    if all(row.fault for row in raw):
        return Rows("pair"), report  # the survey says what is wrong with them
    columns = choose_columns(names.seen, data.mapping, str(sources[0]))
    report.input_column = columns.input
    rows = Rows(columns.kind)
    for row in raw:
        if not row.fault:
            append_row(rows, row.fields, columns, row.where)
    return rows, report


def _path_hint(alternatives: Sequence[Path]) -> str:
    there = f" Data on this machine: {', '.join(map(str, alternatives))}." if alternatives else ""
    return f"Correct the path, or give the rows with --dataset PATH.{there}"


def _taken(sources: Sequence[SurveyedSource], data: DataConfig) -> Rows:
    taken = Rows(sources[0].columns.kind)
    for batch in batches(sources, data):
        taken.extend(batch.rows, range(len(batch.rows)))
    return taken
