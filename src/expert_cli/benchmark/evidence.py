"""Collects the evidence for a verdict from an observed run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from expert_cli.benchmark.sampler import MonitorSample, main_gpu, mean, of_gpu, values_of
from expert_cli.runs.metrics import mean_shares, number, numbers, padding_share, part, rates

Line = Mapping[str, Any]
_BLOCKS = ("loader", "optim", "compute", "watch")
ENOUGH_LINES = 20
"""How many earlier lines are judged if no step was logged during the observation."""


@dataclass(frozen=True)
class Evidence:
    """Measurements; None or empty = unknown.

    shares: of the observed steps' time (data, host_to_device, forward, backward, optimizer, checkpoint, eval, other; sum 1).
    run_shares: the same for the whole run, for rare phases. idle, free_memory: shares of the GPU's time and memory. cpu_use:
    the share of the cores used by the run. settings: the blocks loader, optim, compute and watch of run.json, and the packing
    that was requested.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    run_shares: Mapping[str, float] = field(default_factory=dict)
    padding_share: float | None = None
    mfu: float | None = None
    on_gpu: bool = False
    idle: float | None = None
    free_memory: float | None = None
    spilled_mb: float | None = None
    cpu_use: float | None = None
    cores: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


def judged_lines(earlier: Sequence[Line], new: Sequence[Line]) -> Sequence[Line]:
    """Return the metric lines to judge: the new ones, or the last ones before if no step was logged since."""
    return new if numbers(new, "loss") else earlier[-ENOUGH_LINES:]


def collect_evidence(
    samples: Sequence[MonitorSample], earlier: Sequence[Line], new: Sequence[Line], run: Mapping[str, Any]
) -> Evidence:
    """Return the evidence from samples, the metric lines before and during the observation, and run.json."""
    judged = judged_lines(earlier, new)
    settings = {key: value for name in _BLOCKS for key, value in part(run, "config", name).items()}
    settings["packing_asked"] = part(run, "identity").get("loader.packing")
    samples = [sample for sample in samples if sample.alive is not False]  # the run has ended
    # if the run is on the CPU, only other programs use a GPU
    gpu = [] if settings.get("device") == "cpu" else of_gpu(samples, main_gpu(samples))
    busy, used, total = (mean(values_of(gpu, name)) for name in ("utilization", "memory_used_mb", "memory_total_mb"))
    cpu, cores = mean(values_of(samples, "cpu_percent")), int(number(run, "machine", "cores") or os.cpu_count() or 1)
    return Evidence(
        shares=mean_shares(judged),
        run_shares=mean_shares([*earlier, *new]),
        padding_share=padding_share([*earlier, *new]),
        mfu=mean(*rates(judged, "mfu")),
        on_gpu=settings.get("device", "cuda" if gpu else "cpu") != "cpu",
        idle=None if busy is None else max(0.0, 1 - busy / 100),
        free_memory=1 - (used or 0.0) / total if total else None,
        spilled_mb=max(numbers(judged, "spilled_mb"), default=None),
        cpu_use=None if cpu is None else min(1.0, cpu / 100 / cores),
        cores=cores,
        settings=settings,
    )
