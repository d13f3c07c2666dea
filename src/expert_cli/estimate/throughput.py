"""Estimates the speed of a run: measured by a probe, or computed from the speed of one matrix product."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import psutil
import torch
from peft import PeftModel

from expert_cli.config.resolve import Overrides
from expert_cli.config.run_config import RunConfig
from expert_cli.estimate.memory_estimate import CONTEXT_BYTES, MB, Workload
from expert_cli.manifest.keys.log_save_eval import NEVER
from expert_cli.model.flops import flops
from expert_cli.model.loading.quantize import DTYPES
from expert_cli.pipeline.options import QUIET_SETTINGS, train_subprocess, with_settings

EFFICIENCY: Mapping[str, float] = {"cpu": 0.5, "cuda": 0.3}
"""Share of a large matrix product's speed that a step reaches: 0.40 to 0.58 on two CPU cores (check_plan of commit 269183fb);
on a GPU assumed.
"""
OVERHEAD_S = 0.04
"""Time of a micro-step besides arithmetic: it was 0.05 s for a model of two tiny layers on two CPU cores."""
FORMULA_ERROR_PCT = 60
"""From check_plan, too; for models of a few MB the error is larger."""
PROBE_ERROR_PCT = 15
"""Repeated probes differ by up to 6 %."""
STEPS = 4
_SIZE = {"cpu": 1024, "cuda": 8192}
_REPEATS = 5
_POLL_S = 0.02


class Figure(NamedTuple):
    """A figure, its error in per cent, and its source."""

    value: float
    error_pct: float
    source: str


def by_formula(run: RunConfig, work: Workload, model: PeftModel) -> Figure:
    """Return tokens per second, computed from the operations of a token and the measured speed of a matrix product."""
    device, dtype = run.compute.device, run.compute.dtype
    cost = flops(model.get_base_model(), work.packs.document_lengths, recomputed=run.compute.checkpointing == "all")
    per_token = cost.per_token + work.trained_share * cost.per_trained_token
    micro_tokens = run.optim.batch_size * work.packs.pack_lengths.mean
    speed, efficiency = matmul_flops(device, dtype), EFFICIENCY[device]
    words = (
        f"formula: {per_token / 1e9:.2f} GFLOP per token; {dtype} matrix products reach {speed / 1e9:,.0f} GFLOP/s, "
    )
    words += f"{efficiency:.0%} of it assumed"
    return Figure(1 / (per_token / (efficiency * speed) + OVERHEAD_S / micro_tokens), FORMULA_ERROR_PCT, words)


def matmul_flops(device: str, dtype: str) -> float:
    """Return the operations per second of a square matrix product, the best of a few measurements."""
    size, best = _SIZE[device], float("inf")
    left, right = (torch.randn(size, size, device=device, dtype=DTYPES[dtype]) for _ in range(2))
    for _ in range(_REPEATS):
        started = time.perf_counter()
        (left @ right)[0, 0].item()
        best = min(best, time.perf_counter() - started)
    return 2.0 * size**3 / best


def probe(run: RunConfig, overrides: Overrides) -> tuple[Figure, Figure]:
    """Train a few micro-steps with the run's settings; return tokens per second after the first, and peak bytes of memory.

    Memory: on a GPU, what PyTorch held plus the assumed context; on a CPU, that of the process, including loading. Raises the
    errors of training.
    """
    resident = [0]

    def look(pid: int) -> None:
        with suppress(psutil.Error):
            resident.append(psutil.Process(pid).memory_info().rss)

    asked = probe_overrides(run, overrides)
    lines, report = train_subprocess("the probe failed", run.manifest, asked, look, _POLL_S)
    tokens_per_s, spread_pct = speed([(line["tokens_real"], line["seconds"]) for line in lines])
    found = Figure(tokens_per_s, max(PROBE_ERROR_PCT, round(spread_pct)), "probe: real steps, just now")
    if run.compute.device == "cpu":
        return found, Figure(max(resident), PROBE_ERROR_PCT, "probe: the largest resident set of real steps")
    source = "probe: what PyTorch held in real steps, and an assumed CUDA context"
    return found, Figure(report["peak_memory_mb"] * MB + CONTEXT_BYTES, PROBE_ERROR_PCT, source)


def speed(steps: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return tokens per second after the first of (tokens, seconds) steps, and half of the spread in per cent."""
    rates = [(now[0] - before[0]) / max(1e-3, now[1] - before[1]) for before, now in pairwise(steps)]
    (first_tokens, first_s), (last_tokens, last_s) = steps[0], steps[-1]
    return (last_tokens - first_tokens) / max(1e-3, last_s - first_s), 50 * (max(rates) / min(rates) - 1)


def probe_overrides(run: RunConfig, overrides: Overrides) -> Overrides:
    """Return the settings of the probe: the same run with one micro-step per step, without evaluations."""
    sizes = {"batch_size": run.optim.batch_size, "gradient_accumulation_steps": 1}
    settings = [*QUIET_SETTINGS, *(f"training.config.{key}={value}" for key, value in sizes.items())]
    if run.watch.validates:  # otherwise the store would have other rows
        settings += ["training.config.eval_strategy=steps", f"training.config.eval_steps={NEVER}"]
    return with_settings(replace(overrides, device=run.compute.device, max_steps=STEPS), *settings)
