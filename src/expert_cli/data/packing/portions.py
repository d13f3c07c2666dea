"""A large epoch goes portion by portion, so that no more than one portion's documents are looked at at a time.

    documents   0 1 2 3 4 5 6 7 8 9 ...          of all data
    portion 0   1 4 5 8    portion 1   0 2 7 9    drawn by seed and epoch, of equal size, each document in one
    packs       [1 5] [4 8]            [0 7] [2 9]    of the documents of a portion
    trained     [4 8] [1 5]            [0 7] [2 9]    a portion after another, the packs of each in random order

A portion is a random sample of all documents, so its packs are what packs of all of them would be. Which documents it has
follows from a permutation that is computed where it is asked for (`order.py`). Data of up to `PORTION` documents are one.
"""

from __future__ import annotations

import numpy as np

from expert_cli.data.packing.order import draw_key, permuted
from expert_cli.data.packing.plan import Ints

PORTION = 1 << 22
"""Documents of a portion at most. Planning its packs takes about 100 bytes each (benchmarks/bench_portions.py)."""


def portions_of(documents: int, largest: int) -> int:
    """Return into how many portions documents go, none larger than `largest`; at least one."""
    return max(1, -(-documents // largest))


def documents_of(portion: int, portions: int, documents: int, seed: int, epoch: int) -> Ints:
    """Return the numbers of a portion's documents in an epoch, int64, ascending."""
    if portions == 1:
        return np.arange(documents)
    places = range(documents * portion // portions, documents * (portion + 1) // portions)
    return np.sort(permuted(places, documents, f"portions of {draw_key(seed, epoch)}"))
