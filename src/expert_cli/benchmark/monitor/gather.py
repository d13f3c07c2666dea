"""What was watched -> the evidence that a verdict rests on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from expert_cli.benchmark.monitor.evidence import Evidence, GpuFacts, RunSettings
from expert_cli.benchmark.monitor.gauges import gpu_of, main_gpu, mean
from expert_cli.benchmark.monitor.sampler import MonitorSample
from expert_cli.hardware.nvml import GpuSample
from expert_cli.runs.metrics import items, mean_shares, number, numbers, padding_share, part, rates, timed

Line = Mapping[str, Any]
_BLOCKS = ("loader", "optim", "compute", "watch")
ENOUGH_LINES = 20
"""So many earlier lines are judged where no step was logged while it was watched."""


def settings_of(run: Mapping[str, Any]) -> RunSettings:
    """Return the settings that a run.json records; those of another form or version are not known."""
    recorded = {key: value for name in _BLOCKS for key, value in part(run, "config", name).items()}
    found = {}
    for name, kind in get_type_hints(RunSettings).items():
        with suppress(ValidationError):
            found[name] = TypeAdapter(kind).validate_python(recorded.get(name.removeprefix("dataloader_")), strict=True)
    return RunSettings(**found)


def run_shares(lines: Sequence[Line], run: Mapping[str, Any]) -> dict[str, float]:
    """Return the step-time shares since the run's loop last began: run.json says when a run went on."""
    steps, began = timed(lines), _went_on(run)
    start = next((n for n, line in enumerate(steps) if (number(line, "time") or 0.0) >= began), len(steps))
    return mean_shares(steps[start:], steps[start - 1] if start else None)


def _went_on(run: Mapping[str, Any]) -> float:
    """Return when a run went on for the last time, in seconds since 1970; 0 where it never did, or nothing tells."""
    resumes = items(run, "resumes")
    try:
        return datetime.fromisoformat(str(part(resumes[-1]).get("time"))).timestamp() if resumes else 0.0
    except ValueError:
        return 0.0


def collect_evidence(
    samples: Sequence[MonitorSample],
    earlier: Sequence[Line],
    new: Sequence[Line],
    run: Mapping[str, Any],
    preferred_gpu: int | None = None,
) -> Evidence:
    """Return the evidence of a watched stretch: samples, the metric lines before and during it, and run.json."""
    logged = bool(numbers(new, "loss"))
    judged = new if logged else earlier[-ENOUGH_LINES:]
    before = earlier if logged else earlier[:-ENOUGH_LINES]
    preceding = timed(before)
    speeds, held = rates(judged, "tokens_per_s", before)
    known = [*earlier, *new]
    samples = [sample for sample in samples if sample.alive is not False]  # what a machine does after the run's end
    spilled = numbers(judged, "spilled_mb")
    gauged = (
        "cpu_percent",
        "machine_cpu_percent",
        "stolen_percent",
        "swap_in_mb_per_s",
        "disk_busy",
        "disk_read_mb_per_s",
    )
    seen = {name: mean([v for s in samples if (v := getattr(s, name)) is not None]) for name in gauged}
    cores = _whole(part(run, "machine"), "cores") or os.cpu_count()
    comparable = cores == os.cpu_count()  # of a run that may use some cores alone, nobody counts who else uses those
    return Evidence(
        shares=mean_shares(judged, preceding[-1] if preceding else None),
        run_shares=run_shares(known, run),
        tokens_per_s=tuple(speeds),
        held_s=tuple(held),
        padding_share=padding_share(known),
        mfu=mean(*rates(judged, "mfu", before)),
        gpu=_gpu_sampled(samples, preferred_gpu) or _gpu_logged(judged),
        spilled_mb=max(spilled) if spilled else None,
        process_cpu_percent=seen["cpu_percent"],
        machine_cpu_percent=seen["machine_cpu_percent"] if comparable else None,
        stolen_percent=seen["stolen_percent"],
        threads=_whole(run, "torch_threads"),
        cores=cores,
        swap_in_mb_per_s=seen["swap_in_mb_per_s"],
        disk_busy=seen["disk_busy"],
        disk_read_mb_per_s=seen["disk_read_mb_per_s"],
        settings=settings_of(run),
    )


def _gpu_sampled(samples: Sequence[MonitorSample], preferred: int | None) -> GpuFacts | None:
    index = main_gpu(samples, preferred)
    looks: list[GpuSample] = [gpu for sample in samples if (gpu := gpu_of(sample, index)) and not gpu.problem]
    if not looks:
        return None
    clocks = [gpu.sm_clock_mhz for gpu in looks if gpu.sm_clock_mhz is not None]
    reasons = sorted({reason for gpu in looks for reason in gpu.throttles})

    def mean_of(name: str) -> float | None:
        return mean([value for gpu in looks if (value := getattr(gpu, name)) is not None])

    return GpuFacts(
        utilization=mean_of("utilization"),
        power_w=mean_of("power_w"),
        power_limit_w=mean_of("power_limit_w"),
        clock_mhz=mean(clocks),
        top_clock_mhz=max(clocks, default=None),
        temperature_c=mean_of("temperature_c"),
        memory_mb=mean_of("memory_used_mb"),
        memory_total_mb=mean_of("memory_total_mb"),
        throttles={reason: sum(reason in gpu.throttles for gpu in looks) / len(looks) for reason in reasons},
    )


def _gpu_logged(lines: Sequence[Line]) -> GpuFacts | None:
    """The GPU as the run itself logged it, for a run that is over."""
    means = [mean(numbers(lines, "gpu", name)) for name in ("utilization", "power_w", "temperature_c", "memory_mb")]
    utilization, power_w, temperature_c, memory_mb = means
    if all(value is None for value in means):
        return None
    return GpuFacts(utilization, power_w, temperature_c=temperature_c, memory_mb=memory_mb)


def _whole(block: Line, key: str) -> int | None:
    value = number(block, key)
    return None if value is None or value < 0 else int(value)
