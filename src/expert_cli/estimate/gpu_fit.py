"""On which cards a run fits, and which setting makes it fit where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from expert_cli.config.run_config import Layout
from expert_cli.estimate.memory import CONTEXT_BYTES, StepSettings, components
from expert_cli.estimate.model_shape import Shape, linear_weights, stored_bytes
from expert_cli.estimate.workload import Workload
from expert_cli.model.kernels.select import SPARE

SIZES_GB = (8, 12, 16, 24, 48, 80)
USABLE = 0.98
"""Of the memory in a card's name; the rest is the driver's (an RTX 4090 reports 24,564 of 24,576 MB, an A100 81,559)."""


@dataclass(frozen=True)
class BatchShape:
    """How packs become micro-batches: `size` packs, so many micro-steps a step, in which layout."""

    size: int
    accumulation: int
    layout: Layout
    fixed: int = 0


@dataclass(frozen=True)
class GpuFit:
    """What a card of `gb` needs for this run. settings: what makes it fit, in order; None: nothing here does."""

    gb: int
    fits: bool
    needs_mb: float
    settings: tuple[str, ...] | None

    def as_json(self) -> dict[str, Any]:
        """Return the row of `train --plan --json`."""
        return asdict(self)


def fit_gpus(
    shape: Shape,
    setting: StepSettings,
    batch: BatchShape,
    work: Workload,
    *,
    dequantized_copy: Literal["auto", "always", "never"],
    error_pct: float,
) -> list[GpuFit]:
    """Return a row a card. A run fits where its estimate and the estimate's error do."""
    return [_card(gb, shape, setting, batch, work, dequantized_copy, 1 + error_pct / 100) for gb in SIZES_GB]


def _card(
    gb: int,
    shape: Shape,
    setting: StepSettings,
    batch: BatchShape,
    work: Workload,
    dequantized_copy: Literal["auto", "always", "never"],
    margin: float,
) -> GpuFit:
    room = gb * 2**30 * USABLE
    needs = 0.0
    for n, (words, tried) in enumerate(_attempts(setting, batch, work)):
        dequantized = _is_dequantized(shape, tried, dequantized_copy, room)
        bytes_ = sum(components(shape, replace(tried, dequantized=dequantized), CONTEXT_BYTES).values())
        needs = needs or bytes_ / 2**20
        if bytes_ * margin <= room:
            return GpuFit(gb, n == 0, needs, words)
    return GpuFit(gb, False, needs, None)


def _attempts(
    setting: StepSettings, batch: BatchShape, work: Workload
) -> Iterator[tuple[tuple[str, ...], StepSettings]]:
    """Yield what may be changed, the least first: smaller micro-batches, then recomputed layers, then 4-bit weights."""

    def at(size: int) -> StepSettings:
        tokens, longest = work.largest(size, batch.layout, batch.fixed // batch.size * size)
        trained = round(setting.trained * tokens / max(1, setting.tokens))
        return replace(setting, tokens=tokens, longest=longest, trained=trained)

    yield (), at(batch.size)
    words: tuple[str, ...] = ()
    size = batch.size
    while size > 1:
        size = max(n for n in range(1, size) if size % n == 0)
        words = (f"batch_size {size}", f"gradient_accumulation_steps {batch.accumulation * batch.size // size}")
        yield words, at(size)
    smallest = at(size)
    if setting.checkpointing != "all":
        words, smallest = (*words, "gradient_checkpointing true"), replace(smallest, checkpointing="all")
        yield words, smallest
    if setting.quantization not in ("int4", "int8") and setting.adapter in ("lora", "dora", "rslora"):
        yield (*words, "quantization int4"), replace(smallest, quantization="int4")


def _is_dequantized(
    shape: Shape, setting: StepSettings, dequantized_copy: Literal["auto", "always", "never"], room: float
) -> bool:
    """Whether 4-bit weights would be unpacked once: the rule of model/kernels/select.py for a card with nothing else on it."""
    if setting.quantization != "int4" or dequantized_copy != "auto":
        return setting.quantization == "int4" and dequantized_copy == "always"
    free = room - CONTEXT_BYTES - stored_bytes(shape, "int4", setting.element)
    return free >= SPARE * 2 * linear_weights(shape)
