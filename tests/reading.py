"""What training reads of data files, held against the slow reader: no row is lost or changed that was not named."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from expert_cli.config.run_config import ColumnMapping, DataConfig, RowFilters, SourceSpec
from expert_cli.data.located import LocatedData
from expert_cli.data.rows.columnar import RowReport, Rows
from expert_cli.data.rows.messages import MessageRows
from expert_cli.data.rows.selected import all_rows
from expert_cli.data.rows.selection import select_rows
from expert_cli.data.sources.data_rows import locate_data
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.utils.reporter import NullReporter, Reporter
from tests.slow_reader import Row, SlowRead, slow_read


@dataclass
class _Listening(NullReporter):
    warned: list[str] = field(default_factory=list)

    def warning(self, text: str) -> None:
        self.warned.append(text)


@dataclass(frozen=True)
class DataRows:
    """The rows of a run, all in memory, with what became of the others and the files that were read."""

    train: Rows
    validation: Rows | None
    train_report: RowReport
    validation_report: RowReport | None
    located: LocatedData

    @property
    def files(self) -> list[Path]:
        return [file for file in self.located.files() if isinstance(file, Path)]


def read_training_rows(data: DataConfig, reporter: Reporter) -> DataRows:
    located = locate_data(data, reporter)
    selected = select_rows(data, located, reporter)
    validation = None if selected.validation is None else all_rows(selected.validation)
    reports = selected.train_report, selected.validation_report
    return DataRows(all_rows(selected.train), validation, *reports, located)


def disagreements(path: Path, start: int = 0, stop: int | None = None) -> list[str]:
    """Return what is wrong with how a file or folder of rows is read, a sentence each; nothing if all is well.

    start, stop: the slice that is asked for, as Python has it; of files that are broken all rows are asked for. Rows that are
    good have to be there, in order, as they are; the others have to be counted; what is not read or cannot be has to be
    named. Any error but InputError and EnvironmentProblem is raised.
    """
    slow = slow_read(path)
    part = slice(0, None) if slow.broken else slice(start, stop)
    slow.rows = slow.rows[part]
    split = f"train[{part.start}:{'' if part.stop is None else part.stop}]"
    spec = SourceSpec("folder" if path.is_dir() else "file", str(path), split=split)
    data = DataConfig((spec,), (), 0.0, ColumnMapping(), RowFilters(), True, 128, 7, True)
    reporter = _Listening()
    try:
        read = read_training_rows(data, reporter)
    except (InputError, EnvironmentProblem) as error:
        return _of_refusal(slow, error.message, str(path))
    return _of_reading(slow, read, "\n".join(reporter.warned))


def _of_refusal(slow: SlowRead, message: str, place: str) -> list[str]:
    if slow.broken:
        named = any(name in message for name in slow.broken)
        return [] if named else [f"{slow.broken} cannot be read, but what is said is: {message}"]
    if slow.good and slow.bad <= 0.01 * len(slow.rows):
        return [f"{len(slow.good)} good rows and {slow.bad} others are refused: {message}"]
    return (
        []
        if place in message
        else [f"{slow.bad} of {len(slow.rows)} rows are bad, but it is not said where: {message}"]
    )


def _of_reading(slow: SlowRead, read: DataRows, warned: str) -> list[str]:
    found = [f"{name} cannot be read, and is read" for name in slow.broken]
    found += [f"{name} is not read, and is not named: {warned}" for name in slow.unread if name not in warned]
    rows, expected = _texts(read.train), slow.good
    wrong = next((n for n, (mine, right) in enumerate(zip(rows, expected, strict=False)) if mine != right), None)
    if wrong is not None:
        found.append(f"row {wrong} at {read.train.origins[wrong]} is {rows[wrong]}, not {expected[wrong]}")
    elif len(rows) != len(expected):
        found.append(f"{len(rows)} rows are read, there are {len(expected)}")
    dropped = sum(read.train_report.dropped.values())
    if dropped != slow.bad:
        found.append(f"{dropped} rows are said to be bad, {slow.bad} are")
    return found


def _texts(rows: Rows) -> list[Row]:
    if isinstance(rows, MessageRows):
        return [tuple(part for turn in turns for part in (turn.role, turn.content)) for turns in rows.messages]
    return list(zip(*rows.columns(), strict=True))
