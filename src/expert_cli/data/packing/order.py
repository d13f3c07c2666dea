"""The order of an epoch: a permutation by (seed, epoch), the same on every machine, so that resuming is exact."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expert_cli.data.packing.plan import Ints

_ROUNDS = 16  # with 12, some of the 120 orders of 5 packs come visibly more often than others
_MEGABATCH = 50
_AT_ONCE = 1 << 16  # as many as stay in a core's cache


def draw_key(seed: int, epoch: int) -> str:
    """Return the words that key a draw."""
    return f"{seed}:{epoch}"


def epoch_order(packs: int, seed: int, epoch: int) -> Ints:
    """Return the order of the packs of an epoch (from 0), int64 [packs]; the same in every version of numpy."""
    return permuted(range(packs), packs, draw_key(seed, epoch))


def permuted(places: range, count: int, key: str) -> Ints:
    """Return what stands at these places of a permutation of `count` indices, int64 [places].

    Not numpy's own shuffling, which may change with a version of numpy and makes all of a permutation: a Feistel network over
    Z_a x Z_b (Black and Rogaway 2002, Ciphers with arbitrary finite domains). Pairs beyond the last index walk on.
    """
    digest = hashlib.shake_256(key.encode()).digest(8 * _ROUNDS)
    keys = [int.from_bytes(digest[i : i + 8], "little") for i in range(0, len(digest), 8)]
    order = np.empty(len(places), np.int64)
    for start in range(0, len(places), _AT_ONCE):
        some = places[start : start + _AT_ONCE]
        indices = np.arange(some.start, some.stop, dtype=np.uint64)
        walking = np.arange(len(some))
        while len(walking):
            indices[walking] = _enciphered(indices[walking], count, keys)
            walking = walking[indices[walking] >= count]
        order[start : start + len(some)] = indices
    return order


def _enciphered(index: NDArray[np.uint64], count: int, keys: list[int]) -> NDArray[np.uint64]:
    """An index is a pair of digits (left, right); each round adds a hash of one digit to the other."""
    a = np.uint64(math.isqrt(count - 1) + 1)
    b = np.uint64(-(-count // int(a)))
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


def grouped_order(lengths: NDArray[np.integer[Any]], batch_size: int, seed: int, epoch: int) -> Ints:
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
