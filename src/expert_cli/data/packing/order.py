"""The order of an epoch: a permutation by (seed, epoch), the same on every machine, so that resuming is exact."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 16  # with 12, some of the 120 orders of 5 packs come visibly more often than others
_MEGABATCH = 50


def epoch_order(packs: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the order of the packs in an epoch (counted from 0), int64 [packs]; the same in every version.

    Not numpy's own shuffling, which may change with a version of numpy: a Feistel network over Z_a x Z_b (Black and Rogaway
    2002, Ciphers with arbitrary finite domains). Pairs beyond the last index walk on.
    """
    digest = hashlib.shake_256(f"{seed}:{epoch}".encode()).digest(8 * _ROUNDS)
    keys = [int.from_bytes(digest[i : i + 8], "little") for i in range(0, len(digest), 8)]
    order = np.arange(packs, dtype=np.uint64)
    walking = np.arange(packs)
    while len(walking):
        order[walking] = _enciphered(order[walking], packs, keys)
        walking = walking[order[walking] >= packs]
    return order.astype(np.int64)


def _enciphered(index: NDArray[np.uint64], packs: int, keys: list[int]) -> NDArray[np.uint64]:
    """An index is a pair of digits (left, right); each round adds a hash of one digit to the other."""
    a = np.uint64(math.isqrt(packs - 1) + 1)
    b = np.uint64(-(-packs // int(a)))
    left: NDArray[np.uint64] = index // b
    right: NDArray[np.uint64] = index % b
    for turn, key in enumerate(keys):
        if turn % 2:
            right = (right + mixed(left, key) % b) % b
        else:
            left = (left + mixed(right, key) % a) % a
    left *= b
    left += right
    return left


def mixed(values: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """Hash 64-bit words with a key (the finalizer of splitmix64); unsigned arrays wrap around."""
    words: NDArray[np.uint64] = values + np.uint64(key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    words ^= words >> np.uint64(31)
    return words


def grouped_order(lengths: NDArray[np.integer[Any]], batch_size: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return an order in which neighbors have similar lengths; the same for the same seed and epoch.

    Rows are shuffled, sorted by length within stretches of 50 batches, and the batches shuffled; a short batch comes last.
    """
    random = np.random.default_rng((seed, epoch))
    order = random.permutation(len(lengths))
    stretch = batch_size * _MEGABATCH
    stretches = [order[i : i + stretch] for i in range(0, len(order), stretch)]
    order = np.concatenate([s[np.argsort(-lengths[s], kind="stable")] for s in stretches] or [order])
    whole = len(order) // batch_size * batch_size
    batches = random.permutation(order[:whole].reshape(-1, batch_size))
    return np.concatenate([batches.reshape(-1), order[whole:]])
