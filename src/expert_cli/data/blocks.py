"""One data file -> blocks of consecutive rows, in bounded memory: text column by column where that is all there is.

    .jsonl .ndjson    4 MB at a time, parsed by Arrow where that gives what the line-wise reader gives
    .parquet .arrow   batches of 1,024 rows
    .csv .json        what the row reader yields, 1,000 rows at a time

Whatever is not plain text in the columns of interest reaches the reader of single rows, which names what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expert_cli.data import tablefiles
from expert_cli.data.columns import Columns
from expert_cli.data.jsonblocks import ColumnReader, Lines, read_lines
from expert_cli.data.rawrows import ColumnFilter, RawRow
from expert_cli.data.readers import file_errors, read_file
from expert_cli.data.rowcheck import NOT_TRAINED, append_row
from expert_cli.data.rows import Rows

_ROWS = 1000

Texts = Mapping[str, list[str | None]]


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a file.

    texts: of each column of interest one text (or None) a row, valid Unicode; None where the rows hold anything else. raw:
    reads the same rows one by one. places: where the rows start <= number < stop stand, counted from 0 in the block.
    """

    count: int
    texts: Texts | None
    raw: Callable[[], Iterable[RawRow]]
    places: Callable[[int, int], list[str]]


@dataclass(frozen=True)
class Checked:
    """The good rows of a block, which of its rows they are (int64), and the others as (place, reason).

    untrained: how many rows are none of these, as they say that they are not to be trained.
    """

    rows: Rows
    numbers: NDArray[np.int64]
    bad: list[tuple[str, str]]
    untrained: int = 0

    def without(self, reasons: Mapping[int, str]) -> Checked:
        """Return the same block with some of its good rows, by their number among these, as bad ones."""
        numbers = np.delete(self.numbers, list(reasons))
        bad = [(self.rows.origins[row], reason) for row, reason in reasons.items()]
        return Checked(self.rows.without(reasons), numbers, self.bad + bad, self.untrained)


def read_blocks(path: Path, columns: ColumnFilter, limit: int | None) -> Iterator[Block]:
    """Yield at most `limit` rows of a file in order, in blocks whose borders depend on the file alone.

    Raises InputError: format not known, file damaged as a whole. EnvironmentProblem: file cannot be opened.
    """
    reader = _COLUMNAR.get(path.suffix.lower(), _row_blocks)
    with file_errors(path):
        yield from reader(path, columns, limit)


def check_block(block: Block, columns: Columns, start: int, stop: int) -> Checked:
    """Return the rows start <= number < stop of a block as text, the bad ones apart."""
    rows = _all_good(block, columns, start, stop)
    if rows is not None:
        return Checked(rows, np.arange(start, stop), [])
    rows = Rows(columns.kind)
    numbers: list[int] = []
    bad: list[tuple[str, str]] = []
    untrained = 0
    for number, row in enumerate(islice(block.raw(), start, stop), start):
        fault = row.fault or append_row(rows, row.fields, columns, row.where)
        if fault == NOT_TRAINED:
            untrained += 1
        elif fault:
            bad.append((row.where, fault))
        else:
            numbers.append(number)
    return Checked(rows, np.array(numbers, np.int64), bad, untrained)


def _all_good(block: Block, columns: Columns, start: int, stop: int) -> Rows | None:
    """The rows if all of them are good and text column by column; the rules are those of `rowcheck`."""
    if block.texts is None or columns.kind == "messages" or columns.flags():
        return None
    answers = _plain(block.texts.get(columns.text or columns.response), start, stop)
    if answers is None or any(not text or text.isspace() for text in answers):
        return None
    origins = block.places(start, stop)
    if columns.kind == "text":
        return Rows("text", text=answers, origins=origins)
    questions = _plain(block.texts.get(columns.instruction), start, stop)
    if questions is None:
        return None
    given = block.texts.get(columns.input)
    inputs = [""] * (stop - start) if given is None else [text or "" for text in given[start:stop]]
    return Rows("pair", questions, inputs, answers, origins=origins)


def _plain(column: list[str | None] | None, start: int, stop: int) -> list[str] | None:
    """The texts of a column that has one in every row."""
    if column is None:
        return None
    texts = [text for text in column[start:stop] if text is not None]
    return texts if len(texts) == stop - start else None


def _row_blocks(path: Path, columns: ColumnFilter, limit: int | None) -> Iterator[Block]:
    rows = islice(read_file(path, columns), limit)
    while some := list(islice(rows, _ROWS)):
        yield _of_rows(some)


def _of_rows(rows: list[RawRow]) -> Block:
    return Block(len(rows), None, lambda: rows, lambda start, stop: [row.where for row in rows[start:stop]])


def _table_blocks(path: Path, columns: ColumnFilter, limit: int | None) -> Iterator[Block]:
    done = 0
    for batch in tablefiles.read_batches(path, columns):
        left = batch.num_rows if limit is None else min(batch.num_rows, limit - done)
        yield _of_batch(path, batch.slice(0, left), done + 1)
        done += left
        if done == limit:
            return


def _of_batch(path: Path, batch: Any, first: int) -> Block:
    def raw() -> Iterator[RawRow]:
        return tablefiles.batch_rows(path, batch, first)

    return Block(batch.num_rows, _texts(batch), raw, _numbered(f"{path}:row ", first))


def _numbered(before: str, first: int) -> Callable[[int, int], list[str]]:
    return lambda start, stop: [f"{before}{number}" for number in range(first + start, first + stop)]


def _texts(batch: Any) -> Texts | None:
    """The columns of a batch if all are text that is Unicode, which Arrow does not check when it reads."""
    import pyarrow as pa

    if not all(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in batch.schema.types):
        return None
    try:
        return {name: column.to_pylist() for name, column in zip(batch.schema.names, batch.columns, strict=True)}
    except UnicodeDecodeError:
        return None


def _json_blocks(path: Path, columns: ColumnFilter, limit: int | None) -> Iterator[Block]:
    reader = ColumnReader(columns)
    done = 0
    for lines in read_lines(path):
        block = _of_lines(lines, reader, columns, None if limit is None else limit - done)
        yield block
        done += block.count
        if done == limit:
            return


def _of_lines(lines: Lines, reader: ColumnReader, columns: ColumnFilter, limit: int | None) -> Block:
    # What lies behind the limit must not be looked at, so only whole pieces are read column by column.
    texts = reader.read(lines) if limit is None or lines.count <= limit else None
    if texts is None:
        return _of_rows(list(islice(lines.rows(columns), limit)))
    count = len(next(iter(texts.values()), ()))

    def raw() -> Iterator[RawRow]:
        return lines.rows(columns)

    return Block(count, texts, raw, _numbered(f"{lines.path}:", lines.first))


_COLUMNAR: Mapping[str, Callable[[Path, ColumnFilter, int | None], Iterator[Block]]] = {
    ".jsonl": _json_blocks,
    ".ndjson": _json_blocks,
    ".parquet": _table_blocks,
    ".arrow": _table_blocks,
}
