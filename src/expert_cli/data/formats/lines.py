"""Files of lines, 4 MB at a time: a file is never in memory as a whole."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from dataclasses import dataclass

from expert_cli.config.data_files import COMPRESSED_SUFFIXES
from expert_cli.data.formats.compression import open_data
from expert_cli.data.formats.raw_row import Piece
from expert_cli.data.places import DataFile, size_of
from expert_cli.errors import InputError

_BLOCK_BYTES = 4 << 20
"""Twice as much is no faster, and takes 60 MB more memory from the system, which is slow to give it."""


@dataclass(frozen=True)
class Lines:
    """Whole lines of a file: `count` of them, the first one's number (from 1) is `first`."""

    path: DataFile
    first: int
    count: int
    data: bytes

    def place(self, number: int) -> str:
        """Return where the line of a number stands, counted from 0."""
        return f"{self.path}:{self.first + number}"


def read_lines(piece: Piece) -> Iterator[Lines]:
    """Yield the lines that begin in a piece of a file, about 4 MB at a time, without a byte order mark."""
    first = piece.lines + 1
    with open_data(piece.path) as file:
        if piece.start:
            file.seek(piece.start - 1)
        else:
            refuse_utf16(piece.path, file)
        at = piece.start and piece.start - 1 + len(file.readline())  # behind the line that began before the piece
        while data := file.read(max(0, min(_BLOCK_BYTES, piece.stop - at))):
            if not data.endswith(b"\n"):
                data += file.readline()
            count = data.count(b"\n") + (not data.endswith(b"\n"))
            yield Lines(piece.path, first, count, data if at else data.removeprefix(codecs.BOM_UTF8))
            first += count
            at += len(data)


def cut_lines(path: DataFile, size: int) -> list[int]:
    """Return where the pieces of a file of lines start, each of `size` bytes; what is compressed is one piece."""
    whole = path.suffix.lower() in COMPRESSED_SUFFIXES
    return [0] if whole else list(range(0, max(1, size_of(path)), size))


def count_lines(piece: Piece) -> int:
    """Return how many lines begin in a piece."""
    return sum(lines.count for lines in read_lines(piece))


def refuse_utf16(path: DataFile, file: io.BufferedReader) -> None:
    """Raise InputError for a UTF-16 file, just opened: as Windows programs write it, it would be one bad row a line."""
    if file.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        raise InputError(f"{path}: the file is UTF-16", "Save it as UTF-8.")
