"""The packs of every epoch of a run: planned from the lengths when they are asked for, so that their number is known before."""

from __future__ import annotations

from expert_cli.data.packing.plan import Lengths, PackingPlan, apply_overflow, concat, no_packing, pack
from expert_cli.data.packing.random_fit import pack_randomly
from expert_cli.manifest.keys.loader import Overflow, Packing


class EpochPacks:
    """Packs of one data set by epoch (from 0): random ones are drawn anew for each epoch, all others stay as they are.

    fitted: what became of documents that are too long; None with "concat", which cuts all alike. Only the packs asked for
    last are held: 32 bytes a document.
    """

    def __init__(
        self, lengths: Lengths, prompt_lengths: Lengths, capacity: int, packing: Packing, overflow: Overflow, seed: int
    ) -> None:
        """Decide what becomes of long documents. Raises InputError as `apply_overflow` does, which takes the same lengths."""
        self.fitted = None if packing == "concat" else apply_overflow(lengths, prompt_lengths, capacity, overflow)
        self._lengths = lengths
        self._capacity = capacity
        self._packing = packing
        self._seed = seed
        self._counts: dict[int, int] = {}
        self._latest: tuple[int, PackingPlan] | None = None

    def of(self, epoch: int) -> PackingPlan:
        """Return the packs of an epoch."""
        epoch = epoch if self._packing == "random" else 0
        if self._latest is None or self._latest[0] != epoch:
            self._latest = (epoch, self._plan(epoch))
            self._counts[epoch] = len(self._latest[1])
        return self._latest[1]

    def count(self, epoch: int) -> int:
        """Return how many packs an epoch has."""
        epoch = epoch if self._packing == "random" else 0
        if epoch not in self._counts:
            self._counts[epoch] = len(self._plan(epoch))
        return self._counts[epoch]

    def _plan(self, epoch: int) -> PackingPlan:
        fitted = self.fitted
        if fitted is None:
            return concat(self._lengths, self._capacity)
        if self._packing == "random":
            packs = pack_randomly(fitted.lengths, self._capacity, self._seed, epoch)
        elif self._packing == "best_fit":
            packs = pack(fitted.lengths, self._capacity)
        else:
            packs = no_packing(fitted.lengths, self._capacity)
        return packs.within(fitted)
