"""The one shape that all micro-batches of a run are padded to, so that a step can be recorded once, or compiled once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from expert_cli.data.packing.dataset import PackedDataset
from expert_cli.data.packing.plan import Ints
from expert_cli.data.packing.step_schedule import Schedule

LARGEST_SHARE = 0.03
"""Of a step's work, this much may be the padding of targets before more sizes of them are recorded."""
QUANTILES = (0.5, 0.9, 1.0)
"""Shares of the micro-batches that the sizes of targets have room for, where there are several."""


@dataclass(frozen=True)
class FixedShape:
    """tokens: of a micro-batch. longest: a document's. borders: of the most documents, one repeated end more than they have,
    past which kernels of the RTX 50 series read (flash-attention pull 2333). targets: the numbers of trained tokens that a
    batch is padded to, ascending; the last one is the most of any. padding: the share of a step's work that is padding.
    """

    tokens: int
    longest: int
    borders: int
    targets: tuple[int, ...]
    padding: float

    def __str__(self) -> str:
        """Return it in words."""
        sizes = " or ".join(f"{size:,}" for size in self.targets)
        return (
            f"{self.tokens:,} tokens, {self.borders - 2:,} documents and {sizes} trained tokens a micro-batch, "
            f"{self.padding:.1%} of the work is padding"
        )

    def targets_for(self, count: int) -> int:
        """Return the smallest size with room for `count` trained tokens."""
        return next(size for size in self.targets if size >= count)


def fixed_shape(
    data: PackedDataset, schedule: Schedule, order_of: Callable[[int], Ints], capacity: int, target_cost: float
) -> FixedShape:
    """Return the shape that every micro-batch of the run fits, of all its epochs. capacity: tokens of a full pack.

    target_cost: the work of a trained token's head and loss, by that of a token in the layers.
    """
    of_documents = data.documents.trained_lengths()
    places = np.arange(schedule.packs)
    begins = np.flatnonzero(places % schedule.packs_per_step % schedule.batch_size == 0)  # of micro-batches
    counts = []
    for epoch in range(schedule.epochs_begun):
        plan, order = data.packs.plan(epoch), order_of(epoch)
        total = np.concatenate([[0], np.cumsum(np.minimum(of_documents[plan.documents], plan.stops - plan.starts))])
        of_packs = np.stack([plan.lengths, np.diff(plan.offsets), np.diff(total[plan.offsets])])
        counts.append(np.add.reduceat(of_packs[:, order], begins, axis=1))
    tokens, documents, trained = np.concatenate(counts, axis=1)
    full = schedule.batch_size * capacity
    # a process that nothing is left for trains padding alone
    padded = -(-(full - tokens) // capacity)
    documents = max(int((documents + padded).max()), schedule.batch_size)
    needed = np.maximum(trained, 1)
    sizes = [int(needed.max())]
    if target_cost * (needed.max() - needed.mean()) > LARGEST_SHARE * (full + target_cost * needed.mean()):
        sizes = sorted({int(np.quantile(needed, share, method="higher")) for share in QUANTILES})
    taken = np.array(sizes)[np.searchsorted(sizes, needed)]
    work, done = len(tokens) * full + target_cost * taken.sum(), tokens.sum() + target_cost * trained.sum()
    return FixedShape(full, capacity, documents + 2, tuple(sizes), float(1 - done / work))
