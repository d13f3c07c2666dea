"""The order of an epoch: a permutation by (seed, epoch) that is computed place by place, so that resuming is exact."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 16  # with 12, some of the 120 orders of 5 packs come visibly more often than others
_MEGABATCH = 50


@dataclass(frozen=True)
class EpochPermutation:
    """A permutation of `packs` indices; every place is computed by itself and nothing is stored.

    An index is a pair of digits (left, right); each round adds a hash of one digit to the other (a Feistel network over
    Z_a x Z_b: Black and Rogaway 2002, Ciphers with arbitrary finite domains). Pairs beyond the last index walk on.
    """

    packs: int
    keys: tuple[int, ...]

    def __len__(self) -> int:
        """Return the number of indices."""
        return self.packs

    def __getitem__(self, place: int) -> int:
        """Return the index at `place`, 0 <= place < packs; raises IndexError outside."""
        if not 0 <= place < self.packs:
            raise IndexError(place)
        return int(self.at(np.array([place]))[0])

    def permutation(self) -> NDArray[np.int64]:
        """Return the whole order, int64 [packs]."""
        return self.at(np.arange(self.packs))

    def at(self, places: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return the indices at many places, int64 of the same shape [n]."""
        found = places.astype(np.uint64)
        walking = np.arange(len(found))
        while len(walking):
            found[walking] = self._step(found[walking])
            walking = walking[found[walking] >= self.packs]
        return found.astype(np.int64)

    def _step(self, index: NDArray[np.uint64]) -> NDArray[np.uint64]:
        a = np.uint64(math.isqrt(self.packs - 1) + 1)
        b = np.uint64(-(-self.packs // int(a)))
        left: NDArray[np.uint64] = index // b
        right: NDArray[np.uint64] = index % b
        for turn, key in enumerate(self.keys):
            if turn % 2:
                right = (right + mixed(left, key) % b) % b
            else:
                left = (left + mixed(right, key) % a) % a
        left *= b
        left += right
        return left


def epoch_order(packs: int, seed: int, epoch: int) -> EpochPermutation:
    """Return the order of the packs in an epoch (counted from 0); the same on every machine and in every version."""
    digest = hashlib.shake_256(f"{seed}:{epoch}".encode()).digest(8 * _ROUNDS)
    return EpochPermutation(packs, tuple(int.from_bytes(digest[i : i + 8], "little") for i in range(0, len(digest), 8)))


def mixed(values: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """Hash 64-bit words with a key (the finalizer of splitmix64); unsigned arrays wrap around."""
    words: NDArray[np.uint64] = values + np.uint64(key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    words ^= words >> np.uint64(31)
    return words


@dataclass(frozen=True)
class DrawnOrder:
    """An order held as a whole: int64 [packs]."""

    indices: NDArray[np.int64]

    def at(self, places: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return the indices at `places`."""
        taken: NDArray[np.int64] = self.indices[places]
        return taken


def grouped_order(lengths: NDArray[np.integer[Any]], batch_size: int, seed: int, epoch: int) -> DrawnOrder:
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
    return DrawnOrder(np.concatenate([batches.reshape(-1), order[whole:]]))
