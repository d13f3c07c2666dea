"""Rows of Parquet and Arrow files, each with its number from 1; only the columns of interest are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from expert_cli.data.formats.raw_row import ColumnFilter, RawRow
from expert_cli.errors import InputError

_BATCH_ROWS = 1024


def read_rows(path: Path, columns: ColumnFilter) -> Iterator[RawRow]:
    number = 1
    for batch in read_batches(path, columns):
        yield from batch_rows(path, batch, number)
        number += batch.num_rows


def batch_rows(path: Path, batch: Any, first: int) -> Iterator[RawRow]:
    for number, fields in enumerate(_row_fields(batch), first):
        where = f"{path}:row {number}"
        yield RawRow(where, {}, "not valid UTF-8") if fields is None else RawRow(where, fields)


def read_batches(path: Path, columns: ColumnFilter) -> Iterator[Any]:
    """Yield the record batches of a Parquet or Arrow file in order, at most 1,024 rows each."""
    with _table_errors(path):
        yield from (
            _parquet_batches(path, columns) if path.suffix.lower() == ".parquet" else _arrow_batches(path, columns)
        )


def _parquet_batches(path: Path, columns: ColumnFilter) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        wanted = columns.select_once(file.schema_arrow.names, f"{path}: the schema")
        _require_names(path, file.schema_arrow, wanted)
        yield from file.iter_batches(_BATCH_ROWS, columns=list(wanted))


def _arrow_batches(path: Path, columns: ColumnFilter) -> Iterator[Any]:
    """Both Arrow forms: the file format, and the stream format that `datasets` writes."""
    import pyarrow as pa

    with pa.OSFile(str(path)) as file:
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        if is_file:
            opened = pa.ipc.open_file(file)
            batches: Iterable[Any] = (opened.get_batch(number) for number in range(opened.num_record_batches))
        else:
            opened = batches = pa.ipc.open_stream(file)
        wanted = list(columns.select_once(opened.schema.names, f"{path}: the schema"))
        _require_names(path, opened.schema, wanted)
        for batch in batches:
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                yield batch.select(wanted).slice(start, _BATCH_ROWS)


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


def _require_names(path: Path, schema: Any, columns: Iterable[str]) -> None:
    """Raise InputError where a column that is read has a struct, at any depth, in which a name stands twice."""
    for column in columns:
        if twice := _repeated_inside(schema.field(column).type):
            raise InputError(
                f'{path}: the column "{column}" names "{twice}" more than once', "Keep one of these fields."
            )


def _repeated_inside(kind: Any) -> str:
    """A name that stands twice in a struct, at any depth; "" if none does."""
    import pyarrow as pa

    fields = [kind.field(n) for n in range(kind.num_fields)]
    names = [field.name for field in fields] if pa.types.is_struct(kind) else []
    twice = next((name for name in names if names.count(name) > 1), "")
    return twice or next(filter(None, (_repeated_inside(field.type) for field in fields)), "")
