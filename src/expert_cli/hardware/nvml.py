"""Queries the NVIDIA driver about its GPUs through NVML, without torch.

Unknown values are None or "", never an error: laptops report less. A GPU that fell off the bus is left out.

Opening NVML takes milliseconds, so frequent callers keep it open with `nvml_session()`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

_MB = 1e6
OF_THE_GPU = 0
"""NVML_TEMPERATURE_GPU."""


class Driver(NamedTuple):
    """The NVIDIA driver. cuda: the newest supported version. problem: NVML's message if it cannot be queried, else ""."""

    version: str
    cuda: tuple[int, int] | None
    problem: str


@dataclass(frozen=True)
class GpuSample:
    """One sample of one GPU. None: not reported. Megabytes are 1e6 bytes.

    utilization: percentage of the last fraction of a second in which any kernel was resident.
    """

    index: int
    name: str = ""
    utilization: float | None = None
    memory_used_mb: float | None = None
    memory_total_mb: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    capability: tuple[int, int] | None = None


@contextmanager
def nvml_session() -> Iterator[str]:
    """Keep NVML open in the block; yield "" or why it cannot be opened. Sessions may be nested: NVML counts them."""
    library, problem = _library(), ""
    try:
        library.nvmlInit()
    except (library.NVMLError, library.NVMLLibraryMismatchError) as error:
        problem = str(error)
    try:
        yield problem
    finally:
        if not problem:
            _ask("nvmlShutdown")


def driver_info() -> Driver:
    """Return the driver's version and the newest CUDA that it supports, or why it cannot be queried."""
    with nvml_session() as problem:
        if problem:
            return Driver("", None, problem)
        cuda, version = _ask("nvmlSystemGetCudaDriverVersion"), _ask("nvmlSystemGetDriverVersion")
        return Driver(str(version or ""), (cuda // 1000, cuda % 1000 // 10) if cuda else None, "")


def visible(environment: Mapping[str, str] = os.environ) -> list[GpuSample]:
    """Sample the GPUs that CUDA shows to a process with this environment, in CUDA's order.

    CUDA_VISIBLE_DEVICES: numbers of GPUs (the driver's, if all are of one kind), up to the first word that is not one.
    """
    known = {str(card.index): card for card in sample()}
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    words = known if chosen is None else map(str.strip, chosen.split(","))
    return [known[word] for word in takewhile(known.__contains__, words)]


def sample() -> list[GpuSample]:
    """Sample every GPU of the machine in the driver's order, whether this process may use it or not."""
    with nvml_session() as problem:
        count = 0 if problem else _ask("nvmlDeviceGetCount") or 0
        cards = ((index, _ask("nvmlDeviceGetHandleByIndex", index)) for index in range(count))
        return [_sample(index, card) for index, card in cards if card is not None]


def _library() -> Any:
    import pynvml

    return pynvml


def _ask(question: str, *about: Any) -> Any:
    """Return the answer to a query; None if the library, driver or GPU cannot answer it."""
    library = _library()
    with suppress(library.NVMLError, library.NVMLLibraryMismatchError, AttributeError):
        return getattr(library, question)(*about)
    return None


def _sample(index: int, card: Any) -> GpuSample:
    rates, memory = _ask("nvmlDeviceGetUtilizationRates", card), _ask("nvmlDeviceGetMemoryInfo", card)
    power, temperature = _ask("nvmlDeviceGetPowerUsage", card), _ask("nvmlDeviceGetTemperatureV", card, OF_THE_GPU)
    capability = _ask("nvmlDeviceGetCudaComputeCapability", card)
    return GpuSample(
        index=index,
        name=str(_ask("nvmlDeviceGetName", card) or ""),
        utilization=float(rates.gpu) if rates else None,
        memory_used_mb=memory.used / _MB if memory else None,
        memory_total_mb=memory.total / _MB if memory else None,
        temperature_c=None if temperature is None else float(temperature),
        power_w=None if power is None else power / 1000,
        capability=(int(capability[0]), int(capability[1])) if capability else None,
    )
