"""Every format of data files: how it is told, read and counted, one entry a format. Its suffixes stand in `DATA_SUFFIXES`
of `config/data_files.py`, as config, which is below, tells a file that is not there from a hub id by them.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from pathlib import Path

from expert_cli.config.data_files import COMPRESSED_SUFFIXES, DATA_SUFFIXES, PLAIN_TEXT, format_name
from expert_cli.data.formats import arrow, json_document, json_lines, text
from expert_cli.data.formats.lines import count_lines, cut_lines
from expert_cli.data.formats.raw_row import Block, ColumnFilter, Piece, RawRow
from expert_cli.data.places import DataFile
from expert_cli.errors import EnvironmentProblem, InputError

_ROWS = 1000

ReadRows = Callable[[DataFile, ColumnFilter], Iterator[RawRow]]
ReadBlocks = Callable[[Piece, ColumnFilter, int], Iterator[Block]]
CountRows = Callable[[io.BufferedReader], Iterator[int]]


@dataclass(frozen=True)
class FileFormat:
    """What differs between formats.

    rows: the rows of a file in order; blank lines are none. blocks: at most so many of them in blocks, column by column
    where all is text; None where blocks are made of rows, 1,000 at a time. cut: where pieces of about so many bytes start, None
    where a file is read as a whole. count: how many rows the parts of an opened file
    hold, without parsing them; None where that cannot be. begins: whether the first bytes of a file, without byte order
    mark and white space, are those of this format; None where only a file beside it with the same first line tells.
    label: how a warning then calls it. holds: what its rows are, for the documents.
    """

    label: str
    holds: str
    rows: ReadRows
    blocks: ReadBlocks | None = None
    cut: Callable[[DataFile, int], list[int]] | None = None
    count: CountRows | None = None
    begins: Callable[[bytes], object] | None = None


FORMATS: Mapping[str, FileFormat] = {
    "JSON lines": FileFormat(
        "JSON lines",
        "an object a line",
        json_lines.read_rows,
        json_lines.read_blocks,
        cut_lines,
        json_lines.count_json_rows,
        json_lines.begins,
    ),
    "JSON": FileFormat(
        "a list of JSON objects",
        'one list of objects, `{"data": [objects]}`, one object, or an object a line',
        json_document.read_json_rows,
        begins=re.compile(rb"\[\s*\{\s*[\"}]").match,
    ),
    "CSV": FileFormat(
        "the CSV files beside it",
        'names in the first line, then a row a line; a cell in `"` may hold commas and lines',
        partial(text.read_table, ","),
    ),
    "TSV": FileFormat("the TSV files beside it", "the same with tabs for commas", partial(text.read_table, "\t")),
    PLAIN_TEXT: FileFormat(
        PLAIN_TEXT,
        "a document a line, in the column `text`; blank lines are none. Beside files of rows they are words about these",
        text.read_documents,
        text.read_document_blocks,
        cut_lines,
        text.count_documents,
        lambda _: False,  # anything may be text
    ),
    "Parquet": FileFormat(
        "Parquet",
        "a table; only the columns of interest are read",
        partial(arrow.read_rows, arrow.parquet_batches),
        partial(arrow.read_blocks, arrow.parquet_batches),
        arrow.cut_parquet,
        arrow.count_parquet_rows,
        re.compile(rb"PAR1").match,
    ),
    "Arrow": FileFormat(
        "Arrow",
        "a table, as a file or as the stream that `datasets` writes",
        partial(arrow.read_rows, arrow.arrow_batches),
        partial(arrow.read_blocks, arrow.arrow_batches),
        count=arrow.count_arrow_rows,
        begins=re.compile(rb"ARROW1|\xff{4}.{2}[\x00-\x0f]\x00", re.DOTALL).match,  # a file, a stream
    ),
}
"""By the names that `DATA_SUFFIXES` gives them."""

PACKED: Mapping[str, tuple[str, bytes]] = {
    ".lz4": ("lz4", rb"\x04\x22\x4d\x18"),
    ".zip": ("zip", rb"PK\x03\x04"),
}
"""How rows may be packed, which is not read: name and first bytes (a regular expression) by suffix."""


def format_of(name: str | Path) -> FileFormat | None:
    """Return the format that a file's name says it has, None if none is known."""
    return FORMATS.get(format_name(name))


def read_file(path: DataFile, columns: ColumnFilter) -> Iterator[RawRow]:
    """Yield the rows of a file in order; blank lines are not rows.

    Raises InputError: format not known, file damaged as a whole. EnvironmentProblem: file cannot be opened.
    """
    with _file_errors(path):
        yield from _known_format(path).rows(path, columns)


def read_blocks(piece: Piece, columns: ColumnFilter, limit: int = sys.maxsize) -> Iterator[Block]:
    """Yield at most `limit` rows of a piece of a file in order, in blocks whose borders depend on the piece alone.

    What is not plain text in the columns of interest is read row by row, which names what is wrong with it. Raises as
    `read_file` does.
    """
    with _file_errors(piece.path):
        form = _known_format(piece.path)
        if form.blocks:
            yield from form.blocks(piece, columns, limit)
            return
        rows = islice(form.rows(piece.path, columns), limit)
        while some := list(islice(rows, _ROWS)):
            yield Block.of_rows(some)


def pieces_of(path: DataFile, size: int) -> list[Piece]:
    """Return the pieces that a file can be read in, each of about so many bytes; one if its format tells no border.

    Raises as `read_file` does.
    """
    with _file_errors(path):
        form = _known_format(path)
        starts = form.cut(path, size) if form.cut else [0]
        return [Piece(path, start, stop) for start, stop in pairwise([*starts, sys.maxsize])]


def lines_in(piece: Piece) -> int:
    """Return how many lines a piece has; 0 where its file ends with it, or is no file of lines."""
    is_followed = piece.stop < sys.maxsize and _known_format(piece.path).cut is cut_lines
    return count_lines(piece) if is_followed else 0


def _known_format(path: DataFile) -> FileFormat:
    form = format_of(path.name)
    if form is None:
        raise InputError(
            f"{path}: no known data format" + (f' ("{path.suffix}")' if path.suffix else ""),
            f"Give the rows as one of {', '.join(DATA_SUFFIXES)}; text may be compressed: {', '.join(COMPRESSED_SUFFIXES)}.",
        )
    return form


@contextmanager
def _file_errors(path: DataFile) -> Iterator[None]:
    """Make a system's error about a file one that names it."""
    try:
        yield
    except OSError as error:
        raise EnvironmentProblem(f"{path}: cannot be read: {error.strerror or error}") from error
