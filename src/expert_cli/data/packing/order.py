"""The order of an epoch: a permutation by (seed, epoch), the same on every machine, so that resuming is exact."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from expert_cli.data.packing.plan import Ints

_MEGABATCH = 50


def epoch_order(packs: int, seed: int, epoch: int) -> Ints:
    """Return the order of the packs of an epoch (from 0), int64 [packs]."""
    return shuffled(packs, f"order of {seed}:{epoch}")


def shuffled(count: int, drawn: str) -> Ints:
    """Return a permutation of `count` indices, int64 [count]; the same on every machine and in every version of numpy."""
    key = int.from_bytes(hashlib.sha256(drawn.encode()).digest()[:8], "little")
    # No two words are equal, so every way of sorting gives the same order.
    return np.argsort(mixed(np.arange(count, dtype=np.uint64), key))


def mixed(values: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """Hash 64-bit words with a key (the finalizer of splitmix64); unsigned arrays wrap around."""
    words: NDArray[np.uint64] = values + np.uint64(key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))


def grouped_order(lengths: Ints, batch_size: int, seed: int, epoch: int) -> Ints:
    """Return an order in which neighbors have similar lengths; the same for the same seed and epoch.

    Rows are shuffled, sorted by length within stretches of 50 batches, and the batches shuffled; a short batch comes last.
    """
    random = np.random.default_rng((seed, epoch))
    order = random.permutation(len(lengths))
    stretch = np.arange(len(order)) // (batch_size * _MEGABATCH)
    order = order[np.lexsort((-lengths[order], stretch))]
    whole = len(order) // batch_size * batch_size
    batches = random.permutation(order[:whole].reshape(-1, batch_size))
    return np.concatenate([batches.reshape(-1), order[whole:]])
