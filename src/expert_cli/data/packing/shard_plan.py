"""Which shards of a store lie on the local disk while its packs are trained, where not all of them may.

    step      0      1      2      3
    needs     a b    b c    a c    d         room for two
    fetched   a b    c      a      d
    evicted          a      b      a         the one that is needed again last, once the step that used it is trained

The order of packs is known, so what goes is what is needed again last (Belady 1966, A study of replacement algorithms): no
other choice fetches less.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from expert_cli.config.run_config import RunConfig
from expert_cli.data.packing.batches import PackedBatchSampler, orders_of
from expert_cli.data.packing.dataset import PackedDataset
from expert_cli.data.packing.plan import Ints
from expert_cli.data.packing.step_schedule import Schedule

LOOKED_AHEAD = 1 << 14
"""Packs whose shards are looked up at once: so far ahead is known what is needed."""
_ESTIMATED = 1 << 18


class Needs(NamedTuple):
    """The shards that an optimizer step (from 0) reads, in ascending order."""

    step: int
    shards: list[int]


class Fetch(NamedTuple):
    """What is done for a step, in this order: wait until step `after` is trained, remove shards, fetch one.

    -1: no shard is fetched; nothing has to be waited for.
    """

    step: int
    after: int
    evicted: list[int]
    shard: int


def needs_of(run: RunConfig, train: PackedDataset, schedule: Schedule, first: Ints, first_step: int) -> Iterator[Needs]:
    """Yield what every step from `first_step` on reads, of all processes together.

    first: the number of each shard's first document, and behind them that of all documents, int64 [shards + 1]. Plans packs
    of its own, so that another thread may do that at the same time.
    """
    own = copy(train)
    own.packs = copy(train.packs)
    schedule = replace(schedule, packs=own.packs.count)
    batches = PackedBatchSampler(schedule, orders_of(run, own))
    at_once = max(1, LOOKED_AHEAD // schedule.packs_per_step)
    step = first_step
    while step < schedule.steps:
        epoch, within = schedule.position(step)
        stop = min(step + at_once, step + schedule.steps_of(epoch) - within, schedule.steps)
        packs = [batches.packs_of(one)[1] for one in range(step, stop)]
        pack_at, documents = own.packs.documents_of(epoch, np.concatenate(packs))
        step_at = np.repeat(np.arange(len(packs)), [len(some) for some in packs])[pack_at]
        shards = np.searchsorted(first, documents, side="right") - 1
        found = np.unique(step_at * len(first) + shards)
        borders = np.searchsorted(found, np.arange(len(packs) + 1) * len(first))
        for at in range(len(packs)):
            yield Needs(step + at, (found[borders[at] : borders[at + 1]] - at * len(first)).tolist())
        step = stop


class ShardPlan:
    """Decides what is fetched and evicted, step by step. `held`: the shards that lie here now."""

    def __init__(self, needs: Iterable[Needs], sizes: Sequence[int], limit: int, held: Iterable[int] = ()) -> None:
        """sizes: the bytes of each shard. limit: of all that lie here; 0: none."""
        self.sizes = sizes
        self.limit = limit if 0 < limit < sum(sizes) else math.inf
        self.held = set(held)
        self.bytes = sum(sizes[shard] for shard in self.held)
        self._needs = iter(needs)
        self._ahead: deque[Needs] = deque()
        self._uses: dict[int, deque[int]] = {}
        self._used: dict[int, int] = {}
        self._last: list[tuple[float, int]] = [(-math.inf, shard) for shard in self.held]
        self._looked = 0

    def fetches(self) -> Iterator[Fetch]:
        """Yield what is to be done, through all steps; without a limit, until every shard lies here."""
        while len(self.held) < len(self.sizes) or self.limit < math.inf:
            self._look_ahead()
            if not self._ahead:
                return
            step, shards = self._ahead.popleft()
            self._looked -= len(shards)
            for shard in shards:
                self._uses[shard].popleft()
                self._used[shard] = step
            missing = [shard for shard in shards if shard not in self.held]
            for shard in shards:
                if shard in self.held:
                    self._note(shard)
            for shard in missing or [-1]:
                after, evicted = self._make_room(self.sizes[shard] if shard >= 0 else 0, set(shards))
                if shard >= 0:
                    self.held.add(shard)
                    self.bytes += self.sizes[shard]
                    self._note(shard)
                if evicted or shard >= 0:
                    yield Fetch(step, after, evicted, shard)

    def _look_ahead(self) -> None:
        while self._looked < LOOKED_AHEAD:
            found = next(self._needs, None)
            if found is None:
                return
            self._ahead.append(found)
            self._looked += len(found.shards)
            for shard in found.shards:
                uses = self._uses.setdefault(shard, deque())
                uses.append(found.step)
                if shard in self.held and len(uses) == 1:
                    self._note(shard)

    def _next_use(self, shard: int) -> float:
        uses = self._uses.get(shard)
        return uses[0] if uses else math.inf

    def _note(self, shard: int) -> None:
        heapq.heappush(self._last, (-self._next_use(shard), shard))

    def _make_room(self, size: int, kept: set[int]) -> tuple[int, list[int]]:
        """Choose what goes so that `size` bytes have room; what is needed now stays, also where that is more than the limit."""
        evicted, stay, after = [], [], -1
        while self.bytes + size > self.limit and self._last:
            latest, shard = heapq.heappop(self._last)
            if shard not in self.held or -latest != self._next_use(shard):
                continue
            if shard in kept:
                stay.append((latest, shard))
                continue
            self.held.remove(shard)
            self.bytes -= self.sizes[shard]
            evicted.append(shard)
            after = max(after, self._used.get(shard, -1))
        for entry in stay:
            heapq.heappush(self._last, entry)
        return after, evicted


@dataclass(frozen=True)
class FetchEstimate:
    """What a limit means, of the first steps: bytes that the largest step reads, and that an epoch fetches."""

    largest_step: int
    of_epoch: int


def estimate(needs: Iterable[Needs], sizes: Sequence[int], limit: int, steps_of_epoch: int) -> FetchEstimate:
    """Go through the plan of at most an epoch's steps, the first ones where they are many, and count."""
    some: list[Needs] = []
    looked = 0
    for one in needs:
        if len(some) == steps_of_epoch or looked > _ESTIMATED:
            break
        some.append(one)
        looked += len(one.shards)
    fetches = [fetch for fetch in ShardPlan(some, sizes, limit).fetches() if fetch.shard >= 0]
    # The first of them fill the room; an epoch that follows finds it full.
    half = len(some) // 2
    fetched = sum(sizes[fetch.shard] for fetch in fetches)
    later = sum(sizes[fetch.shard] for fetch in fetches if fetch.step >= some[half].step)
    left = steps_of_epoch - len(some)
    of_epoch = fetched + (later * left // (len(some) - half) if left else 0)
    return FetchEstimate(max(sum(sizes[shard] for shard in one.shards) for one in some), of_epoch)
