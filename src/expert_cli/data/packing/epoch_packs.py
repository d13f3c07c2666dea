"""The packs of every epoch of a run, planned when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from expert_cli.data.packing.overflow import HasLengths, left_out, pieces_of
from expert_cli.data.packing.plan import PackingPlan, Pieces, concat, no_packing, pack, share
from expert_cli.data.packing.random_fit import pack_randomly
from expert_cli.manifest.keys.loader import Overflow, Packing
from expert_cli.utils.length_histogram import LengthHistogram


class EpochPacks:
    """Packs of one data set by epoch (from 0): random ones are drawn anew for each epoch, all others stay as they are.

    left_out: what became of documents that are too long; None with "concat", which cuts all alike, and leaves out packs that
    train nothing (`untrained`). Only the plan asked for last
    is held: 26 bytes a document. `even_out` gives all epochs of a run as many packs, since the Trainer counts the steps of an
    epoch once.
    """

    def __init__(
        self,
        documents: HasLengths,
        capacity: int,
        packing: Packing,
        overflow: Overflow,
        seed: int,
        *,
        rows: range | None = None,
    ) -> None:
        """Look at all lengths once. rows: the documents that are packed; None: all. Raises InputError as `left_out` does."""
        self._documents = documents
        self._rows = range(len(documents)) if rows is None else rows
        self._capacity = capacity
        self._packing = packing
        self._overflow = None if packing == "concat" else overflow
        self._seed = seed
        self.left_out = left_out(documents, self._rows, capacity, overflow) if self._overflow else None
        self.untrained = 0
        self._fewest = 0
        self._latest: tuple[int, PackingPlan] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Send no plan: it is made again where it is needed."""
        return {name: value for name, value in self.__dict__.items() if name != "_fitted"} | {"_latest": None}

    def plan(self, epoch: int) -> PackingPlan:
        """Return the packs of an epoch."""
        epoch = self._drawn(epoch)
        if self._latest is None or self._latest[0] != epoch:
            self._latest = None  # its memory is needed
            self._latest = epoch, self._planned(epoch)
        return self._latest[1]

    def pack(self, epoch: int, number: int) -> Pieces:
        """Return what makes up one pack of an epoch."""
        return self.plan(epoch).pack(number)

    def count(self) -> int:
        """Return how many packs the first epoch has; after `even_out` every epoch of the run."""
        return self._fewest or len(self.plan(0))

    def even_out(self, epochs: Callable[[int], int]) -> int:
        """Let every epoch have as many packs as the one that needs most, and return how many.

        epochs: packs of an epoch -> epochs of the run.
        """
        most, drawn = self.count(), 1
        while self._packing == "random" and drawn < epochs(most):
            most, drawn = max(most, len(self._planned(drawn))), drawn + 1
        if most > self.count():
            self._latest = None
        self._fewest = most
        return most

    def fill(self) -> float:
        """Return the share of all room of the first epoch's packs that holds tokens; 0 without packs."""
        return share(self.pack_lengths.tokens, self.count() * self._capacity)

    @cached_property
    def pack_lengths(self) -> LengthHistogram:
        """Tokens of the packs of the first epoch."""
        return LengthHistogram.of(self.plan(0).lengths)

    @cached_property
    def document_lengths(self) -> LengthHistogram:
        """Tokens of the pieces of documents that lie in the packs of the first epoch."""
        plan = self.plan(0)
        return LengthHistogram.of(plan.stops - plan.starts)

    def longest(self, count: int) -> list[int]:
        """Return the numbers of the `count` longest packs of the first epoch."""
        return np.argsort(-self.plan(0).lengths, kind="stable")[:count].tolist()  # type: ignore[no-any-return]

    def pieces_of(self, document: int) -> Pieces | None:
        """Return what is left of one document; None with "concat", where every pack may cut it."""
        if self._overflow is None:
            return None
        return pieces_of(np.array([document]), self._documents, self._capacity, self._overflow)

    def _drawn(self, epoch: int) -> int:
        """Return the first epoch that has the same packs."""
        return epoch if self._packing == "random" else 0

    def _planned(self, epoch: int) -> PackingPlan:
        lengths = self._fitted.lengths
        if self._packing == "random":
            packs = pack_randomly(lengths, self._capacity, self._seed, epoch)
        elif self._packing == "concat":
            return self._trained(concat(lengths, self._capacity).within(self._fitted))
        elif self._packing == "best_fit":
            packs = pack(lengths, self._capacity)
        else:
            packs = no_packing(lengths, self._capacity)
        return packs.parted(self._fewest).within(self._fitted)

    def _trained(self, packs: PackingPlan) -> PackingPlan:
        """Return the packs without those that hold nothing but the beginnings of prompts."""
        prompts = self._documents.prompt_lengths_of(self._fitted.documents)[packs.documents - self._rows.start]
        trains = packs.stops > np.maximum(prompts, packs.starts + 1)
        kept = np.logical_or.reduceat(trains, packs.offsets[:-1]) if len(packs) else np.zeros(0, bool)
        self.untrained = int(len(kept) - kept.sum())
        return packs.only(kept)

    @cached_property
    def _fitted(self) -> Pieces:
        """What is left of the documents, the same in every epoch."""
        numbers = np.arange(self._rows.start, self._rows.stop)
        return pieces_of(numbers, self._documents, self._capacity, self._overflow)
