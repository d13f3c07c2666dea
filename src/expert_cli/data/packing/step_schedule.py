"""The optimizer steps of a run, known before it starts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

FEW_STEPS = 50
"""An adapter learns little in fewer optimizer steps, warm-up and decay of the learning rate among them."""


@dataclass(frozen=True)
class Schedule:
    """The optimizer steps of a run, known before it starts. `max_steps` -1: `epochs` decide.

    packs: of every epoch. packs_per_step: those of one optimizer step, of all processes together: the effective batch.
    batch_size: those of a micro-batch. processes: how many train now.
    """

    packs: int
    packs_per_step: int
    batch_size: int
    processes: int
    epochs: float
    max_steps: int

    @property
    def accumulation(self) -> int:
        """Micro-batches that each process takes in an optimizer step; of the last ones some may be empty."""
        return -(-self.packs_per_step // (self.batch_size * self.processes))

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of one pass over the data; the last one may have fewer packs."""
        return -(-self.packs // self.packs_per_step)

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        if self.max_steps > 0:
            return self.max_steps
        return max(1, math.ceil(self.epochs * self.steps_per_epoch - 1e-9))

    @property
    def epochs_begun(self) -> int:
        """Passes over the data that the run begins."""
        return -(-self.steps // self.steps_per_epoch)

    def places(self, step: int) -> tuple[int, NDArray[np.int64]]:
        """Return the epoch (from 0) of optimizer step `step` (from 0) and its places in that epoch's order."""
        epoch, within = divmod(step, self.steps_per_epoch)
        first = within * self.packs_per_step
        return epoch, np.arange(first, min(first + self.packs_per_step, self.packs))

    def micro_steps(self, step: int) -> int:
        """Return the micro-steps of optimizer step `step`; the same for every process."""
        _, places = self.places(step)
        return -(-len(places) // (self.batch_size * self.processes))


def few_steps(schedule: Schedule) -> str:
    """Return one sentence where epochs make very few optimizer steps, with the settings that make more; else "".

    Of the settings with enough steps, those with the largest effective batch: less accumulation, then smaller micro-batches.
    """
    if schedule.max_steps > 0 or schedule.steps >= FEW_STEPS:
        return ""
    told = f"the run has {schedule.steps} optimizer steps in all, of {schedule.packs_per_step} packs each"
    sizes = [(schedule.batch_size, count) for count in range(schedule.accumulation - 1, 0, -1)]
    sizes += [(size, 1) for size in range(schedule.batch_size - 1, 0, -1)]
    if not sizes:
        return f"{told}: more epochs or more rows make more"
    smaller = [
        replace(schedule, batch_size=size, packs_per_step=size * count * schedule.processes) for size, count in sizes
    ]
    better = next((one for one in smaller if one.steps >= FEW_STEPS), smaller[-1])
    settings = f"batch_size {better.batch_size} and gradient_accumulation_steps {better.accumulation}"
    return f"{told}: {settings} make {better.steps}"


def shared_out(schedule: Schedule, begun_with: int) -> str:
    """Return one sentence where other processes train than began the run, else ""."""
    if schedule.processes == begun_with:
        return ""
    before = replace(schedule, processes=begun_with)
    return (
        f"processes {begun_with} -> {schedule.processes}: a step's {schedule.packs_per_step} packs, in micro-batches of "
        f"{schedule.batch_size}, are accumulated over {schedule.accumulation} instead of {before.accumulation}"
    )
