"""Compressed files for tests, and their content, by other libraries than the readers' where there are any."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Mapping

import pyarrow as pa


def _zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue().to_pybytes())


COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": _zstd,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
"""By suffix."""
DECOMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".zst": lambda packed: bytes(pa.CompressedInputStream(pa.BufferReader(packed), "zstd").read()),
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
}
DAMAGE = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
"""What these raise."""
