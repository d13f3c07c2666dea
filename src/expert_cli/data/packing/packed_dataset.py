"""Packs of documents that do not attend to each other, over the memory-mapped store.

One pack (documents A and B):

    input_ids     A0 A1 A2 A3 B0 B1 B2
    position_ids  0  1  2  3  0  1  2      a new document begins at 0
    labels        -  -  A2 A3 -  -  B2     "-" is -100: prompts and first tokens

Labels are masked by position, never by id, because the padding id may be the end token's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from expert_cli.data.packing.overflow import fitted, truncate_middle
from expert_cli.data.packing.pack_plan import PackingPlan, Pieces, best_fit, concat
from expert_cli.data.packing.random_fit import random_fit
from expert_cli.data.store.store_files import Documents
from expert_cli.manifest.keys.loader import Overflow, Packing
from expert_cli.utils.length_histogram import LengthHistogram

Place = tuple[int, int]
"""An epoch (from 0) and the number of a pack in it."""
IGNORE_INDEX = -100
FIELDS = ("input_ids", "labels", "position_ids")
FILLER: Place = (0, -1)
"""The place of an empty pack, for a process that gets none in the last step of an epoch."""


class PackedDataset(Dataset[dict[str, torch.Tensor]]):
    """Packs of an open store. Item (e, n) is pack n of epoch e: `input_ids`, `labels`, `position_ids`, int64 [tokens].

    Random packs are drawn again in each epoch, other packs stay the same. Only the latest plan is kept. Pickling sends no data.
    left_out: numbers of documents that are too long and of tokens in no pack. untrained: number of packs that train nothing.
    """

    def __init__(
        self, documents: Documents, capacity: int, packing: Packing, overflow: Overflow, seed: int = 0
    ) -> None:
        """Cut or drop long documents; the packs are planned on first use. Raises InputError if nothing is left."""
        self.documents, self.capacity, self.packing, self.seed = documents, capacity, packing, seed
        self.overflow = "split" if packing == "concat" else overflow
        lengths = documents.lengths
        whole = Pieces(np.arange(len(lengths)), np.zeros_like(lengths), lengths)
        self._pieces = whole if packing == "concat" else fitted(documents, capacity, overflow)
        too_long = 0 if packing == "concat" else int((lengths > capacity).sum())
        self.left_out = too_long, int(lengths.sum() - self._pieces.lengths.sum())
        self.untrained = self._packs_an_epoch = 0
        self._latest: tuple[int, PackingPlan] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the plan, which is computed again where it is needed."""
        return {**self.__dict__, "_latest": None}

    def __len__(self) -> int:
        """Return the number of packs in the first epoch; after `even_out`, in every epoch."""
        return self._packs_an_epoch or len(self.plan(0))

    def __getitem__(self, place: Place) -> dict[str, torch.Tensor]:
        """Return one pack; `FILLER` gives an empty one."""
        parts: dict[str, list[Any]] = {name: [np.empty(0, np.int64)] for name in FIELDS}
        pieces = [] if place == FILLER else np.stack(self.plan(place[0]).pack(place[1]), axis=1).tolist()
        for document, start, stop in pieces:
            ids, trained = self.documents.document(document)
            if self.overflow == "truncate" and stop < len(ids):
                ids, trained = truncate_middle(ids, trained, stop)
            ids, trained = ids[start:stop], trained[start:stop]
            labels = np.where(trained, ids, IGNORE_INDEX)
            labels[:1] = IGNORE_INDEX
            for arrays, array in zip(parts.values(), (ids, labels, np.arange(len(ids))), strict=True):
                arrays.append(array)
        return {name: torch.from_numpy(np.concatenate(arrays)) for name, arrays in parts.items()}

    def plan(self, epoch: int) -> PackingPlan:
        """Return the plan of an epoch."""
        epoch = epoch if self.packing == "random" else 0
        if self._latest is None or self._latest[0] != epoch:
            self._latest = None  # free its memory first
            self._latest = epoch, self._planned(epoch).parted(self._packs_an_epoch)
        return self._latest[1]

    def even_out(self, epochs: Callable[[int], int]) -> int:
        """Give every epoch as many packs as the largest one; return that number. epochs: epochs of a run with so many packs."""
        most, drawn = len(self), 1
        while self.packing == "random" and drawn < epochs(most):
            most, drawn = max(most, len(self._planned(drawn))), drawn + 1
        if most > len(self):
            self._latest = None
        self._packs_an_epoch = most
        return most

    def fill(self) -> float:
        """Return the share of the first epoch's packs that is filled with tokens; 0 without packs."""
        return self.pack_lengths.tokens / max(1, len(self) * self.capacity)

    @cached_property
    def pack_lengths(self) -> LengthHistogram:
        """Histogram of the tokens of the packs in the first epoch."""
        return LengthHistogram.of(self.plan(0).lengths)

    @cached_property
    def document_lengths(self) -> LengthHistogram:
        """Histogram of the tokens of the documents' pieces in the packs of the first epoch."""
        return LengthHistogram.of(self.plan(0).pieces.lengths)

    def longest(self, count: int) -> list[int]:
        """Return the numbers of the `count` longest packs in the first epoch."""
        return np.argsort(-self.plan(0).lengths, kind="stable")[:count].tolist()  # type: ignore[no-any-return]

    def _planned(self, epoch: int) -> PackingPlan:
        if self.packing == "random":
            return random_fit(self._pieces, self.capacity, self.seed, epoch)
        if self.packing == "best_fit":
            return best_fit(self._pieces, self.capacity)
        if self.packing == "off":
            return PackingPlan(self._pieces, np.arange(len(self._pieces.documents) + 1))
        return self._without_untrained(concat(self._pieces, self.capacity))

    def _without_untrained(self, plan: PackingPlan) -> PackingPlan:
        """Return the packs without those that train nothing."""
        pieces, sizes = plan.pieces, np.diff(plan.offsets)
        trains = self.documents.trained_in(pieces) > 0
        kept = np.logical_or.reduceat(trains, plan.offsets[:-1]) if len(plan) else np.zeros(0, bool)
        self.untrained = int(len(kept) - kept.sum())
        return PackingPlan(pieces.taken(np.repeat(kept, sizes)), np.append(0, np.cumsum(sizes[kept])))


@dataclass(frozen=True)
class TrainingData:
    """Packs for training and validation, and the padding id. accuracy: returns the model's share of right answers to cases."""

    train: PackedDataset
    validation: PackedDataset | None
    pad_id: int
    accuracy: Callable[[], float] = lambda: 0.0

    @property
    def longest(self) -> int:
        """Number of tokens in the longest document, including validation."""
        return max(data.document_lengths.longest for data in (self.train, self.validation) if data is not None)
