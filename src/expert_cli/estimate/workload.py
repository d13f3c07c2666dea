"""The work of a run, exact before it starts: steps, epochs, tokens, and its largest micro-batch."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from expert_cli.config.run_config import Layout, RunConfig
from expert_cli.data.packing.batches import Order, orders_of, schedule_of
from expert_cli.data.packing.dataset import PackedDataset
from expert_cli.data.packing.step_schedule import Schedule
from expert_cli.data.store.build import TokenStore
from expert_cli.errors import InputError


@dataclass(frozen=True)
class Workload:
    """What a run does. tokens: real ones, without padding; trained_share: of them, those that carry a loss.

    evaluated_tokens: of all evaluations together.
    """

    schedule: Schedule
    packs: PackedDataset
    tokens: int
    trained_share: float
    evaluated_tokens: int

    @property
    def epochs(self) -> float:
        """Passes over the data."""
        return self.schedule.epoch_of(self.schedule.steps)

    def largest(self, batch: int, layout: Layout, fixed: int = 0) -> tuple[int, int]:
        """Return (places, longest row) of the largest micro-batch of `batch` packs; fixed > 0: all have as many places."""
        longest = np.sort(self.packs.packs.of(0).lengths)[::-1][:batch]
        if layout == "padded":
            return int(longest[0]) * len(longest), int(longest[0])
        return max(fixed, int(longest.sum())), int(self.packs.document_lengths.max())


def work_of(run: RunConfig, store: TokenStore) -> Workload:
    """Return the work of a run over the packs of its training rows. Raises InputError where the store has none."""
    documents = store.split("train")
    if documents is None:
        raise InputError(f"the token store {store.home} has no training rows", "check training.dataset")
    packs = PackedDataset(documents, run.data.max_seq_length, run.loader.packing, run.loader.overflow, run.seed)
    schedule = schedule_of(run, packs, int(os.environ.get("WORLD_SIZE", "1")))
    stats = store.stats["train"]
    held_out = store.stats.get("validation", {}).get("tokens", 0) if run.watch.eval_strategy != "no" else 0
    evaluations = schedule.steps // run.watch.eval_steps
    if run.watch.eval_strategy == "epoch":
        evaluations = schedule.position(schedule.steps)[0]
    return Workload(
        schedule,
        packs,
        real_tokens(schedule, packs, orders_of(run, packs)),
        stats["trained_tokens"] / max(1, stats["tokens"]),
        held_out * evaluations,
    )


def real_tokens(schedule: Schedule, packs: PackedDataset, order_of: Callable[[int], Order]) -> int:
    """Return the tokens that all steps train on: whole epochs at once, the last one pack by pack."""
    epochs, rest = schedule.position(schedule.steps)
    places = np.arange(
        rest * schedule.packs_per_step
    )  # a step less than the epoch at most: no step before the last is short
    last = int(packs.packs.of(epochs).lengths[order_of(epochs)[places]].sum()) if rest else 0
    return epochs * int(packs.document_lengths.sum()) + last
