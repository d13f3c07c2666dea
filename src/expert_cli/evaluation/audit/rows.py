"""The rows of training as an audit looks at them: question, input, answer, and the columns that tell how to run the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from expert_cli.config.run_config import DataConfig
from expert_cli.data.formats.raw_row import Block, ColumnFilter
from expert_cli.data.located import LocatedData
from expert_cli.data.places import DataFile
from expert_cli.data.rows.block_check import check_block
from expert_cli.data.rows.columnar import Rows
from expert_cli.data.rows.look import source_blocks
from expert_cli.data.rows.selected import SelectedSource
from expert_cli.data.rows.selection import select_rows
from expert_cli.data.templates.text_forms import FORMS, TURN_ENDS
from expert_cli.utils.reporter import Reporter

DATABASE_COLUMNS = ("db_id", "database")
"""Columns that name the database or graph that a row's query is asked of."""
TEST_COLUMNS = ("test", "tests")
"""Columns that hold tests of a program, which throw if it is wrong."""
_BESIDE = frozenset((*DATABASE_COLUMNS, *TEST_COLUMNS))


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
    read = frozenset(name.casefold() for name in source.columns.read())
    names = ColumnFilter(read | _BESIDE)
    rows = range(source.start, source.start + len(source.copies))
    for block, first in source_blocks(source.located.pieces, names, rows):
        checked = check_block(block, source.columns, first)
        found.unreadable += checked.bad
        beside = _beside(block, [name for name in names.seen if name.casefold() in _BESIDE])
        for at, number in enumerate(checked.numbers.tolist()):
            if source.copies[number]:
                found.rows.append(
                    _row(checked.rows, at, {name: texts[number - first] for name, texts in beside.items()})
                )


def _beside(block: Block, names: Sequence[str]) -> dict[str, list[str]]:
    """The columns beside those that are trained, by their names in small letters, "" for what is no text."""
    if not names:
        return {}
    if block.texts is not None:
        columns: dict[str, Sequence[object]] = {name: block.texts.get(name) or [""] * block.count for name in names}
    else:
        raw = [row.fields for row in block.raw()]
        columns = {name: [fields.get(name) for fields in raw] for name in names}
    return {
        name.casefold(): [value if isinstance(value, str) else "" for value in column]
        for name, column in columns.items()
    }


def _row(rows: Rows, at: int, beside: dict[str, str]) -> AuditRow:
    question, given, answer = _parts(rows, at)
    database = next(filter(None, (beside.get(name) for name in DATABASE_COLUMNS)), "")
    tests = next(filter(None, (beside.get(name) for name in TEST_COLUMNS)), "")
    return AuditRow(rows.origins[at], question, given, answer, database, tests)


def _parts(rows: Rows, at: int) -> tuple[str, str, str]:
    """Question, input and answer of a row: of a conversation all before its last turn, and that turn."""
    answer = rows.answer(at)
    return split_text(answer) if rows.is_whole_text else (*rows.question(at), answer)


def split_text(text: str) -> tuple[str, str, str]:
    """Return question, "" and answer of a whole document: what stands before and after its last assistant's marker."""
    for form in FORMS.values():
        if form.hint not in text:
            continue
        markers = list(form.answers.finditer(text))
        if markers:
            answer = text[markers[-1].end() :].rstrip()
            end = next((end for end in TURN_ENDS if answer.endswith(end)), "")
            return text[: markers[-1].start()], "", answer.removesuffix(end)
    return "", "", text


def spread(rows: Sequence[AuditRow], count: int | None) -> list[AuditRow]:
    """Return `count` rows (None: all), evenly spread over all of them."""
    if count is None or count >= len(rows):
        return list(rows)
    return [rows[(2 * part + 1) * len(rows) // (2 * count)] for part in range(count)]
