"""What the NVIDIA driver tells of its GPUs (NVML): the one module that speaks to it. Needs no torch.

Whatever a card, a driver or a system does not tell is None or "", never an error: laptops tell less, a card that
fell off the bus hides everything.

Opening NVML takes milliseconds: whoever asks often does so inside `nvml_session()`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

_MB = 1e6
SM_CLOCK, OF_THE_GPU = 1, 0
"""NVML_CLOCK_SM and NVML_TEMPERATURE_GPU."""


class Driver(NamedTuple):
    """The driver. `problem` is NVML's own word when it cannot be asked ("" if it can); `cuda`: the newest it can run."""

    version: str
    cuda: tuple[int, int] | None
    problem: str


@dataclass(frozen=True)
class GpuSample:
    """One look at one GPU. None: this card does not tell. Megabytes of 1e6 bytes.

    `utilization`: per cent of the last fraction of a second in which any kernel was resident. `problem`: NVML's word for a card
    that answers no more ("GPU is lost"), else "".
    """

    index: int
    name: str = ""
    utilization: float | None = None
    memory_used_mb: float | None = None
    memory_total_mb: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    sm_clock_mhz: float | None = None
    problem: str = ""
    capability: tuple[int, int] | None = None


@contextmanager
def nvml_session() -> Iterator[str]:
    """Keep NVML open for the block; yields "" or why it cannot be opened. Sessions may be nested: NVML counts them."""
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
    """Return the driver's version and the newest CUDA it can run, or why it cannot be asked."""
    with nvml_session() as problem:
        if problem:
            return Driver("", None, problem)
        cuda, version = _ask("nvmlSystemGetCudaDriverVersion"), _ask("nvmlSystemGetDriverVersion")
        return Driver(str(version or ""), (cuda // 1000, cuda % 1000 // 10) if cuda else None, "")


def visible(environment: Mapping[str, str] = os.environ) -> list[int]:
    """Return the indices of the GPUs that CUDA shows to a process with this environment, in CUDA's order.

    CUDA_VISIBLE_DEVICES: their numbers (the driver's, for cards of one kind), up to the first word that is none.
    """
    with nvml_session():
        known = [str(index) for index, _, _ in _each()]
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    words = known if chosen is None else map(str.strip, chosen.split(","))
    return [int(word) for word in takewhile(known.__contains__, words)]


def sample() -> list[GpuSample]:
    """Look once at every GPU of the machine in the driver's order, whether this process may use it or not."""
    return [GpuSample(index, problem=problem) if problem else _sample(index, card) for index, card, problem in _each()]


def gpu_of_process(pid: int | None) -> int | None:
    """Return the index of the GPU that a process computes on. In a container the driver may name none."""
    for index, card, problem in _each():
        processes = [] if problem else _ask("nvmlDeviceGetComputeRunningProcesses", card) or []
        if pid in [process.pid for process in processes]:
            return index
    return None


def _library() -> Any:
    import pynvml

    return pynvml


def _ask(question: str, *about: Any) -> Any:
    """Return the answer to a question; None where library, driver or card know none."""
    library = _library()
    with suppress(library.NVMLError, library.NVMLLibraryMismatchError, AttributeError):
        return getattr(library, question)(*about)
    return None


def _each() -> Iterator[tuple[int, Any, str]]:
    """Yield (index, NVML's handle, "") of every GPU; (index, None, why) of one that does not answer."""
    library = _library()
    lost = (library.NVML_ERROR_GPU_IS_LOST, library.NVML_ERROR_RESET_REQUIRED)
    with nvml_session() as problem:
        for index in range(0 if problem else _ask("nvmlDeviceGetCount") or 0):
            card, gone = None, ""
            try:
                card = library.nvmlDeviceGetHandleByIndex(index)
                library.nvmlDeviceGetMemoryInfo(card)  # name and handle of a lost one are still told
            except library.NVMLError as error:
                gone = str(error) if card is None or error.value in lost else ""
            yield index, card, gone


def _sample(index: int, card: Any) -> GpuSample:
    rates, memory = _ask("nvmlDeviceGetUtilizationRates", card), _ask("nvmlDeviceGetMemoryInfo", card)
    power, clock = _ask("nvmlDeviceGetPowerUsage", card), _ask("nvmlDeviceGetClockInfo", card, SM_CLOCK)
    temperature = _ask("nvmlDeviceGetTemperatureV", card, OF_THE_GPU)
    capability = _ask("nvmlDeviceGetCudaComputeCapability", card)
    return GpuSample(
        index=index,
        name=str(_ask("nvmlDeviceGetName", card) or ""),
        utilization=float(rates.gpu) if rates else None,
        memory_used_mb=memory.used / _MB if memory else None,
        memory_total_mb=memory.total / _MB if memory else None,
        temperature_c=None if temperature is None else float(temperature),
        power_w=None if power is None else power / 1000,
        sm_clock_mhz=None if clock is None else float(clock),
        capability=(int(capability[0]), int(capability[1])) if capability else None,
    )
