"""Rows of Parquet and Arrow files, each with its number from 1; only the columns of interest are read."""

from __future__ import annotations

import io
import mmap
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

from expert_cli.data.formats.raw_row import Block, ColumnFilter, Piece, RawRow
from expert_cli.data.places import DataFile, open_for_arrow
from expert_cli.errors import InputError
from expert_cli.utils.text import first_line

_BATCH_ROWS = 1024
_MAGIC = b"ARROW1"

Batches = Callable[[Piece, ColumnFilter], Iterator[tuple[int, pa.RecordBatch]]]
"""The record batches of a piece of a file in order, at most 1,024 rows each, with the columns of interest, and how many rows of
the file stand before each. Pieces count groups of rows in Parquet; an Arrow file is one piece."""


def read_rows(batches: Batches, path: DataFile, columns: ColumnFilter) -> Iterator[RawRow]:
    for block in read_blocks(batches, Piece(path), columns, sys.maxsize):
        yield from block.raw()


def read_blocks(batches: Batches, piece: Piece, columns: ColumnFilter, limit: int) -> Iterator[Block]:
    with _table_errors(piece.path):
        for before, whole in batches(piece, columns):
            batch = whole.slice(0, limit)
            place = partial(_place, piece.path, before + 1)
            yield Block(batch.num_rows, _texts(batch), partial(_rows, batch, place), place)
            limit -= batch.num_rows
            if not limit:
                return


def parquet_batches(piece: Piece, columns: ColumnFilter) -> Iterator[tuple[int, pa.RecordBatch]]:
    import pyarrow.parquet as pq

    with open_for_arrow(piece.path) as opened, pq.ParquetFile(opened) as file:
        wanted = _wanted(piece.path, file.schema_arrow, columns)
        groups = range(piece.start, min(piece.stop, file.num_row_groups))
        before = sum(file.metadata.row_group(group).num_rows for group in range(piece.start))
        for group in groups:  # one by one: of what is asked for at once Arrow reads all before it gives the first row
            for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=wanted):
                yield before, batch
                before += batch.num_rows


def arrow_batches(piece: Piece, columns: ColumnFilter) -> Iterator[tuple[int, pa.RecordBatch]]:
    before = 0
    with open_for_arrow(piece.path) as file:
        schema, batches = _opened(file)
        wanted = _wanted(piece.path, schema, columns)
        for batch in batches:
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                yield before + start, batch.select(wanted).slice(start, _BATCH_ROWS)
            before += batch.num_rows


def cut_parquet(path: DataFile, size: int) -> list[int]:
    """Return the groups of rows that the pieces of a file start with, each of `size` bytes or of one group."""
    import pyarrow.parquet as pq

    with _table_errors(path), open_for_arrow(path) as file:
        known = pq.read_metadata(file)
        return _starts([known.row_group(group).total_byte_size for group in range(known.num_row_groups)], size)


def _starts(sizes: Sequence[int], size: int) -> list[int]:
    """The first group of each piece, which ends with the group that makes it as large as `size`."""
    starts, room = [0], size
    for group, its in enumerate(sizes[:-1], 1):
        room -= its
        if room <= 0:
            starts.append(group)
            room = size
    return starts


def count_parquet_rows(file: io.BufferedReader) -> Iterator[int]:
    import pyarrow.parquet as pq

    yield pq.read_metadata(file).num_rows


def count_arrow_rows(file: io.BufferedReader) -> Iterator[int]:
    _, batches = _opened(pa.BufferReader(_buffer(file)))
    for batch in batches:
        yield batch.num_rows


def _buffer(file: io.BufferedReader) -> Any:
    """The file, mapped: of what is only counted the headers of the batches are touched alone."""
    return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _opened(file: pa.NativeFile) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    """Schema and batches of both Arrow forms: the file format, and the stream format that `datasets` writes."""
    is_file = file.read(len(_MAGIC)) == _MAGIC
    file.seek(0)
    if not is_file:
        stream = pa.ipc.open_stream(file)
        return stream.schema, stream
    opened = pa.ipc.open_file(file)
    return opened.schema, map(opened.get_batch, range(opened.num_record_batches))


def _wanted(path: DataFile, schema: pa.Schema, columns: ColumnFilter) -> list[str]:
    """The columns of interest. Raises InputError where one stands twice, or a name in a struct in it, at any depth."""
    wanted = columns.select_once(schema.names, f"{path}: the schema")
    for column in wanted:
        if twice := _repeated_inside(schema.field(column).type):
            raise InputError(
                f'{path}: the column "{column}" names "{twice}" more than once', "Keep one of these fields."
            )
    return list(wanted)


def _repeated_inside(kind: Any) -> str:
    """A name that stands twice in a struct, at any depth; "" if none does."""
    fields = [kind.field(n) for n in range(kind.num_fields)]
    names = [field.name for field in fields] if pa.types.is_struct(kind) else []
    twice = next((name for name in names if names.count(name) > 1), "")
    return twice or next(filter(None, (_repeated_inside(field.type) for field in fields)), "")


def _place(path: DataFile, first: int, number: int) -> str:
    return f"{path}:row {first + number}"


def _rows(batch: pa.RecordBatch, place: Callable[[int], str]) -> Iterator[RawRow]:
    for number, fields in enumerate(_fields(batch)):
        yield RawRow(place(number), {}, "not valid UTF-8") if fields is None else RawRow(place(number), fields)


def _fields(batch: pa.RecordBatch) -> Sequence[Mapping[str, object] | None]:
    """The rows of a batch; None for one whose text is not UTF-8, which Arrow does not check when it reads."""
    try:
        rows: list[Mapping[str, object] | None] = batch.to_pylist()
    except UnicodeDecodeError:
        single = (batch.slice(row, 1) for row in range(batch.num_rows))
        return [None] if batch.num_rows == 1 else [_fields(row)[0] for row in single]
    return rows


def _texts(batch: pa.RecordBatch) -> dict[str, list[str | None]] | None:
    """The columns of a batch if all are text that is Unicode."""
    if not all(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in batch.schema.types):
        return None
    try:
        return {name: column.to_pylist() for name, column in zip(batch.schema.names, batch.columns, strict=True)}
    except UnicodeDecodeError:
        return None


@contextmanager
def _table_errors(path: DataFile) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, EOFError, OSError) as error:
        # Arrow reports damaged pages as OSError without a number; one of the system has it.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InputError(f"{path}: damaged, or no {path.suffix} file: {first_line(error)}") from error
