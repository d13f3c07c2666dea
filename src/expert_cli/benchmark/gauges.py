"""What is shown and summed up of each sample: one table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import mul
from typing import Any, NamedTuple

from expert_cli.benchmark.sampler import MonitorSample
from expert_cli.hardware.nvml import GpuSample


class Gauge(NamedTuple):
    """One figure of a sample: `block` and `key` are its place in the JSON document, `figure` its name in the sample."""

    block: str
    key: str
    label: str
    unit: str
    figure: str

    def text(self, value: float) -> str:
        """Return a value as a person reads it."""
        return f"{value:,.0f} {self.unit}".rstrip()


GAUGES = (
    Gauge("gpu", "utilization", "GPU", "%", "utilization"),
    Gauge("gpu", "memory_mb", "GPU memory", "MB", "memory_used_mb"),
    Gauge("gpu", "temperature_c", "GPU temperature", "°C", "temperature_c"),
    Gauge("gpu", "power_w", "GPU power", "W", "power_w"),
    Gauge("gpu", "sm_clock_mhz", "GPU clock", "MHz", "sm_clock_mhz"),
    Gauge("process", "cpu_percent", "run's CPU", "%", "cpu_percent"),
    Gauge("process", "rss_mb", "run's memory", "MB", "rss_mb"),
    Gauge("machine", "cpu_percent", "machine's CPU", "%", "machine_cpu_percent"),
    Gauge("machine", "ram_used_mb", "memory in use", "MB", "ram_used_mb"),
    Gauge("machine", "disk_busy_percent", "disk busy", "%", "disk_busy_percent"),
)


def values_of(looks: Iterable[Any], name: str) -> list[float]:
    """Return what looks tell of one figure, without those that do not tell it."""
    return [value for look in looks if (value := getattr(look, name)) is not None]


def spread(values: Sequence[float], weights: Sequence[float] = ()) -> dict[str, float] | None:
    """Return mean, min and max; None of nothing."""
    whole = mean(values, weights)
    return None if whole is None else {"mean": whole, "min": min(values), "max": max(values)}


def mean(values: Sequence[float], weights: Sequence[float] = ()) -> float | None:
    """Return the mean; None of nothing. weights: one a value, none = all alike.

    Of speeds, the seconds that each held: a mean of the rates alone counts a line that covers an evaluation as any other.
    """
    counts = weights or [1.0] * len(values)
    return sum(map(mul, values, counts)) / sum(counts) if values else None


def main_gpu(samples: Sequence[MonitorSample], preferred: int | None = None) -> int | None:
    """Return the index of the GPU to look at: the one the run is known to hold, else the busiest."""
    work: dict[int, float] = {}
    for gpu in (gpu for sample in samples for gpu in sample.gpus):
        work[gpu.index] = work.get(gpu.index, 0.0) + (gpu.utilization or 0.0)
    return preferred if preferred in work else max(work, key=lambda index: work[index], default=None)


def of_gpu(samples: Sequence[MonitorSample], index: int | None) -> list[GpuSample]:
    """Return the samples of one GPU."""
    return [gpu for sample in samples for gpu in sample.gpus if gpu.index == index]


def series(gauge: Gauge, samples: Sequence[MonitorSample], index: int | None) -> list[float]:
    """Return a gauge's values over time, without those that are not known."""
    return values_of(of_gpu(samples, index) if gauge.block == "gpu" else samples, gauge.figure)
