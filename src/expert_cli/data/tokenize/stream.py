"""From source files to token ids in bounded memory, chunk by chunk.

    read and render (a thread of its own)  ──►  encode (the engine's threads, the GIL released)  ──►  put together (another)

The rows are selected first (data/rows/selection.py), so that what is wrong is said before anything is encoded, then taken
4 MB at a time. What comes out, chunk borders included, depends on the rows and on the pieces that they are read in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TypeVar

import numpy as np

from expert_cli.data.rows.columnar import Rows
from expert_cli.data.rows.scan import PIECE_BYTES
from expert_cli.data.rows.selected import Reading, RowSelection, Split
from expert_cli.data.rows.validation import BAD_SHARE
from expert_cli.data.templates.template import Template
from expert_cli.data.templates.whole_text import describe_forms, foreign_texts
from expert_cli.data.tokenize.assemble import Encoded, Pieced, assemble
from expert_cli.data.tokenize.encoder import Encoder
from expert_cli.errors import InputError

CHUNK_ROWS = 20_000
CHUNK_CHARACTERS = 24_000_000
"""A chunk ends with the row that reaches either: long rows must not make it too big for memory."""
_READ_AHEAD = 2

T = TypeVar("T")


@dataclass
class DocumentStream:
    """The documents of sources that were scanned.

    forms: counts the known forms of whole texts that were encoded. look: is shown all rows, also those of chunks that are
    skipped. read_over: how many these are, once a chunk is there.
    """

    selection: RowSelection
    template: Template
    encoder: Encoder
    forms: dict[str, int] = field(default_factory=dict)
    look: Callable[[Rows], object] = lambda rows: None  # noqa: ARG005
    read_over: int = 0

    def chunks(self, split: Split, *, skip: int = 0, chunk_rows: int = CHUNK_ROWS) -> Iterator[Encoded]:
        """Yield the chunks of a split, some of its documents in order, from number `skip` on; earlier rows are read over.

        Raises InputError: the files changed, a conversation that the template refuses, no document with a trained token,
        more than 1 % of whole texts in another tokenizer's control tokens.
        """
        rows = sum(map(len, self.selection.sources(split)))
        some = bool(skip) or not self.selection.sources(split)
        for chunk in self._encoded(_read_together(self.selection.readings(split)), skip, chunk_rows):
            some = some or bool(len(chunk))
            self._refuse_foreign(rows)
            yield chunk
        if not some:
            raise InputError(
                f"none of the {rows} documents has a trained token",
                "Check that the response column is mapped and not empty.",
            )

    def _encoded(
        self, batches: Sequence[Sequence[Reading]], skip: int = 0, chunk_rows: int = CHUNK_ROWS
    ) -> Iterator[Encoded]:
        """Encode what is read, and put the pieces of each chunk together while the next ones are encoded."""
        parts: list[Pieced] = []
        waiting: Future[Encoded] | None = None
        with ThreadPoolExecutor(1) as thread:
            for encode, ends_chunk in _ahead(self._rendered(batches, skip, chunk_rows)):
                if encode:
                    parts.append(encode())
                if waiting and (ends_chunk or waiting.done()):
                    yield waiting.result()
                    waiting = None
                if ends_chunk:
                    waiting = thread.submit(assemble, parts)
                    parts = []
            if waiting:
                yield waiting.result()

    def _rendered(
        self, batches: Sequence[Sequence[Reading]], skip: int, chunk_rows: int
    ) -> Iterator[tuple[Callable[[], Pieced] | None, bool]]:
        """Read and render rows of one chunk; yield what encodes them, and whether the chunk ends with them."""
        chunk = 0
        for batch in batches:
            ends = True
            for rows, ends in _cut(chain.from_iterable(reading.rows() for reading in batch), chunk_rows):
                self.look(rows)
                if chunk >= skip:
                    yield self._encoding(rows), ends
                else:
                    self._read_over(rows)
                chunk += ends
            if not ends:
                if chunk >= skip:
                    yield None, True
                chunk += 1

    def _encoding(self, rows: Rows) -> Callable[[], Pieced]:
        columns = [] if self.encoder.places_matter else rows.piece_columns(self.template)
        if columns:
            return partial(self.encoder.column_pieces, columns)
        return partial(self.encoder.pieces, self.template.documents(rows, forms=self.forms))

    def _read_over(self, rows: Rows) -> None:
        self.read_over += len(rows)
        if rows.is_whole_text:
            self.template.documents(rows, forms=self.forms)  # their forms count

    def _refuse_foreign(self, rows: int) -> None:
        """Raise InputError if too many of so many rows are whole texts in control tokens that the tokenizer does not have."""
        foreign = foreign_texts(self.forms)
        if foreign > BAD_SHARE * rows:
            raise InputError(
                f"{foreign} of {rows} texts are written in control tokens that the tokenizer does not have "
                f"({describe_forms(self.forms)}): to the model they would be words",
                'Give the rows as "messages", or take the base model that they were written for.',
            )


def _read_together(readings: Sequence[Reading]) -> list[list[Reading]]:
    """Return readings in batches: as many as come to a chunk of rows, or to `PIECE_BYTES`. Chunks end where a batch does."""
    found: list[list[Reading]] = []
    rows = size = 0
    for reading in readings:
        its_rows, its_size = int(reading.taken.sum()), reading.section.size
        if found and rows + its_rows <= CHUNK_ROWS and size + its_size <= PIECE_BYTES:
            found[-1].append(reading)
            rows, size = rows + its_rows, size + its_size
        else:
            found.append([reading])
            rows, size = its_rows, its_size
    return found


def _ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the items of an iterator that runs in a thread, a little ahead."""
    with ThreadPoolExecutor(1) as thread:
        waiting = deque(thread.submit(next, items, None) for _ in range(_READ_AHEAD))
        while (item := waiting.popleft().result()) is not None:
            waiting.append(thread.submit(next, items, None))
            yield item


def _cut(read: Iterator[Rows], chunk_rows: int) -> Iterator[tuple[Rows, bool]]:
    """Yield rows that lie in one chunk, and whether the chunk ends with them; what is read may end within one."""
    rows = characters = 0
    for batch in read:
        lengths = np.cumsum(batch.lengths())
        start = 0
        while start < len(lengths):
            before = lengths[start - 1] if start else 0
            by_characters = int(np.searchsorted(lengths, before + CHUNK_CHARACTERS - characters)) + 1
            stop = min(by_characters, start + chunk_rows - rows, len(lengths))
            rows += stop - start
            characters += int(lengths[stop - 1] - before)
            ends = rows >= chunk_rows or characters >= CHUNK_CHARACTERS
            yield batch if stop - start == len(lengths) else batch.take(range(start, stop)), ends
            if ends:
                rows = characters = 0
            start = stop
