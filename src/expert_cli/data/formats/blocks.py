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

from expert_cli.data.formats import arrow
from expert_cli.data.formats.jsonl_columns import ColumnReader, Lines, read_lines
from expert_cli.data.formats.raw_row import ColumnFilter, RawRow
from expert_cli.data.formats.registry import file_errors, read_file

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


def read_blocks(path: Path, columns: ColumnFilter, limit: int | None) -> Iterator[Block]:
    """Yield at most `limit` rows of a file in order, in blocks whose borders depend on the file alone.

    Raises InputError: format not known, file damaged as a whole. EnvironmentProblem: file cannot be opened.
    """
    reader = _COLUMNAR.get(path.suffix.lower(), _row_blocks)
    with file_errors(path):
        yield from reader(path, columns, limit)


def _row_blocks(path: Path, columns: ColumnFilter, limit: int | None) -> Iterator[Block]:
    rows = islice(read_file(path, columns), limit)
    while some := list(islice(rows, _ROWS)):
        yield _of_rows(some)


def _of_rows(rows: list[RawRow]) -> Block:
    return Block(len(rows), None, lambda: rows, lambda start, stop: [row.where for row in rows[start:stop]])


def _table_blocks(path: Path, columns: ColumnFilter, limit: int | None) -> Iterator[Block]:
    done = 0
    for batch in arrow.read_batches(path, columns):
        left = batch.num_rows if limit is None else min(batch.num_rows, limit - done)
        yield _of_batch(path, batch.slice(0, left), done + 1)
        done += left
        if done == limit:
            return


def _of_batch(path: Path, batch: Any, first: int) -> Block:
    def raw() -> Iterator[RawRow]:
        return arrow.batch_rows(path, batch, first)

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
