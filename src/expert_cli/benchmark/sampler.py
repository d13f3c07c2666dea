"""Takes samples of GPUs, a process and memory; rates are differences from the previous sample."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import mul
from typing import Any, NamedTuple

import psutil

from expert_cli.hardware import nvml
from expert_cli.hardware.nvml import GpuSample


@dataclass(frozen=True)
class MonitorSample:
    """One sample. Rates cover the time since the previous one; MB = 1e6 bytes; None: unknown.

    seconds: since sampling began. alive: whether the observed process lives; None: there is none. cpu_percent: of the process
    and its children, 100 = one core.
    """

    seconds: float
    gpus: tuple[GpuSample, ...]
    alive: bool | None = None
    cpu_percent: float | None = None
    rss_mb: float | None = None


class Sampler:
    """Samples this machine and one process (`pid`; None = none). ask_gpus: returns the samples of GPUs."""

    def __init__(self, pid: int | None, ask_gpus: Callable[[], Sequence[GpuSample]] = nvml.sample) -> None:
        """Start the clock and read all counters once."""
        self._ask_gpus = ask_gpus
        self._pid = pid
        self._known: dict[int, psutil.Process] = {}
        self._started = time.monotonic()
        self._uses()

    def take(self) -> MonitorSample:
        """Take a sample."""
        uses = self._uses()
        return MonitorSample(
            seconds=time.monotonic() - self._started,
            gpus=tuple(self._ask_gpus()),
            alive=None if self._pid is None else bool(uses),
            cpu_percent=sum(cpu for cpu, _ in uses) if uses else None,
            rss_mb=sum(rss for _, rss in uses) / 1e6 if uses else None,
        )

    def _uses(self) -> list[tuple[float, int]]:
        """Return (per cent of a core since the last sample, resident bytes) of the run's processes; [] if it has ended."""
        with suppress(psutil.Error):
            if self._pid is None or (run := psutil.Process(self._pid)).status() == psutil.STATUS_ZOMBIE:
                return []
            family = {process.pid: process for process in (run, *run.children(recursive=True))}
            # psutil measures since the last call on the same object, so known objects are kept
            self._known = {pid: self._known.get(pid, process) for pid, process in family.items()}
            uses = []
            for process in self._known.values():
                with suppress(psutil.Error):  # a data worker that has just ended
                    uses.append((process.cpu_percent(), process.memory_info().rss))
            return uses
        return []


class Gauge(NamedTuple):
    """One figure of a sample: `block` and `key` in the JSON document, `figure` in the sample."""

    block: str
    key: str
    label: str
    unit: str
    figure: str

    def text(self, value: float) -> str:
        """Return a value as text."""
        return f"{value:,.0f} {self.unit}".rstrip()


GAUGES = (
    Gauge("gpu", "utilization", "GPU", "%", "utilization"),
    Gauge("gpu", "memory_mb", "GPU memory", "MB", "memory_used_mb"),
    Gauge("gpu", "temperature_c", "GPU temperature", "°C", "temperature_c"),
    Gauge("gpu", "power_w", "GPU power", "W", "power_w"),
    Gauge("process", "cpu_percent", "run's CPU", "%", "cpu_percent"),
    Gauge("process", "rss_mb", "run's memory", "MB", "rss_mb"),
)


def values_of(looks: Iterable[Any], name: str) -> list[float]:
    """Return the known values of one figure."""
    return [value for look in looks if (value := getattr(look, name)) is not None]


def spread(values: Sequence[float], weights: Sequence[float] = ()) -> dict[str, float] | None:
    """Return mean, min and max; None without values."""
    whole = mean(values, weights)
    return None if whole is None else {"mean": whole, "min": min(values), "max": max(values)}


def mean(values: Sequence[float], weights: Sequence[float] = ()) -> float | None:
    """Return the mean, None without values. weights: for speeds, the seconds of each; none = equal weights."""
    counts = weights or [1.0] * len(values)
    return sum(map(mul, values, counts)) / sum(counts) if values else None


def main_gpu(samples: Sequence[MonitorSample]) -> int | None:
    """Return the index of the busiest GPU."""
    work: dict[int, float] = {}
    for gpu in (gpu for sample in samples for gpu in sample.gpus):
        work[gpu.index] = work.get(gpu.index, 0.0) + (gpu.utilization or 0.0)
    return max(work, key=lambda index: work[index], default=None)


def of_gpu(samples: Sequence[MonitorSample], index: int | None) -> list[GpuSample]:
    """Return the samples of one GPU."""
    return [gpu for sample in samples for gpu in sample.gpus if gpu.index == index]


def series(gauge: Gauge, samples: Sequence[MonitorSample], index: int | None) -> list[float]:
    """Return the known values of a figure over time."""
    return values_of(of_gpu(samples, index) if gauge.block == "gpu" else samples, gauge.figure)
