"""On which cards a run fits, and which setting makes it fit where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from peft import PeftModel

from expert_cli.config.run_config import QUANTIZED, RunConfig
from expert_cli.estimate.memory import CONTEXT_BYTES, MB, components, step_settings
from expert_cli.estimate.model_shape import Shape
from expert_cli.estimate.workload import Workload
from expert_cli.hardware.machine import Machine
from expert_cli.manifest.keys.compute import ComputeConfig
from expert_cli.training.micro_batch import merge_factor, merged, smaller

SIZES_GB = (8, 12, 16, 24, 48, 80)
SHARED_BY = (2, 4, 8)
USABLE = 0.98
"""Of the memory in a card's name; the rest is the driver's (an RTX 4090 reports 24,564 of 24,576 MB, an A100 81,559)."""


@dataclass(frozen=True)
class GpuFit:
    """What a card of `gb` needs for this run where it holds the base model whole, alone or as one of several (DDP).

    settings: what makes it fit, in order; None: nothing here does. fsdp_cards: the fewest of 2, 4 and 8 such cards that the
    run fits as it is where they share the base model out (FSDP2), each of which then needs `fsdp_needs_mb`; None: not on 8.
    """

    gb: int
    fits: bool
    needs_mb: float
    settings: tuple[str, ...] | None
    fsdp_cards: int | None = None
    fsdp_needs_mb: float | None = None


def fit_gpus(
    run: RunConfig, machine: Machine, model: PeftModel, shape: Shape, work: Workload, error_pct: float
) -> list[GpuFit]:
    """Return a row a card. A run fits where its estimate and the estimate's error do. machine: one with such a card."""

    def needed(changed: RunConfig, free: int, shares: int = 1) -> int:
        setting = step_settings(changed, machine, model, shape, work, free, shares)
        return sum(components(shape, setting, CONTEXT_BYTES).values())

    run, shared = (replace(run, compute=compute) for compute in _held(run.compute))
    counts = () if run.model.quantization == "int8" or run.rft else SHARED_BY
    cards = []
    for gb in SIZES_GB:
        room = gb * 2**30 * USABLE
        free = int(room) - CONTEXT_BYTES
        enough = (words for words, changed in _attempts(run) if needed(changed, free) * (1 + error_pct / 100) <= room)
        settings = next(enough, None)
        found = GpuFit(gb, settings == (), needed(run, free) / MB, settings)
        needs = ((count, needed(shared, free, count)) for count in counts)
        fewest = next(((count, one) for count, one in needs if one * (1 + error_pct / 100) <= room), None)
        cards.append(replace(found, fsdp_cards=fewest[0], fsdp_needs_mb=fewest[1] / MB) if fewest else found)
    return cards


def _held(compute: ComputeConfig) -> tuple[ComputeConfig, ComputeConfig]:
    """Return how a step is computed where every process holds the base model whole, and where they share it out."""
    return replace(compute, fsdp=False), replace(compute, fsdp=True, dequantized_copy="never")


def merged_run(
    run: RunConfig, machine: Machine, model: PeftModel, shape: Shape, work: Workload, error_pct: float
) -> RunConfig:
    """Return the run with its micro-steps merged as training will: as far as it is worth it and its memory fits the card."""
    optim, card = run.optim, machine.gpus[0]
    free = card.memory_bytes - CONTEXT_BYTES
    layout = step_settings(run, machine, model, shape, work, free).kernels.layout
    tried = merged(
        work.schedule, merge_factor(work.schedule, model.get_base_model(), work.packs, run, layout, card.name)
    )
    while tried.batch_size > optim.batch_size:
        larger = replace(optim, batch_size=tried.batch_size, gradient_accumulation_steps=tried.accumulation)
        setting = step_settings(replace(run, optim=larger), machine, model, shape, work, free)
        if sum(components(shape, setting, CONTEXT_BYTES).values()) * (1 + error_pct / 100) <= card.memory_bytes:
            return setting.run
        tried = smaller(tried, optim.batch_size)
    return run


def _attempts(run: RunConfig) -> Iterator[tuple[tuple[str, ...], RunConfig]]:
    """Yield what may be changed, the least first: smaller micro-batches, then recomputed layers, then 4-bit weights."""
    words: tuple[str, ...] = ()
    yield words, run
    size = run.optim.batch_size
    packs = size * run.optim.gradient_accumulation_steps
    while size > 1:
        size = max(n for n in range(1, size) if size % n == 0)
        words = (f"batch_size {size}", f"gradient_accumulation_steps {packs // size}")
        run = replace(run, optim=replace(run.optim, batch_size=size, gradient_accumulation_steps=packs // size))
        yield words, run
    if run.compute.checkpointing != "all":
        words = (*words, "gradient_checkpointing true")
        run = replace(run, compute=replace(run.compute, checkpointing="all"))
        yield words, run
    if run.model.quantization not in QUANTIZED and run.adapter.type in ("lora", "dora", "rslora"):
        yield (*words, "quantization int4"), replace(run, model=replace(run.model, quantization="int4"))
