"""Rows of CSV, TSV and text files, each with the line it begins in. A line of a text file is a document, a blank one none."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from expert_cli.data.formats import json_lines
from expert_cli.data.formats.compression import open_data
from expert_cli.data.formats.lines import read_lines, refuse_utf16
from expert_cli.data.formats.raw_row import Block, ColumnFilter, Piece, RawRow
from expert_cli.data.places import DataFile
from expert_cli.errors import InputError

TEXT = "text"
"""The column of a text file's lines, as `datasets` calls it."""
_LOOKED_AT = 4096
_COUNTED_BYTES = 1 << 20
_LONGEST_CELL = 2**31 - 1  # csv's default is 128 KiB; a C long on Windows holds no more than this


def read_documents(path: DataFile, columns: ColumnFilter) -> Iterator[RawRow]:
    for block in read_document_blocks(Piece(path), columns, sys.maxsize):
        yield from block.raw()


def read_document_blocks(piece: Piece, columns: ColumnFilter, limit: int) -> Iterator[Block]:
    names = columns.select([TEXT])
    for lines in read_lines(piece):
        if not piece.start and lines.first == 1 and json_lines.begins(lines.data[:_LOOKED_AT]):
            raise InputError(f"{piece.path}: begins as JSON lines, of which text files have none", "Name it .jsonl.")
        numbered = [(at, line) for at, line in enumerate(lines.data.split(b"\n")) if line.strip()][:limit]
        texts = [_decoded(line.removesuffix(b"\r")) for _, line in numbered]
        rows = [
            RawRow(lines.place(at), {}, "not valid UTF-8")
            if text is None
            else RawRow(lines.place(at), dict.fromkeys(names, text))
            for (at, _), text in zip(numbered, texts, strict=True)
        ]
        told = None if None in texts or not texts else dict.fromkeys(names, texts)
        yield replace(Block.of_rows(rows), texts=told, lines=lines.count)
        limit -= len(rows)
        if not limit:
            return


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return None


def count_documents(file: io.BufferedReader) -> Iterator[int]:
    while lines := file.readlines(_COUNTED_BYTES):
        yield sum(map(bool, map(bytes.strip, lines)))


def read_table(delimiter: str, path: DataFile, columns: ColumnFilter) -> Iterator[RawRow]:
    """CSV, or TSV, which differs in its delimiter alone."""
    limit = csv.field_size_limit(_LONGEST_CELL)
    try:
        # A CSV cell has no escapes, so half of a surrogate pair in it can only be a byte that was not UTF-8.
        with open_data(path) as file:
            refuse_utf16(path, file)
            text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
            yield from _table_rows(path, csv.reader(text, delimiter=delimiter, strict=True), columns)
    finally:
        csv.field_size_limit(limit)


def _table_rows(path: DataFile, reader: Any, columns: ColumnFilter) -> Iterator[RawRow]:
    header: list[str] = []
    while True:
        where = f"{path}:{reader.line_num + 1}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                raise InputError(
                    f"{where}: a quote is opened here and never closed", 'Write a quote in a cell as "".'
                ) from error
            yield RawRow(where, {}, f"not valid CSV: {error}")
            continue
        if not cells:
            continue
        if not header:
            header = _header(where, cells, columns)
        elif len(cells) != len(header):
            yield RawRow(where, {}, f"not as many cells as the header's {len(header)}")
        elif not all(cell.isascii() or _is_utf8(cell) for cell in cells):
            yield RawRow(where, {}, "not valid UTF-8")
        else:
            row = dict(zip(header, cells, strict=True))
            yield RawRow(where, {name: row[name] for name in columns.select(header)})


def _header(where: str, cells: list[str], columns: ColumnFilter) -> list[str]:
    if not all(_is_utf8(name) for name in cells):
        raise InputError(f"{where}: the header is not valid UTF-8", "Save the file as UTF-8.")
    columns.select_once(cells, f"{where}: the header")
    return cells


def _is_utf8(cell: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in cell)
