"""The work of a run, exact before it starts: steps, epochs, tokens, and its largest micro-batch."""

from __future__ import annotations

import os
from dataclasses import dataclass

from expert_cli.config.run_config import Layout, RunConfig
from expert_cli.data.packing.batches import Schedule, orders_of, schedule_of
from expert_cli.data.packing.dataset import PackedDataset
from expert_cli.data.store.build import TokenStore


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

    def largest(self, batch: int, layout: Layout, fixed: int = 0) -> tuple[int, int]:
        """Return (places, longest row) of the largest micro-batch of `batch` packs; fixed > 0: all have as many places."""
        longest = self.packs.pack_lengths.largest(batch)
        if layout == "padded":
            return longest[0] * len(longest), longest[0]
        return max(fixed, sum(longest)), self.packs.document_lengths.longest


def work_of(run: RunConfig, store: TokenStore) -> Workload:
    """Return the work of a run over the packs of its training rows."""
    data = PackedDataset(store.training(), run.data.max_seq_length, run.loader.packing, run.loader.overflow, run.seed)
    schedule = schedule_of(run, data, int(os.environ.get("WORLD_SIZE", "1")))
    # whole epochs at once, the last one pack by pack: of all steps only an epoch's last one may be short
    epochs, rest = divmod(schedule.steps, schedule.steps_per_epoch)
    tokens = epochs * data.document_lengths.tokens
    if rest:
        begun = orders_of(run, data)(epochs)[: rest * schedule.packs_per_step]
        tokens += int(data.plan(epochs).lengths[begun].sum())
    stats = store.stats["train"]
    held_out = store.stats.get("validation", {}).get("tokens", 0) if run.watch.eval_strategy != "no" else 0
    evaluations = epochs if run.watch.eval_strategy == "epoch" else schedule.steps // run.watch.eval_steps
    return Workload(schedule, data, tokens, stats["trained_tokens"] / max(1, stats["tokens"]), held_out * evaluations)
