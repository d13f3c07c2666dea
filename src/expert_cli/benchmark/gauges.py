"""What is shown and summed up of each sample: one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any

from expert_cli.benchmark.sampler import MonitorSample
from expert_cli.hardware.nvml import GpuSample

_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Gauge:
    """One figure of a sample: `block` and `key` are its place in the JSON document."""

    block: str
    key: str
    label: str
    unit: str
    read: Callable[[MonitorSample, GpuSample | None], float | None]
    digits: int = 0

    def text(self, value: float) -> str:
        """Return a value as a person reads it."""
        return f"{value:,.{self.digits}f} {self.unit}".rstrip()


GAUGES = (
    Gauge("gpu", "utilization", "GPU", "%", lambda _, g: g.utilization if g else None),
    Gauge("gpu", "memory_mb", "GPU memory", "MB", lambda _, g: g.memory_used_mb if g else None),
    Gauge("gpu", "temperature_c", "GPU temperature", "°C", lambda _, g: g.temperature_c if g else None),
    Gauge("gpu", "power_w", "GPU power", "W", lambda _, g: g.power_w if g else None),
    Gauge("gpu", "sm_clock_mhz", "GPU clock", "MHz", lambda _, g: g.sm_clock_mhz if g else None),
    Gauge("process", "cpu_percent", "run's CPU", "%", lambda s, _: s.cpu_percent),
    Gauge("process", "rss_mb", "run's memory", "MB", lambda s, _: s.rss_mb),
    Gauge("machine", "cpu_percent", "machine's CPU", "%", lambda s, _: s.machine_cpu_percent),
    Gauge("machine", "stolen_percent", "CPU stolen", "%", lambda s, _: s.stolen_percent),
    Gauge("machine", "ram_used_mb", "memory in use", "MB", lambda s, _: s.ram_used_mb),
    Gauge("machine", "disk_read_mb_per_s", "disk read", "MB/s", lambda s, _: s.disk_read_mb_per_s, 1),
    Gauge("machine", "disk_write_mb_per_s", "disk write", "MB/s", lambda s, _: s.disk_write_mb_per_s, 1),
    Gauge("machine", "network_received_mb_per_s", "network in", "MB/s", lambda s, _: s.network_received_mb_per_s, 1),
    Gauge("machine", "network_sent_mb_per_s", "network out", "MB/s", lambda s, _: s.network_sent_mb_per_s, 1),
)


def values_of(looks: Iterable[Any], name: str) -> list[float]:
    """Return what looks tell of one figure, without those that do not tell it."""
    return [value for look in looks if (value := getattr(look, name, None)) is not None]


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
    """Return the index of the GPU to look at: the one the run is known to hold, else the busiest, then the fullest."""
    work: dict[int, tuple[float, float]] = {}
    for sample in samples:
        for gpu in sample.gpus:
            busy, full = work.get(gpu.index, (0.0, 0.0))
            work[gpu.index] = (busy + (gpu.utilization or 0.0), full + (gpu.memory_used_mb or 0.0))
    return preferred if preferred in work else max(work, key=lambda index: work[index], default=None)


def gpu_of(sample: MonitorSample, index: int | None) -> GpuSample | None:
    """Return the sample of one GPU."""
    return next((gpu for gpu in sample.gpus if gpu.index == index), None)


def series(gauge: Gauge, samples: Sequence[MonitorSample], index: int | None) -> list[float]:
    """Return a gauge's values over time, without those that are not known."""
    return [value for sample in samples if (value := gauge.read(sample, gpu_of(sample, index))) is not None]


def sparkline(values: Sequence[float], width: int = 20) -> str:
    """Draw the last `width` values as bars between 0 and their maximum."""
    shown = values[-width:]
    top = max(shown, default=0.0)
    return "".join(_BARS[min(7, int(8 * max(0.0, value) / top)) if top > 0 else 0] for value in shown)
