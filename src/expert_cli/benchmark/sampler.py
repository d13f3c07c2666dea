"""One look at GPU, process, memory, disk and network; rates are differences to the look before, on the monotonic clock."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil

from expert_cli.hardware import nvml
from expert_cli.hardware.nvml import GpuSample

_MB = 1e6
_BUSY = "busy of "
CHILDREN_EVERY = 8
"""Finding a process's children reads every process of the machine: new data workers may be seen a few samples later."""


@dataclass(frozen=True)
class MonitorSample:
    """One look. Rates cover the time since the look before and are None in the first; MB = 1e6 bytes.

    seconds: since sampling began. alive: whether the watched process lives; None: no process is watched. cpu_percent: of the
    process, its children, and the run's other processes that its launcher started, 100 = one core. machine_cpu_percent: 100 =
    every core; stolen_percent, a part of it: what the host of a virtual machine gave to others. disk_busy: share of the time,
    0 to 1.
    """

    seconds: float
    gpus: tuple[GpuSample, ...]
    alive: bool | None = None
    cpu_percent: float | None = None
    rss_mb: float | None = None
    machine_cpu_percent: float | None = None
    stolen_percent: float | None = None
    ram_used_mb: float | None = None
    swap_in_mb_per_s: float | None = None
    disk_read_mb_per_s: float | None = None
    disk_write_mb_per_s: float | None = None
    disk_busy: float | None = None
    network_received_mb_per_s: float | None = None
    network_sent_mb_per_s: float | None = None


class Sampler:
    """Takes samples of this machine and of one process (`pid`; None = none).

    ask_gpus: what returns the GPUs' samples; by default the driver is asked.
    """

    def __init__(self, pid: int | None, ask_gpus: Callable[[], Sequence[GpuSample]] = nvml.sample) -> None:
        """Start the clock and take the first readings of everything that counts up."""
        self._ask_gpus = ask_gpus
        self._process, self._root = _processes(pid)
        self._watches = pid is not None
        self._children: dict[psutil.Process, psutil.Process] = {}
        self._looks = 0
        self._started = self._then = time.monotonic()
        self._counters = _counters()
        self._process_use()
        psutil.cpu_percent()

    def take(self) -> MonitorSample:
        """Look once."""
        now = time.monotonic()
        passed, self._then = now - self._then, now
        before, self._counters = self._counters, _counters()
        cpu_percent, rss_mb = self._process_use()
        memory = psutil.virtual_memory()
        return MonitorSample(
            seconds=now - self._started,
            gpus=tuple(self._ask_gpus()),
            alive=self._process is not None if self._watches else None,
            cpu_percent=cpu_percent,
            rss_mb=rss_mb,
            machine_cpu_percent=psutil.cpu_percent(),
            ram_used_mb=(memory.total - memory.available) / _MB,
            **_rates(before, self._counters, passed),
        )

    def _process_use(self) -> tuple[float | None, float | None]:
        """Return (per cent of a core since the look before, resident MB) of the process and its children."""
        if self._process is None:
            return None, None
        try:
            if self._looks % CHILDREN_EVERY == 0:
                family = self._root.children(recursive=True) if self._root else []
                # psutil counts since the last look through the same object: those that are known stay
                self._children = {one: self._children.get(one, one) for one in family if one != self._process}
            self._looks += 1
            uses = [_use(self._process)]
        except psutil.NoSuchProcess:
            self._process = None
            return None, None
        except psutil.Error:
            return None, None
        for child in list(self._children.values()):
            try:
                uses.append(_use(child))
            except psutil.Error:
                del self._children[child]
        return sum(cpu for cpu, _ in uses), sum(rss for _, rss in uses)


def _use(process: psutil.Process) -> tuple[float, float]:
    with process.oneshot():
        if process.status() == psutil.STATUS_ZOMBIE:
            raise psutil.NoSuchProcess(process.pid)
        return process.cpu_percent(), process.memory_info().rss / _MB


def _processes(pid: int | None) -> tuple[psutil.Process | None, psutil.Process | None]:
    """Return a process, and what started it together with others of one run (torchrun and its like), else itself."""
    process = root = None
    with suppress(psutil.Error, ValueError):
        process = root = None if pid is None else psutil.Process(pid)
        if process and int(process.environ().get("WORLD_SIZE", "1")) > 1:
            root = process.parent() or process
    return process, root


def _rates(before: dict[str, float], now: dict[str, float], passed: float) -> dict[str, float]:
    """Return the growth a second of what is in both; of the disks' busy time the largest, as `disk_busy`."""
    if passed <= 0:
        return {}
    grown = {name: max(0.0, value - before[name]) / passed for name, value in now.items() if name in before}
    busy = [grown.pop(name) for name in list(grown) if name.startswith(_BUSY)]
    return grown | ({"disk_busy": min(1.0, max(busy))} if busy else {})


def _counters() -> dict[str, float]:
    """Return what only counts up, under the names of the rates in `MonitorSample`; what is not told here is left out."""
    found: dict[str, float] = {}
    disks = _asked(psutil.disk_io_counters)
    if disks:
        found["disk_read_mb_per_s"] = disks.read_bytes / _MB
        found["disk_write_mb_per_s"] = disks.write_bytes / _MB
        for name, disk in (_asked(lambda: psutil.disk_io_counters(perdisk=True)) or {}).items():
            if hasattr(disk, "busy_time"):  # Linux only
                found[f"{_BUSY}{name}"] = disk.busy_time / 1000
    network = _asked(psutil.net_io_counters)
    if network:
        found["network_received_mb_per_s"] = network.bytes_recv / _MB
        found["network_sent_mb_per_s"] = network.bytes_sent / _MB
    times, cores = _asked(psutil.cpu_times), psutil.cpu_count()
    if hasattr(times, "steal") and cores:  # Linux only
        found["stolen_percent"] = 100 * times.steal / cores
    swap = _asked(psutil.swap_memory)
    if swap:
        found["swap_in_mb_per_s"] = swap.sin / _MB
    return found


def _asked(question: Callable[[], Any]) -> Any:
    """Return the answer; None where a container or system hides these files."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # psutil warns each time where the system hides swap
            return question()
    except (OSError, RuntimeError, NotImplementedError, psutil.Error):
        return None
