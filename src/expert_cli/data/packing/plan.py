"""Lengths become packs: which documents share a sequence, decided from the lengths alone.

    capacity 10   | document 4 (6) | document 7 (4) |     a full pack
                  | document 0 (9)               |.|      fill 95 %

Best-fit-decreasing over the whole data set: the longest document first, each into the pack with the least room that still
takes it. Only lengths matter to that, so it works on their histogram: documents of one length go into packs of one room
together, and a bit mask of the rooms there are finds the next one. A million documents take 0.1 to 0.2 s; one document
at a time, as in TRL's segment tree, takes seconds (benchmarks/bench_packing.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from expert_cli.errors import ExpertError

Lengths = NDArray[np.integer[Any]]
Ints = NDArray[np.int64]


class Pieces(NamedTuple):
    """Parts of documents: piece i is tokens starts[i]:stops[i] of document documents[i]; all int64 [pieces]."""

    documents: Ints
    starts: Ints
    stops: Ints

    @property
    def lengths(self) -> Ints:
        """Tokens of every piece, int64 [pieces]."""
        return self.stops - self.starts


@dataclass(frozen=True)
class PackingPlan:
    """Which tokens make up which sequence.

    Piece i is tokens starts[i]:stops[i] of document documents[i] (int64 [pieces]); pack p is the pieces
    offsets[p]:offsets[p + 1] (int64 [packs + 1]), by ascending document. Packs stand in the order of their first document.
    """

    documents: Ints
    starts: Ints
    stops: Ints
    offsets: Ints
    capacity: int

    def __len__(self) -> int:
        """Return the number of packs."""
        return len(self.offsets) - 1

    def fill(self) -> float:
        """Return the share of all room that holds tokens; 0 without packs."""
        return share(int((self.stops - self.starts).sum()), len(self) * self.capacity)

    @property
    def lengths(self) -> Ints:
        """Tokens of every pack, int64 [packs]."""
        total = np.concatenate([[0], np.cumsum(self.stops - self.starts)])
        return np.diff(total[self.offsets])

    def pack(self, index: int) -> Pieces:
        """Return the pieces of one pack."""
        part = slice(self.offsets[index], self.offsets[index + 1])
        return Pieces(self.documents[part], self.starts[part], self.stops[part])

    def parted(self, packs: int) -> PackingPlan:
        """Return the plan with at least `packs` packs: the fullest ones are cut in two between documents."""
        plan = self
        while (missing := packs - len(plan)) > 0:
            several = np.flatnonzero(np.diff(plan.offsets) > 1)
            fullest = several[np.argsort(-plan.lengths[several], kind="stable")[:missing]]
            total = np.concatenate([[0], np.cumsum(plan.stops - plan.starts)])
            begin, end = plan.offsets[fullest], plan.offsets[fullest + 1]
            middle = np.searchsorted(total, (total[begin] + total[end]) / 2)
            borders = np.clip(middle, begin + 1, end - 1)
            plan = replace(plan, offsets=np.sort(np.concatenate([plan.offsets, borders])))
        return plan

    def only(self, packs: NDArray[np.bool_]) -> PackingPlan:
        """Return the plan without the packs that are False."""
        sizes = np.diff(self.offsets)
        pieces = np.repeat(packs, sizes)
        offsets = np.concatenate([[0], np.cumsum(sizes[packs])])
        return replace(
            self,
            documents=self.documents[pieces],
            starts=self.starts[pieces],
            stops=self.stops[pieces],
            offsets=offsets,
        )

    def within(self, fitted: Pieces) -> PackingPlan:
        """Return these packs of `fitted.lengths` in terms of the documents that `fitted` has the pieces of."""
        begin = fitted.starts[self.documents]
        return PackingPlan(
            fitted.documents[self.documents], begin + self.starts, begin + self.stops, self.offsets, self.capacity
        )


def pack(lengths: Lengths, capacity: int) -> PackingPlan:
    """Put every document whole into exactly one pack by best-fit-decreasing; the same lengths give the same packs.

    Raises ExpertError where a length is below 1 or above `capacity`: `apply_overflow` comes first.
    """
    sizes = checked(lengths, capacity)
    steps, packs = _best_fit(np.bincount(sizes, minlength=1).tolist(), capacity)
    first, taken, each = np.array(steps, np.int64).reshape(-1, 3).T
    placed = taken * each
    within = np.arange(len(sizes)) - np.repeat(np.cumsum(placed) - placed, placed)
    pack_of = np.empty(len(sizes), np.int64)
    pack_of[stable_order(capacity - sizes)] = np.repeat(first, placed) + within // np.repeat(each, placed)
    return group_by_pack(pack_of, packs, sizes, capacity)


def concat(lengths: Lengths, capacity: int) -> PackingPlan:
    """Lay all documents end to end and cut at every `capacity` tokens: full packs, documents in pieces.

    Lengths may exceed `capacity`. For comparison only: where a document is cut, its end does not see its beginning.
    """
    sizes = checked(lengths, None)
    ends = np.cumsum(sizes)
    total = int(sizes.sum())
    borders = np.arange(0, total, capacity)
    begins = np.sort(np.concatenate([ends - sizes, borders]), kind="stable")  # merges two sorted runs
    begins = begins[np.diff(begins, prepend=-1) > 0]
    documents = np.searchsorted(ends, begins, side="right")
    starts = begins - (ends - sizes)[documents]
    stops = starts + np.diff(begins, append=total)
    return PackingPlan(documents, starts, stops, np.append(np.searchsorted(begins, borders), len(begins)), capacity)


def no_packing(lengths: Lengths, capacity: int) -> PackingPlan:
    """Give every document a pack of its own. Raises ExpertError as `pack` does."""
    sizes = checked(lengths, capacity)
    return PackingPlan(np.arange(len(sizes)), np.zeros_like(sizes), sizes, np.arange(len(sizes) + 1), capacity)


def checked(lengths: Lengths, capacity: int | None) -> Ints:
    """Return lengths as int64. Raises ExpertError where one is below 1 or above `capacity` (None: any length goes)."""
    sizes = np.asarray(lengths, np.int64)
    if len(sizes) and (sizes.min() < 1 or (capacity is not None and sizes.max() > capacity)):
        raise ExpertError(f"lengths {sizes.min()} to {sizes.max()} do not go into packs of {capacity or 'any length'}")
    return sizes


def packs_of(counts: Sequence[int], capacity: int) -> int:
    """Return how many packs `pack` makes where counts[n] documents have n tokens."""
    return _best_fit(counts, capacity)[1]


def _best_fit(counts: Sequence[int], capacity: int) -> tuple[list[tuple[int, int, int]], int]:
    """Best-fit-decreasing over a histogram: counts[n] documents of n tokens.

    Returns steps (first pack, packs, documents into each of them), which place the documents longest first, and the number
    of packs. Packs of equal room are interchangeable; they are kept as ranges of numbers.
    """
    ranges: dict[int, list[tuple[int, int]]] = {}
    rooms = 0  # bit n is set where there is a pack with room for n more tokens
    steps: list[tuple[int, int, int]] = []
    opened = 0
    for length in range(len(counts) - 1, 0, -1):
        left = counts[length]
        while left:
            large_enough = rooms >> length
            if large_enough:
                room = length + (large_enough & -large_enough).bit_length() - 1
                first, stop = ranges[room].pop()
            else:
                room, first = capacity, opened
                opened = stop = first + max(1, left // (capacity // length))
            # A pack with the least room has even less after a document, so it takes the next one too, while it can.
            each = min(room // length, left)
            packs = min(stop - first, left // each)
            steps.append((first, packs, each))
            left -= packs * each
            if first + packs < stop:
                ranges[room].append((first + packs, stop))
            elif not ranges.get(room):
                rooms &= ~(1 << room)
            ranges.setdefault(room - each * length, []).append((first, first + packs))
            rooms |= 1 << (room - each * length)
    return steps, opened


def group_by_pack(pack_of: Ints, packs: int, sizes: Ints, capacity: int) -> PackingPlan:
    """Return the packs in the order of their first documents; `pack_of` numbers each document's pack in any order."""
    by_pack = stable_order(pack_of)
    counts = np.bincount(pack_of, minlength=packs)
    begins = np.cumsum(counts) - counts
    order = np.argsort(by_pack[begins])
    offsets = np.concatenate([[0], np.cumsum(counts[order])])
    documents = by_pack[np.arange(len(by_pack)) + np.repeat(begins[order] - offsets[:-1], counts[order])]
    return PackingPlan(documents, np.zeros_like(documents), sizes[documents], offsets, capacity)


def stable_order(keys: Ints) -> Ints:
    """Sort indices by keys >= 0, equal keys by index; by 16 bits at a time, which numpy sorts six times as fast."""
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    for shift in range(16, int(keys.max(initial=0)).bit_length(), 16):
        order = order[np.argsort((keys[order] >> shift).astype(np.uint16), kind="stable")]
    return order


def share(part: int, whole: int) -> float:
    """Return how much of a whole a part is; 0 of nothing."""
    return part / whole if whole else 0.0
