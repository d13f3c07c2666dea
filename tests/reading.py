"""What training reads of data files, all in memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from expert_cli.config.run_config import DataConfig
from expert_cli.data.located import LocatedData
from expert_cli.data.rows.columnar import RowReport, Rows
from expert_cli.data.rows.selected import all_rows
from expert_cli.data.rows.selection import select_rows
from expert_cli.data.sources.data_rows import locate_data
from expert_cli.utils.reporter import Reporter


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
