"""Encoded pieces become documents end to end: one copy of every id, however many batches they come in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from expert_cli.data.tokenize.backends import Pieces, gather


@dataclass(frozen=True)
class Encoded:
    """Documents as ids, end to end.

    ids: int32 [tokens]. offsets: int64 [documents + 1], document i is ids[offsets[i]:offsets[i + 1]]. trained: bool
    [tokens]. kept: int64 [documents], the number that each had among those given; `dropped` had no trained token.
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    trained: NDArray[np.bool_]
    kept: NDArray[np.int64]
    dropped: int

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.offsets) - 1

    @property
    def rows(self) -> int:
        """How many rows were given, those without a trained token too."""
        return len(self) + self.dropped


@dataclass(frozen=True)
class Pieced:
    """Documents whose pieces are encoded and not yet put together.

    parts: the encoded texts, counted on from part to part. order: int64 [pieces of all documents], which text each piece
    is; flags: bool, whether it is trained. counts: int64 [documents], how many pieces each has.
    """

    parts: Sequence[Pieces]
    order: NDArray[np.int64]
    flags: NDArray[np.bool_]
    counts: NDArray[np.int64]


def assemble(batches: Sequence[Pieced]) -> Encoded:
    """Put documents together, those of all batches counted on; documents without a trained token are left out."""
    trained = [*map(_trained, batches)]
    sizes = np.concatenate([np.empty(0, np.int64), *(sizes for _, sizes, _ in trained)])
    counts = np.concatenate([np.empty(0, np.int64), *(batch.counts for batch, _, _ in trained)])
    flags = np.concatenate([np.empty(0, np.bool_), *(batch.flags for batch, _, _ in trained)])
    good = np.concatenate([np.empty(0, np.bool_), *(good for _, _, good in trained)])
    offsets = np.concatenate([[0], np.cumsum(sizes)])[np.concatenate([[0], np.cumsum(counts)])].astype(np.int64)
    ids = np.empty(offsets[-1], np.int32)
    start = 0
    for batch, its_sizes, _ in trained:
        stop = start + int(its_sizes.sum())
        gather(batch.parts, batch.order, ids[start:stop])
        start = stop
    return Encoded(ids, offsets, np.repeat(flags, sizes), np.flatnonzero(good), int((~good).sum()))


def _trained(batch: Pieced) -> tuple[Pieced, NDArray[np.int64], NDArray[np.bool_]]:
    """A batch without the documents that have no trained token, the tokens of each piece, and which documents are left."""
    sizes = np.concatenate([np.empty(0, np.int64), *(part[1] for part in batch.parts)])[batch.order]
    ends = np.concatenate([[0], np.cumsum(batch.counts)])
    trained = np.concatenate([[0], np.cumsum(sizes * batch.flags)])
    good = np.diff(trained[ends]) > 0
    if good.all():
        return batch, sizes, good
    pieces = np.repeat(good, batch.counts)
    return (
        replace(batch, order=batch.order[pieces], flags=batch.flags[pieces], counts=batch.counts[good]),
        sizes[pieces],
        good,
    )
