"""How the packs of an optimizer step are split into micro-steps: smaller ones where memory is short, larger ones where a GPU
would wait for kernels to be launched. The effective batch stays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from expert_cli.config.run_config import Layout, RunConfig
from expert_cli.data.packing.dataset import PackedDataset
from expert_cli.data.packing.step_schedule import Schedule
from expert_cli.model.activation_checkpointing import decoder_layers
from expert_cli.model.flops import flops, peak_flops

KERNELS_PER_LAYER = 80
"""Of a micro-step: 2,220 for Qwen3-0.6B's 28 layers, 2,404 for Llama-3-8B's 32, as benchmarks/gpu_roofline.py counts them."""
LAUNCH_S = 6e-6
"""What the host takes to launch one, as assumed there."""
MERGED = "micro-steps were merged: the GPU would compute them faster than they are launched"


def smaller(schedule: Schedule, unit: int = 1) -> Schedule:
    """Return the schedule with the next smaller micro-batch, a multiple of `unit`, that divides the present one."""
    batch = max(n for n in range(unit, schedule.batch_size, unit) if schedule.batch_size % n == 0)
    return replace(schedule, batch_size=batch)


def merged(schedule: Schedule, factor: int) -> Schedule:
    """Return the schedule with micro-batches `factor` times as large; it divides the accumulation."""
    return replace(schedule, batch_size=schedule.batch_size * factor)


def merge_factor(schedule: Schedule, base: Any, packs: PackedDataset, run: RunConfig, layout: Layout, card: str) -> int:
    """Return how many micro-steps are worth merging into one: it then takes the GPU as long as launching its kernels the host.

    Its arithmetic alone, at the card's peak, takes as long: more tokens gain little. base: the model with its adapter, without
    PEFT's wrapper. card: its name. 1 for a card that is not known, rows that are padded, and `on_oom` "error".
    """
    peak = peak_flops(card)
    if peak is None or layout != "packed" or run.compute.on_oom != "fit":
        return 1
    cost = flops(base, packs.packs.document_lengths, recomputed=run.compute.checkpointing == "all")
    pack_s = packs.packs.pack_lengths.mean * cost.per_token / peak[0]
    enough = KERNELS_PER_LAYER * len(decoder_layers(base)) * LAUNCH_S / (schedule.batch_size * pack_s)
    factors = [n for n in range(1, schedule.accumulation + 1) if schedule.accumulation % n == 0]
    return next((n for n in factors if n >= enough), schedule.accumulation)


def merged_words(asked: tuple[int, int], used: tuple[int, int]) -> str:
    """Return one sentence where micro-steps were merged, else "". Each: packs of a micro-batch, micro-batches a step."""
    if used[0] <= asked[0]:
        return ""
    return f"micro-batch {asked[0]} x {asked[1]} -> {used[0]} x {used[1]}: {MERGED}"
