"""Compressions of data files: a layer below the formats, whose readers open every file here and see its content alone.

Arrow's decompressors, as they refuse what the standard library's pass over: bytes behind the last stream, in which the rest
of the rows may be. Theirs are also no slower (gzip 214 MB/s, 150 by `gzip`; zstd 1,229, which Python has from 3.14 on). Xz,
which Arrow does not read, goes through `lzma`, held to the same.
"""

from __future__ import annotations

import io
import lzma
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from expert_cli.config.data_files import COMPRESSED_SUFFIXES
from expert_cli.data.places import DataFile, open_file
from expert_cli.errors import InputError
from expert_cli.utils.text import first_line

_BUFFER_BYTES = 1 << 20
_PACKED_BYTES = 1 << 16
_MOST_XZ_BYTES = 1 << 28
"""Of memory that a file may ask for; those of `xz -9` ask for 65 MB. Zstd's own limit is 128 MB."""


@dataclass(frozen=True)
class Compression:
    """How files begin that are compressed so, and what reads the content of one that is open."""

    begins: Callable[[bytes], object]
    reader: Callable[[io.RawIOBase], Any]


class _XzReader(io.RawIOBase):
    """The content of all streams of an xz file. Raises EOFError, LZMAError: it is cut off or damaged, also behind a stream."""

    def __init__(self, file: io.RawIOBase) -> None:
        self._file = file
        self._start()

    def _start(self) -> None:
        self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_XZ_BYTES)

    def readinto(self, buffer: Any) -> int:
        content = b""
        while not content:
            packed = self._decoder.unused_data
            if not packed and self._decoder.needs_input | self._decoder.eof:
                packed = self._file.read(_PACKED_BYTES) or b""
                if not packed and self._decoder.eof:
                    return 0
                if not packed:
                    raise EOFError("Truncated compressed stream")
            if self._decoder.eof:
                self._start()
            content = self._decoder.decompress(packed, len(buffer))
        buffer[: len(content)] = content
        return len(content)


def _arrow_reader(codec: str, file: io.RawIOBase) -> Any:
    return pa.CompressedInputStream(file, codec)


COMPRESSIONS: Mapping[str, Compression] = {
    "gzip": Compression(re.compile(rb"\x1f\x8b\x08").match, partial(_arrow_reader, "gzip")),
    "zstd": Compression(re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18").match, partial(_arrow_reader, "zstd")),
    "bzip2": Compression(re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)").match, partial(_arrow_reader, "bz2")),
    "xz": Compression(re.compile(rb"\xfd7zXZ\x00").match, _XzReader),
}
"""By the names that `COMPRESSED_SUFFIXES` gives them."""


class _Content(io.RawIOBase):
    """The content of a compressed file; where it is damaged, an InputError that names the file."""

    def __init__(self, path: DataFile, file: io.RawIOBase, name: str) -> None:
        self._path = path
        self._file = file
        self._name = name
        head = file.read(16) or b""
        file.seek(0)
        if not COMPRESSIONS[name].begins(head):
            raise self._damaged("it does not begin as one" if head else "it is empty")
        self._reader = COMPRESSIONS[name].reader(file)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return int(self._reader.readinto(buffer))
        except (pa.ArrowException, lzma.LZMAError, EOFError, OSError) as error:
            # Arrow reports damage as OSError without a number; one of the system has it.
            if getattr(error, "errno", None) is not None:
                raise
            raise self._damaged(first_line(error)) from error

    def close(self) -> None:
        self._file.close()
        super().close()

    def _damaged(self, why: str) -> InputError:
        return InputError(f"{self._path}: damaged, or no {self._name} file: {why}", "Get or write the file again.")


def open_data(path: DataFile, file: io.RawIOBase | None = None) -> io.BufferedReader:
    """Open a data file, compressed or not as its name tells, to read its content; `file`: where it is open already.

    Raises OSError; InputError, also where the content is read: damaged, cut off, or not compressed so.
    """
    name = COMPRESSED_SUFFIXES.get(path.suffix.lower())
    file = file or open_file(path)
    try:
        return io.BufferedReader(_Content(path, file, name) if name else file, _BUFFER_BYTES)
    except BaseException:
        file.close()
        raise
