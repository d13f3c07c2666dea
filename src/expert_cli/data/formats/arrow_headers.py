"""How many rows and bytes each batch of an Arrow file has, as its footer and the batches' headers say: no row is read for it.

    "ARROW1" ... 0xFFFFFFFF, length of a header, header, body ... footer, its length, "ARROW1"

pyarrow tells this of a batch that it has read. Footer and headers are FlatBuffers (File.fbs and Message.fbs of the format): a
table begins with the way back to a list of where its fields stand.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

MAGIC = b"ARROW1"
_END = struct.Struct("<i6s")
_BLOCK = struct.Struct("<qi4xq")
_CONTINUED = b"\xff\xff\xff\xff"
_BATCHES, _HEADER, _ROWS, _COMPRESSION = 3, 2, 0, 3
"""Numbers of fields: of a footer, of a message, of a batch's header."""


class BatchHeader(NamedTuple):
    """What is told of a batch; size: the bytes of its values."""

    rows: int
    size: int
    is_compressed: bool


class _Table(NamedTuple):
    """A FlatBuffers table that begins at a place of some bytes."""

    data: bytes
    at: int

    def read(self, form: str, at: int) -> int:
        return int(struct.unpack_from(form, self.data, at)[0])

    def place(self, field: int) -> int:
        """Where a field stands, 0 if it is not written."""
        fields = self.at - self.read("<i", self.at)
        entry = 4 + 2 * field
        offset = self.read("<H", fields + entry) if entry < self.read("<H", fields) else 0
        return self.at + offset if offset else 0

    def below(self, field: int) -> _Table:
        """The table, or the list, that a field leads to."""
        place = self.place(field)
        return _Table(self.data, place + self.read("<I", place))


def batch_headers(read: Callable[[int, int], bytes], size: int) -> Iterator[BatchHeader]:
    """Yield what is told of the batches of a file of so many bytes, in order. read: its bytes from a place to another.

    Raises ArrowInvalid: not of that form.
    """

    def inside(start: int, stop: int) -> bytes:
        if not 0 <= start < stop <= size:
            raise struct.error("it leads out of the file")
        return read(start, stop)

    try:
        footer = _footer(inside, size)
        if not footer.place(_BATCHES):
            return
        blocks = footer.below(_BATCHES)
        for number in range(blocks.read("<I", blocks.at)):
            start, header_bytes, body_bytes = _BLOCK.unpack_from(blocks.data, blocks.at + 4 + number * _BLOCK.size)
            message = inside(start, start + header_bytes)
            batch = _root(message[8 if message.startswith(_CONTINUED) else 4 :]).below(_HEADER)
            rows = batch.read("<q", place) if (place := batch.place(_ROWS)) else 0
            yield BatchHeader(rows, body_bytes, bool(batch.place(_COMPRESSION)))
    except struct.error as error:
        raise pa.ArrowInvalid(f"its footer or a batch's header is damaged ({error})") from error


def _footer(read: Callable[[int, int], bytes], size: int) -> _Table:
    length, magic = _END.unpack(read(size - _END.size, size))
    if magic != MAGIC:
        raise struct.error("the file is cut off")
    return _root(read(size - _END.size - length, size - _END.size))


def _root(data: bytes) -> _Table:
    return _Table(data, int(struct.unpack_from("<I", data)[0]))
