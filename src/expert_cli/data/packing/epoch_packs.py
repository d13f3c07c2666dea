"""The packs of every epoch of a run, planned portion by portion when they are asked for; their number is known before."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from expert_cli.data.packing.overflow import HasLengths, left_out, pieces_of
from expert_cli.data.packing.plan import Ints, PackingPlan, Pieces, concat, no_packing, pack, share
from expert_cli.data.packing.portions import PORTION, documents_of, portions_of
from expert_cli.data.packing.random_fit import pack_randomly
from expert_cli.manifest.keys.loader import Overflow, Packing
from expert_cli.utils.length_histogram import LengthHistogram


class Counts(NamedTuple):
    """The packs of every portion of an epoch, and their tokens; both int64 [portions]."""

    packs: Ints
    tokens: Ints


class EpochPacks:
    """Packs of one data set by epoch (from 0): random ones are drawn anew for each epoch, all others stay as they are.

    Documents go in portions of at most `portion`, drawn anew for each epoch where there are several. Pack i of portion p has
    the number i * portions + p, so that it is found without the others. left_out: what became of documents that are too
    long; None with "concat", which cuts all alike. Only the portion asked for last is held: 26 bytes a document.
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
        portion: int = PORTION,
    ) -> None:
        """Look at all lengths once. rows: the documents that are packed; None: all. Raises InputError as `left_out` does."""
        self._documents = documents
        self._rows = range(len(documents)) if rows is None else rows
        self._capacity = capacity
        self._packing = packing
        self._overflow = None if packing == "concat" else overflow
        self._seed = seed
        self.portions = portions_of(len(self._rows), portion)
        self.left_out = left_out(documents, self._rows, capacity, overflow, portion) if self._overflow else None
        self._counts: dict[int, Counts] = {}
        self._pack_lengths = self._piece_lengths = LengthHistogram.of(np.empty(0, np.int64))
        self._fitted: Pieces | None = None
        self._latest: tuple[Any, PackingPlan] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Send no plan: it is made again where it is needed."""
        return {**self.__dict__, "_fitted": None, "_latest": None}

    def plan(self, epoch: int, portion: int) -> PackingPlan:
        """Return the packs of a portion of an epoch."""
        key = self._drawn(epoch), portion
        if self._latest is None or self._latest[0] != key:
            self._latest = None  # its memory is needed
            self._latest = key, self._planned(*key)
        return self._latest[1]

    def pack(self, epoch: int, number: int) -> Pieces:
        """Return what makes up one pack of an epoch."""
        index, portion = divmod(number, self.portions)
        return self.plan(epoch, portion).pack(index)

    def documents_of(self, epoch: int, numbers: Ints) -> tuple[Ints, Ints]:
        """Return the documents of some packs, and beside each the place of its pack in `numbers`; both int64 [pieces].

        A portion after another, so that each is planned once.
        """
        packs, portions = np.divmod(numbers, self.portions)
        places, documents = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for portion in np.unique(portions).tolist():
            here = np.flatnonzero(portions == portion)
            plan = self.plan(epoch, portion)
            begins, stops = plan.offsets[packs[here]], plan.offsets[packs[here] + 1]
            counts = stops - begins
            within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
            places.append(np.repeat(here, counts))
            documents.append(plan.documents[np.repeat(begins, counts) + within])
        return np.concatenate(places), np.concatenate(documents)

    def counts(self, epoch: int) -> Counts:
        """Return how many packs and tokens the portions of an epoch have. All are planned, one at a time."""
        epoch = self._drawn(epoch)
        if epoch not in self._counts:
            found = [self._counted(epoch, portion) for portion in range(self.portions)]
            self._counts[epoch] = Counts(*np.array(found, np.int64).T)
        return self._counts[epoch]

    def count(self, epoch: int) -> int:
        """Return how many packs an epoch has."""
        return int(self.counts(epoch).packs.sum())

    def fill(self) -> float:
        """Return the share of all room of the first epoch's packs that holds tokens; 0 without packs."""
        return share(int(self.counts(0).tokens.sum()), self.count(0) * self._capacity)

    @property
    def pack_lengths(self) -> LengthHistogram:
        """Tokens of the packs of the first epoch."""
        self.counts(0)
        return self._pack_lengths

    @property
    def document_lengths(self) -> LengthHistogram:
        """Tokens of the pieces of documents that lie in the packs of the first epoch."""
        self.counts(0)
        return self._piece_lengths

    def longest(self, count: int) -> list[int]:
        """Return the numbers of the `count` longest packs of the first epoch. Most often its first portion has as long ones."""
        wanted = self.pack_lengths.largest(count)
        found = np.empty((0, 2), np.int64)  # lengths, numbers
        for portion in range(self.portions):
            lengths = self.plan(0, portion).lengths
            numbers = np.arange(len(lengths)) * self.portions + portion
            found = np.concatenate([found, np.stack([lengths, numbers], axis=1)])
            found = found[np.argsort(-found[:, 0], kind="stable")[:count]]
            if found[:, 0].tolist() == wanted:
                break
        return found[:, 1].tolist()  # type: ignore[no-any-return]

    def pieces_of(self, document: int) -> Pieces | None:
        """Return what is left of one document; None with "concat", where every pack may cut it."""
        if self._overflow is None:
            return None
        return pieces_of(np.array([document]), self._documents, self._capacity, self._overflow)

    def _drawn(self, epoch: int) -> int:
        """Return the first epoch that has the same packs."""
        return epoch if self._packing == "random" or self.portions > 1 else 0

    def _counted(self, epoch: int, portion: int) -> tuple[int, int]:
        """Return how many packs and tokens a portion has; note the lengths of the first epoch."""
        # The plan of an only portion is used again: the first epoch comes next.
        plan = self._planned(epoch, portion) if epoch and self.portions == 1 else self.plan(epoch, portion)
        tokens = plan.stops - plan.starts
        if not epoch:
            self._pack_lengths += LengthHistogram.of(plan.lengths)
            self._piece_lengths += LengthHistogram.of(tokens)
        return len(plan), int(tokens.sum())

    def _planned(self, epoch: int, portion: int) -> PackingPlan:
        fitted = self._fit(epoch, portion)
        if self._packing == "random":
            packs = pack_randomly(fitted.lengths, self._capacity, self._seed, epoch, portion)
        elif self._packing == "concat":
            packs = concat(fitted.lengths, self._capacity)
        elif self._packing == "best_fit":
            packs = pack(fitted.lengths, self._capacity)
        else:
            packs = no_packing(fitted.lengths, self._capacity)
        return packs.within(fitted)

    def _fit(self, epoch: int, portion: int) -> Pieces:
        """Return what is left of a portion's documents. That of an only portion, the same in every epoch, is kept."""
        if self._fitted is not None:
            return self._fitted
        numbers = documents_of(portion, self.portions, len(self._rows), self._seed, epoch) + self._rows.start
        fitted = pieces_of(numbers, self._documents, self._capacity, self._overflow)
        self._fitted = fitted if self.portions == 1 else None
        return fitted
