"""What was watched -> the evidence that a verdict rests on."""

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
"""So many earlier lines are judged where no step was logged while it was watched."""
_GPU = ("utilization", "memory_used_mb", "memory_total_mb")
"""Of what the evidence holds the means, by the names of the samples."""


@dataclass(frozen=True)
class GpuFacts:
    """Means over the watched time."""

    utilization: float | None = None
    memory_used_mb: float | None = None
    memory_total_mb: float | None = None


@dataclass(frozen=True)
class Evidence:
    """What was measured; None or empty = not known.

    shares: of the watched steps' time (data, host_to_device, forward, backward, optimizer, checkpoint, eval, other; sum 1).
    run_shares: the same of the whole run, for what happens only now and then. process_cpu_percent: 100 = one core, data
    workers included. settings: of the run's blocks loader, optim, compute and watch, as run.json has them.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    run_shares: Mapping[str, float] = field(default_factory=dict)
    padding_share: float | None = None
    mfu: float | None = None
    gpu: GpuFacts | None = None
    spilled_mb: float | None = None
    process_cpu_percent: float | None = None
    cores: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def on_gpu(self) -> bool:
        """Whether the steps run on a GPU, as far as is known."""
        device = self.settings.get("device")
        return self.gpu is not None if device is None else bool(device != "cpu")

    @property
    def idle(self) -> float | None:
        """The share of the time in which the GPU had nothing to do."""
        if not self.on_gpu or self.gpu is None or self.gpu.utilization is None:
            return None
        return max(0.0, 1 - self.gpu.utilization / 100)

    @property
    def cpu_use(self) -> float | None:
        """The share of this machine's cores that the run keeps busy."""
        if self.process_cpu_percent is None or not self.cores:
            return None
        return min(1.0, self.process_cpu_percent / 100 / self.cores)


def judged_lines(earlier: Sequence[Line], new: Sequence[Line]) -> Sequence[Line]:
    """Return the metric lines that are judged: the new ones, or the last before them where no step was logged since."""
    return new if numbers(new, "loss") else earlier[-ENOUGH_LINES:]


def collect_evidence(
    samples: Sequence[MonitorSample],
    earlier: Sequence[Line],
    new: Sequence[Line],
    run: Mapping[str, Any],
) -> Evidence:
    """Return the evidence of a watched stretch: samples, the metric lines before and during it, and run.json."""
    judged = judged_lines(earlier, new)
    samples = [sample for sample in samples if sample.alive is not False]  # what a machine does after the run's end
    cores = number(run, "machine", "cores") or os.cpu_count()
    return Evidence(
        shares=mean_shares(judged),
        run_shares=mean_shares([*earlier, *new]),
        padding_share=padding_share([*earlier, *new]),
        mfu=mean(*rates(judged, "mfu")),
        gpu=_gpu_sampled(samples),
        spilled_mb=max(numbers(judged, "spilled_mb"), default=None),
        process_cpu_percent=mean(values_of(samples, "cpu_percent")),
        cores=None if cores is None else int(cores),
        settings={key: value for name in _BLOCKS for key, value in part(run, "config", name).items()},
    )


def _gpu_sampled(samples: Sequence[MonitorSample]) -> GpuFacts | None:
    looks = of_gpu(samples, main_gpu(samples))
    return GpuFacts(**{name: mean(values_of(looks, name)) for name in _GPU}) if looks else None
