"""The rows of training as an audit looks at them: question, input, answer, and the columns that tell how to run the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from expert_cli.config.run_config import DataConfig
from expert_cli.data.rows import BadRow, NotTrained, to_row
from expert_cli.data.select import SelectedSource, select_rows
from expert_cli.data.sources import DataFile, LocatedData
from expert_cli.data.templates.mask import split_text
from expert_cli.utils.reporter import Reporter

DATABASE_COLUMNS = ("db_id", "database")
"""Columns that name the database or graph that a row's query is asked of."""
TEST_COLUMNS = ("test", "tests")
"""Columns that hold tests of a program, which throw if it is wrong."""


@dataclass(frozen=True)
class AuditRow:
    """One row that is trained. where: "file:line". database, tests: "" where the row has no such column."""

    where: str
    question: str
    input: str
    answer: str
    database: str = ""
    tests: str = ""


@dataclass
class TrainingRows:
    """The rows, and those that training leaves out, as (place, reason)."""

    rows: list[AuditRow] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    sources: tuple[SelectedSource, ...] = ()

    @property
    def files(self) -> list[DataFile]:
        """The files that the rows are in."""
        return [path for source in self.sources for path in source.located.files]


def read_rows(data: DataConfig, located: LocatedData, report: Reporter) -> TrainingRows:
    """Read the rows as training does, with their own input; of bad rows any share is taken: the audit tells of each.

    Raises InputError: no good row, columns that cannot be told; EnvironmentProblem: a file that cannot be read.
    """
    alone = replace(data, validation=(), validation_share=0.0, schema_prompt=None)
    selection = select_rows(alone, LocatedData(located.train, ()), report, bad_share=1.0)
    found = TrainingRows(sources=selection.train)
    for source in selection.train:
        _read_source(source, found)
    return found


def _read_source(source: SelectedSource, found: TrainingRows) -> None:
    rows = chain.from_iterable(part.raw_rows() for part in source.slices)
    for raw, copies in zip(rows, source.copies.tolist(), strict=False):
        try:
            row = None if raw.fault else to_row(raw.fields, source.columns, source.data.mapping, raw.where)
        except BadRow as bad:
            found.unreadable.append((raw.where, str(bad)))
            continue
        except NotTrained:
            continue
        if row is None:
            found.unreadable.append((raw.where, raw.fault))
        if row is None or not copies:
            continue
        question, given = row.question
        answer = row.answer
        if row.is_whole_text:
            question, answer = split_text(answer)
        said = {name.casefold(): value for name, value in raw.fields.items() if isinstance(value, str)}
        database, tests = (next(filter(None, map(said.get, names)), "") for names in (DATABASE_COLUMNS, TEST_COLUMNS))
        found.rows.append(AuditRow(row.where, question, given, answer, database or "", tests or ""))


def spread(rows: Sequence[AuditRow], count: int | None) -> list[AuditRow]:
    """Return `count` rows (None: all), evenly spread over all of them."""
    if count is None or count >= len(rows):
        return list(rows)
    return [rows[(2 * part + 1) * len(rows) // (2 * count)] for part in range(count)]
