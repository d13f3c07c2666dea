"""Every format of data files: how it is told, read and counted, one entry a format. Its suffixes stand in `DATA_SUFFIXES`
of `config/data_sources.py`, as config, which is below, tells a file that is not there from a hub id by them.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from expert_cli.config.data_sources import DATA_SUFFIXES
from expert_cli.data.formats import arrow, json_lines, text
from expert_cli.data.formats.raw_row import Block, ColumnFilter, RawRow
from expert_cli.errors import EnvironmentProblem, InputError

_ROWS = 1000

ReadRows = Callable[[Path, ColumnFilter], Iterator[RawRow]]
ReadBlocks = Callable[[Path, ColumnFilter, int], Iterator[Block]]
CountRows = Callable[[io.FileIO], Iterator[int]]


@dataclass(frozen=True)
class FileFormat:
    """What differs between formats.

    rows: the rows of a file in order; blank lines are none. blocks: at most so many of them in blocks, column by column
    where all is text; None where blocks are made of rows, 1,000 at a time. count: how many rows the parts of an open file
    hold, without parsing them; None where that cannot be. begins: whether the first bytes of a file, without byte order
    mark and white space, are those of this format; None where only a file beside it with the same first line tells.
    label: how a warning then calls it. whole: a file is read as a whole, and takes several times its size of memory.
    """

    label: str
    rows: ReadRows
    blocks: ReadBlocks | None = None
    count: CountRows | None = None
    begins: Callable[[bytes], object] | None = None
    whole: bool = False


FORMATS: Mapping[str, FileFormat] = {
    "JSON lines": FileFormat(
        "JSON lines", json_lines.read_rows, json_lines.read_blocks, json_lines.count_json_rows, json_lines.begins
    ),
    "JSON": FileFormat(
        "a list of JSON objects", text.read_json_rows, begins=re.compile(rb"\[\s*\{\s*[\"}]").match, whole=True
    ),
    "CSV": FileFormat("the CSV files beside it", text.read_csv),
    "Parquet": FileFormat(
        "Parquet",
        partial(arrow.read_rows, arrow.parquet_batches),
        partial(arrow.read_blocks, arrow.parquet_batches),
        arrow.count_parquet_rows,
        re.compile(rb"PAR1").match,
    ),
    "Arrow": FileFormat(
        "Arrow",
        partial(arrow.read_rows, arrow.arrow_batches),
        partial(arrow.read_blocks, arrow.arrow_batches),
        arrow.count_arrow_rows,
        re.compile(rb"ARROW1|\xff{4}.{2}[\x00-\x0f]\x00", re.DOTALL).match,  # a file, a stream
    ),
}
"""By the names that `DATA_SUFFIXES` gives them."""

PACKED: Mapping[str, tuple[str, bytes]] = {
    ".gz": ("gzip", rb"\x1f\x8b\x08"),
    ".bz2": ("bzip2", rb"BZh[1-9]1AY&SY"),
    ".xz": ("xz", rb"\xfd7zXZ\x00"),
    ".zst": ("zstd", rb"\x28\xb5\x2f\xfd"),
    ".lz4": ("lz4", rb"\x04\x22\x4d\x18"),
    ".zip": ("zip", rb"PK\x03\x04"),
}
"""How rows may be packed, which is not read: name and first bytes (a regular expression) by suffix."""


def format_of(name: str | Path) -> FileFormat | None:
    """Return the format that a file's suffix says it has, None if none is known."""
    return FORMATS.get(DATA_SUFFIXES.get(Path(name).suffix.lower(), ""))


def read_file(path: Path, columns: ColumnFilter) -> Iterator[RawRow]:
    """Yield the rows of a file in order; blank lines are not rows.

    Raises InputError: format not known, file damaged as a whole. EnvironmentProblem: file cannot be opened.
    """
    with _file_errors(path):
        yield from _known_format(path).rows(path, columns)


def read_blocks(path: Path, columns: ColumnFilter, limit: int = sys.maxsize) -> Iterator[Block]:
    """Yield at most `limit` rows of a file in order, in blocks whose borders depend on the file alone.

    What is not plain text in the columns of interest is read row by row, which names what is wrong with it. Raises as
    `read_file` does.
    """
    with _file_errors(path):
        form = _known_format(path)
        if form.blocks:
            yield from form.blocks(path, columns, limit)
            return
        rows = islice(form.rows(path, columns), limit)
        while some := list(islice(rows, _ROWS)):
            yield Block.of_rows(some)


def _known_format(path: Path) -> FileFormat:
    form = format_of(path)
    if form is None:
        raise InputError(
            f"{path}: no known data format" + (f' ("{path.suffix}")' if path.suffix else ""),
            f"Give the rows as one of {', '.join(DATA_SUFFIXES)}.",
        )
    return form


@contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    """Make a system's error about a file one that names it."""
    try:
        yield
    except OSError as error:
        raise EnvironmentProblem(f"{path}: cannot be read: {error.strerror or error}") from error
