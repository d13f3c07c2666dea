"""Reads the rows of a data file, each with its place: `rows_of`.

jiter parses JSON, because it can refuse repeated keys, while `datasets` turns texts into timestamps and adds missing keys.
pyarrow reads Parquet and Arrow, like `load_dataset` with streaming, but 20 times faster and without a lock file.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import jiter

from expert_cli.config.data_sources import COMPRESSED_SUFFIXES, DATA_SUFFIXES, format_name
from expert_cli.data.sources import DataFile
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.utils.object_storage import storage_errors
from expert_cli.utils.text import first_line, wide_encoding

_BATCH_ROWS = 1024
_LONGEST_CELL = 2**31 - 1  # the largest C long on Windows; csv's default is 128 KiB
# Matches invalid bytes as "surrogateescape" decodes them. CSV has no escapes that would give such characters.
_BROKEN = re.compile("[\udc80-\udcff]")
_NO_UTF_8 = "not valid UTF-8 (Windows' cp1252?): save the file as UTF-8"
_SAVE = "save it as UTF-8 (Notepad: Save as, Encoding; Excel: CSV UTF-8)"
_A_LIST = 'a list, not an object: write {"messages": [...]} for a conversation'


class RawRow(NamedTuple):
    """A row as it was read. where: "file:line" or "file:row N". fault: why it could not be read, or ""."""

    where: str
    fields: Mapping[str, object]
    fault: str = ""


def rows_of(file: DataFile) -> Iterator[RawRow]:
    """Yield the rows of a file in order, without blank lines. Raises InputError, EnvironmentProblem."""
    import pyarrow as pa

    form, suffix = format_name(str(file)), PurePath(str(file)).suffix
    if not form:
        known = f"{', '.join(DATA_SUFFIXES)}; text may be compressed: {', '.join(COMPRESSED_SUFFIXES)}"
        raise InputError(f'{file}: no known data format ("{suffix}")', f"give the rows as one of {known}")
    with storage_errors(str(file)):
        try:
            yield from _READERS[form](file)
        except (OSError, pa.ArrowException, ValueError) as error:
            # Arrow and the decompressors report damage as OSError without an errno; system errors have one.
            if getattr(error, "errno", None) is None:
                what = f"{file}: damaged, or not a {suffix} file: {first_line(error)}"
                raise InputError(what, "get or write the file again") from error
            if isinstance(file, Path):
                raise EnvironmentProblem(f"{file}: cannot be read: {first_line(error)}") from error
            raise


@contextmanager
def _content(file: DataFile) -> Iterator[io.BufferedReader]:
    """Open the contents of a text file, decompressed, without a byte order mark."""
    import pyarrow as pa

    codec = COMPRESSED_SUFFIXES.get(PurePath(str(file)).suffix.lower())
    with file.open("rb") as raw:
        plain: Any = pa.CompressedInputStream(raw, codec) if codec else raw
        content = io.BufferedReader(plain, 1 << 20)
        start = content.peek(4)[:4]
        if name := wide_encoding(start):
            raise InputError(f"{file}: the file is {name}", _SAVE)
        content.read(3 if start.startswith(codecs.BOM_UTF8) else 0)
        yield content


def _json_lines(file: DataFile) -> Iterator[RawRow]:
    with _content(file) as lines:
        for number, line in enumerate(lines, 1):
            if not line.isspace():
                where = f"{file}:{number}"
                try:
                    row = _row(where, jiter.from_json(line, catch_duplicate_keys=True))
                except ValueError as error:
                    row = RawRow(where, {}, _fault(error)[0])
                yield row


def _fault(error: ValueError) -> tuple[str, str]:
    """Return what is wrong with a JSON text, and the number of the line."""
    what, _, place = str(error).partition(" at line ")
    return _NO_UTF_8 if "code point" in what else f"not valid JSON: {what}", place.partition(" ")[0]


def _row(where: str, value: object) -> RawRow:
    if isinstance(value, dict):
        return RawRow(where, value)
    return RawRow(where, {}, _A_LIST if isinstance(value, list) else "not a JSON object")


def _json_document(file: DataFile) -> Iterator[RawRow]:
    """Yield the rows of a list, a single row, or the rows of JSON lines with the wrong suffix."""
    with _content(file) as content:
        text = content.read()
    try:
        rows = jiter.from_json(text, catch_duplicate_keys=True)
    except ValueError as error:
        if "trailing characters" in str(error) and text.lstrip().startswith(b"{"):
            yield from _json_lines(file)
            return
        fault, line = _fault(error)
        raise InputError(f"{file}:{line}: {fault}", _SAVE if fault == _NO_UTF_8 else "correct it") from error
    for number, row in enumerate(rows if isinstance(rows, list) else [rows], 1):
        yield _row(f"{file}:row {number}", row)


def _table(delimiter: str, file: DataFile) -> Iterator[RawRow]:
    csv.field_size_limit(_LONGEST_CELL)
    with _content(file) as content:
        text = io.TextIOWrapper(content, "utf-8", "surrogateescape", newline="")
        reader = csv.DictReader(text, delimiter=delimiter, strict=True)
        try:
            _refuse_repeated(f"{file}:1: the header", reader.fieldnames or ())
            for fields in reader:
                where = f"{file}:{reader.line_num}"  # the row's last line
                if None in fields or None in fields.values():
                    yield RawRow(where, {}, f"not as many cells as the header's {len(reader.fieldnames or ())}")
                elif _BROKEN.search("".join(fields.values())):
                    yield RawRow(where, {}, _NO_UTF_8)
                else:
                    yield RawRow(where, fields)
        except csv.Error as error:
            told = f"{file}:{reader.reader.line_num}: not valid CSV: {error}"
            raise InputError(told, 'write a quote in a cell as ""') from error


def _parquet_batches(opened: Any) -> tuple[Any, Iterator[Any]]:
    import pyarrow.parquet as pq

    table = pq.ParquetFile(opened)
    # One row group at a time: if given several, Arrow reads all of them before it returns the first row.
    groups = (table.iter_batches(_BATCH_ROWS, row_groups=[group]) for group in range(table.num_row_groups))
    return table.schema_arrow, chain.from_iterable(groups)


def _arrow_batches(opened: Any) -> tuple[Any, Iterator[Any]]:
    """Return the schema and batches of Arrow's file format, or of its stream format, which `datasets` writes."""
    import pyarrow as pa

    try:
        table = pa.ipc.open_file(opened)
        return table.schema, map(table.get_batch, range(table.num_record_batches))
    except pa.ArrowInvalid:
        opened.seek(0)
        stream = pa.ipc.open_stream(opened)
        return stream.schema, iter(stream)


def _columnar(batches_of: Callable[[Any], tuple[Any, Iterator[Any]]], file: DataFile) -> Iterator[RawRow]:
    import pyarrow as pa

    with pa.OSFile(str(file)) if isinstance(file, Path) else pa.PythonFile(file.open("rb"), "r") as opened:
        schema, batches = batches_of(opened)
        _refuse_repeated(f"{file}: the schema", schema.names)
        parts = (batch.slice(at, _BATCH_ROWS) for batch in batches for at in range(0, batch.num_rows, _BATCH_ROWS))
        decoded: Callable[[Any], Any] = dict
        if "extension<arrow.json" in str(schema.types):  # columns of mixed types contain JSON text
            from datasets import Features

            decoded = Features.from_arrow_schema(schema.remove_metadata()).decode_example
        for number, fields in enumerate((row for part in parts for row in part.to_pylist()), 1):
            where = f"{file}:row {number}"
            try:
                yield RawRow(where, decoded(fields))
            except ValueError:
                yield RawRow(where, {}, "not valid JSON")


def _refuse_repeated(what: str, names: Sequence[str]) -> None:
    name, times = Counter(names).most_common(1)[0] if names else ("", 0)
    if times > 1:
        raise InputError(f'{what} names "{name}" more than once', "keep one of these columns")


_READERS: Mapping[str, Callable[[DataFile], Iterator[RawRow]]] = {
    "JSON lines": _json_lines,
    "JSON": _json_document,
    "CSV": partial(_table, ","),
    "TSV": partial(_table, "\t"),
    "Parquet": partial(_columnar, _parquet_batches),
    "Arrow": partial(_columnar, _arrow_batches),
}
"""The functions that read a file, by the format names in `DATA_SUFFIXES`."""
