"""Plans full packs of randomly drawn documents.

    order of the epoch   7 2 9 4 | 0 5 8 | 3 1 6 ...       documents drawn in order, one pack after another
    capacity 10          | 7 (3) 2 (4) |...|               drawing stops when one more document would fill the pack
                         | 7 (3) 2 (4) 6 (3) |             the longest other document that fits fills it

Best-fit-decreasing groups documents of similar length, which are often similar in other ways, too: rows of one database or one
template. Here documents are drawn at random until a pack has room for about one more. Packs become as full as with
best-fit-decreasing (benchmarks/bench_packing.py). Several packs are filled at a time, for speed.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from expert_cli.data.packing.pack_plan import Ints, PackingPlan, Pieces, grouped, stable_order

_MEGABATCH = 50
_SHARE = 8  # 1/8 of the remaining documents is drawn at a time


def random_fit(pieces: Pieces, capacity: int, seed: int, epoch: int) -> PackingPlan:
    """Place every piece in a random pack; the same arguments give the same packs on every machine."""
    order = shuffled(len(pieces.documents), f"packs of {seed}:{epoch}")
    filled = _Filling(pieces.lengths[order], capacity)
    filled.place_all()
    pack_of = np.empty_like(order)
    pack_of[order] = filled.pack_of
    return grouped(pieces, pack_of, filled.packs)


class _Filling:
    """Packs in progress. pack_of: int64 [documents], the pack of each document by its rank in the random order, -1: none yet.

    Documents of one length form a queue: drawing takes from its front, filling from its end, so counts show which are left.
    """

    def __init__(self, sizes: Ints, capacity: int) -> None:
        self.capacity, self.sizes = capacity, sizes
        self.pack_of = np.full(len(sizes), -1, np.int64)
        self.packs = 0
        self._left = np.bincount(sizes, minlength=capacity + 1)
        self._by_length = stable_order(sizes)
        self._ends = np.cumsum(self._left)
        total, squares = sizes.sum(), (sizes * sizes).sum()
        # Drawing stops with the document that crosses the border, on average E[n^2] / (2 E[n]) past it.
        room = total / max(1, len(sizes)) + squares / max(1, 2 * total)
        self._border = max(0, capacity - int(room))

    def place_all(self) -> None:
        """Draw at least one pack and the beginning of the next at a time, until all documents are placed."""
        first, count = 0, len(self.sizes)
        a_pack = 1 + 2 * self.capacity * count // max(1, int(self.sizes.sum()))
        while first < count:
            stop, ranks, packs = first, np.empty(0, np.int64), 0
            while packs < 2 and stop < count:
                stop = min(count, stop + max(a_pack, (count - first) // _SHARE))
                ranks = first + np.flatnonzero(self.pack_of[first:stop] < 0)
                packs = int(self.sizes[ranks].sum()) // self.capacity
            drawn = self._draw(ranks, last=stop == count)
            first = int(ranks[drawn]) if drawn < len(ranks) else stop

    def _draw(self, ranks: Ints, *, last: bool) -> int:
        """Draw packs from these ranks, except a last one that may continue, and fill them. Return how many ranks are used."""
        total = np.append(0, np.cumsum(self.sizes[ranks]))
        fits = np.searchsorted(total, total[:-1] + self.capacity, side="right") - 1
        # The last packs are drawn full: nothing is left to fill them.
        enough = np.searchsorted(total, total[:-1] + (self.capacity if last else self._border))
        following = np.maximum(np.minimum(fits, enough), np.arange(1, len(total))).tolist()
        begins = [0]
        while begins[-1] < len(ranks):
            begins.append(following[begins[-1]])
        borders = np.array(begins if last else begins[:-1])
        drawn, packs = ranks[: borders[-1]], self.packs + np.arange(len(borders) - 1)
        self.pack_of[drawn] = np.repeat(packs, np.diff(borders))
        self._left -= np.bincount(self.sizes[drawn], minlength=self.capacity + 1)
        self._fill(packs, self.capacity - np.diff(total[borders]))
        self.packs += len(packs)
        return len(drawn)

    def _fill(self, packs: Ints, rooms: Ints) -> None:
        """Give each pack the longest document that fits, repeatedly, until none fits."""
        while len(packs) and len(lengths := np.flatnonzero(self._left)) and rooms.max() >= lengths[0]:
            order = stable_order(rooms)
            taken = np.empty_like(rooms)
            taken[order] = _largest_that_fit(rooms[order], lengths, self._left[lengths])
            packs, rooms, taken = packs[taken > 0], rooms[taken > 0], taken[taken > 0]
            by_length = stable_order(taken)
            counts = np.bincount(taken, minlength=self.capacity + 1)
            lengths_taken = taken[by_length]
            nth = np.arange(len(taken)) - (np.cumsum(counts) - counts)[lengths_taken]
            self.pack_of[self._by_length[self._ends[lengths_taken] - 1 - nth]] = packs[by_length]
            self._ends -= counts
            self._left -= counts
            rooms = rooms - taken


def _largest_that_fit(rooms: Ints, lengths: Ints, counts: Ints) -> Ints:
    """Return the longest remaining length that fits each room (ascending), 0 for none; smaller rooms choose first."""
    values, asking = np.unique(rooms, return_counts=True)
    stops = np.searchsorted(lengths, values, side="right").tolist()
    pairs = list(zip(lengths.tolist(), counts.tolist(), strict=True))
    fitting: list[tuple[int, int]] = []  # lengths that fit the current room, the longest last
    taken: list[tuple[int, int]] = []
    begin = 0
    for stop, count in zip(stops, asking.tolist(), strict=True):
        fitting += pairs[begin:stop]
        begin, unserved = stop, count
        while unserved:
            length, left = fitting.pop() if fitting else (0, unserved)
            served = min(left, unserved)
            taken.append((length, served))
            if left > served:
                fitting.append((length, left - served))
            unserved -= served
    return np.repeat(*np.array(taken, np.int64).T)


def epoch_order(packs: int, seed: int, epoch: int) -> Ints:
    """Return the order of the packs in an epoch (from 0), int64 [packs]."""
    return shuffled(packs, f"order of {seed}:{epoch}")


def shuffled(count: int, drawn: str) -> Ints:
    """Return a permutation of `count` indices, int64 [count]; equal on every machine and with every version of numpy."""
    key = int.from_bytes(hashlib.sha256(drawn.encode()).digest()[:8], "little")
    # No two words are equal, so any sorting algorithm gives the same order.
    return np.argsort(mixed(np.arange(count, dtype=np.uint64), key))


def mixed(values: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """Hash 64-bit words with a key (splitmix64's finalizer); unsigned arrays wrap around."""
    words: NDArray[np.uint64] = values + np.uint64(key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))


def grouped_order(lengths: Ints, batch_size: int, seed: int, epoch: int) -> Ints:
    """Return an order of shuffled batches of packs with similar length: packs are sorted within groups of 50 batches."""
    order = shuffled(len(lengths), f"groups of {seed}:{epoch}")
    stretch = np.arange(len(order)) // (batch_size * _MEGABATCH)
    order = order[np.lexsort((-lengths[order], stretch))]
    whole = len(order) // batch_size
    batches = order[: whole * batch_size].reshape(-1, batch_size)[shuffled(whole, f"batches of {seed}:{epoch}")]
    return np.concatenate([batches.reshape(-1), order[whole * batch_size :]])
