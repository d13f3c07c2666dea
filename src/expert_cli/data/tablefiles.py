"""Rows of Parquet and Arrow files, each with its number from 1; only the columns of interest are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from expert_cli.data.rawrows import ColumnFilter, RawRow
from expert_cli.errors import InputError


def read_parquet(path: Path, columns: ColumnFilter) -> Iterator[RawRow]:
    import pyarrow.parquet as pq

    with _table_errors(path), pq.ParquetFile(path) as file:
        wanted = columns.select(file.schema_arrow.names)
        yield from _batch_rows(path, file.iter_batches(columns=list(wanted)))


def read_arrow(path: Path, columns: ColumnFilter) -> Iterator[RawRow]:
    """Both Arrow forms: the file format, and the stream format that `datasets` writes."""
    import pyarrow as pa

    with _table_errors(path), pa.OSFile(str(path)) as file:
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        if is_file:
            opened = pa.ipc.open_file(file)
            batches: Iterable[Any] = (opened.get_batch(number) for number in range(opened.num_record_batches))
        else:
            opened = batches = pa.ipc.open_stream(file)
        wanted = columns.select(opened.schema.names)
        yield from _batch_rows(path, (batch.select(list(wanted)) for batch in batches))


def _batch_rows(path: Path, batches: Iterable[Any]) -> Iterator[RawRow]:
    number = 0
    for batch in batches:
        for fields in _row_fields(batch):
            number += 1
            where = f"{path}:row {number}"
            yield RawRow(where, {}, "not valid UTF-8") if fields is None else RawRow(where, fields)


def _row_fields(batch: Any) -> Iterable[Mapping[str, object] | None]:
    """The rows of a batch; None for one whose text is not UTF-8, which Arrow does not check when it reads."""
    try:
        rows: list[Mapping[str, object] | None] = batch.to_pylist()
    except UnicodeDecodeError:
        return [_one_row(batch.slice(row, 1)) for row in range(batch.num_rows)]
    return rows


def _one_row(batch: Any) -> Mapping[str, object] | None:
    try:
        fields: Mapping[str, object] = batch.to_pylist()[0]
    except UnicodeDecodeError:
        return None
    return fields


@contextmanager
def _table_errors(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, EOFError) as error:
        raise InputError(f"{path}: damaged, or no {path.suffix} file: {_first_line(error)}") from error
    except OSError as error:
        # Arrow reports damaged pages as OSError without a number; one of the system has it.
        if error.errno is not None:
            raise
        raise InputError(f"{path}: damaged: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
