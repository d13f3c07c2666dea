"""What the NVIDIA driver tells of its GPUs (NVML): the one module that speaks to it. Needs no torch.

Whatever a card, a driver or a system does not tell is None or "", never an error: laptops have no power limit, Windows hides
each process's memory, a card in MIG mode hides utilization, a card that fell off the bus hides everything.

Every function takes the library to ask (`nvml`), by default the module pynvml. Opening NVML takes milliseconds: whoever asks
often does so inside `session()`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil

from expert_cli.utils.files import command_text

THROTTLES = {
    0x002: "clocks set by user",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "thermal (driver)",
    0x040: "thermal (hardware)",
    0x080: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "voltage reliability",
}
"""Bits of nvmlClocksEventReasons and the words for them. 0x1, idle, is no throttling and is left out."""
TEMPERATURE = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature")
CLOCK_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
"""Questions that were renamed: the newest name, and the one that goes away with CUDA 14 and that older drivers alone know."""
_MB = 1e6


@dataclass(frozen=True)
class Driver:
    """The driver. `problem` is NVML's own word when it cannot be asked ("" if it can); `cuda`: the newest it can run."""

    version: str
    cuda: tuple[int, int] | None
    problem: str


@dataclass(frozen=True)
class GpuInfo:
    """One GPU and what it can. `model` is "WDDM", "TCC" or "MCDM" on Windows, else ""; `problem`: why it cannot be used."""

    index: int
    name: str
    memory_bytes: int | None
    capability: tuple[int, int] | None
    model: str
    mig: bool
    problem: str


@dataclass(frozen=True)
class GpuSample:
    """One look at one GPU. None: this card does not tell. Megabytes of 1e6 bytes; `throttles` are words of THROTTLES.

    `utilization`: per cent of the last fraction of a second in which any kernel was resident. `problem`: NVML's word for a card
    that answers no more ("GPU is lost"), else "".
    """

    index: int
    name: str
    utilization: float | None
    memory_used_mb: float | None
    memory_total_mb: float | None
    temperature_c: float | None
    power_w: float | None
    power_limit_w: float | None
    sm_clock_mhz: float | None
    throttles: tuple[str, ...]
    problem: str


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds memory of a GPU. `memory_mb` None: not told (Windows); user and command "": not ours to see."""

    gpu: int
    pid: int
    user: str
    command: str
    memory_mb: float | None


@contextmanager
def nvml_session(nvml: Any = None) -> Iterator[str]:
    """Keep NVML open for the block; yields "" or why it cannot be opened. Sessions may be nested: NVML counts them."""
    library = _library(nvml)
    problem = _open(library)
    try:
        yield problem
    finally:
        if not problem:
            _ask(library, library.nvmlShutdown)


def driver_info(nvml: Any = None) -> Driver:
    """Return the driver's version and the newest CUDA it can run, or why it cannot be asked."""
    library = _library(nvml)
    with nvml_session(library) as problem:
        if problem:
            return Driver("", None, problem)
        cuda = _ask(library, library.nvmlSystemGetCudaDriverVersion)
        version = _ask(library, library.nvmlSystemGetDriverVersion)
        return Driver(str(version or ""), (cuda // 1000, cuda % 1000 // 10) if cuda else None, "")


def gpus(nvml: Any = None) -> list[GpuInfo]:
    """Return every GPU of the machine in the driver's order, whether this process may use it or not."""
    library = _library(nvml)
    return [_card(library, index, handle, problem) for index, handle, problem in _each(library)]


def visible(environment: Mapping[str, str] = os.environ, nvml: Any = None) -> list[int]:
    """Return the indices of the GPUs that CUDA shows to a process with this environment, in CUDA's order.

    CUDA_VISIBLE_DEVICES is read as CUDA reads it: numbers, names (GPU-..., its first characters are enough) and slices
    (MIG-..., here: their card), up to the first that is none. Numbers are taken as the driver's, which they are for cards
    of one kind, and for any with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    library = _library(nvml)
    with nvml_session(library):
        names = {i: str(_ask(library, library.nvmlDeviceGetUUID, handle) or "") for i, handle, _ in _each(library)}
        chosen = environment.get("CUDA_VISIBLE_DEVICES")
        if chosen is None:
            return list(names)
        found: list[int] = []
        for word in chosen.split(","):
            index = _index_of(library, word.strip(), names)
            if index is None:
                break
            found.append(index)
        return found


def sample(nvml: Any = None) -> list[GpuSample]:
    """Look once at every GPU of the machine."""
    library = _library(nvml)
    return [_sample(library, index, handle, problem) for index, handle, problem in _each(library)]


def holders(nvml: Any = None) -> list[GpuProcess]:
    """Return who holds memory of which GPU, the largest first. In a container the driver may name nobody."""
    library = _library(nvml)
    found: dict[tuple[int, int], float | None] = {}
    for index, handle, _ in _each(library):
        if handle is None:
            continue
        for list_them in (library.nvmlDeviceGetComputeRunningProcesses, library.nvmlDeviceGetGraphicsRunningProcesses):
            for process in _ask(library, list_them, handle) or ():
                held = None if process.usedGpuMemory is None else process.usedGpuMemory / _MB
                known = found.get((index, process.pid))
                found[index, process.pid] = held if known is None else max(known, held or 0.0)
    rows = [GpuProcess(index, pid, *_who(pid), held) for (index, pid), held in found.items()]
    return sorted(rows, key=lambda row: (-(row.memory_mb or 0.0), row.gpu, row.pid))


def _library(nvml: Any) -> Any:
    if nvml is not None:
        return nvml
    import pynvml

    return pynvml


def _open(nvml: Any) -> str:
    """Open NVML; return "" or why it cannot be."""
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError, nvml.NVMLLibraryMismatchError) as error:
        return str(error)
    return ""


def _ask(nvml: Any, question: Callable[..., Any], *details: Any) -> Any:
    """Return the answer, or None where this card, driver or system has none."""
    try:
        return question(*details)
    except (nvml.NVMLError, nvml.NVMLLibraryMismatchError):
        return None


def _ask_first(nvml: Any, names: Sequence[str], *details: Any) -> Any:
    """Return the first answer to a question that has several names; library and driver may each know only some of them."""
    for name in names:
        answer = _ask(nvml, question, *details) if (question := getattr(nvml, name, None)) else None
        if answer is not None:
            return answer
    return None


def _each(nvml: Any) -> Iterator[tuple[int, Any, str]]:
    """Yield (index, handle, "") of every GPU; (index, None, why) of one that does not answer."""
    with nvml_session(nvml) as problem:
        for index in range(0 if problem else _ask(nvml, nvml.nvmlDeviceGetCount) or 0):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                nvml.nvmlDeviceGetName(handle)
            except nvml.NVMLError as error:
                yield index, None, str(error)
            else:
                gone = _gone(nvml, handle)
                yield index, None if gone else handle, gone


def _index_of(nvml: Any, word: str, names: Mapping[int, str]) -> int | None:
    """Return the index of the card that a word of CUDA_VISIBLE_DEVICES means, or None."""
    if word.isdecimal():
        return int(word) if int(word) in names else None
    if word.startswith("MIG-"):
        part = _ask(nvml, nvml.nvmlDeviceGetHandleByUUID, word)
        card = None if part is None else _ask(nvml, nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, part)
        return None if card is None else _ask(nvml, nvml.nvmlDeviceGetIndex, card)
    return next((index for index, name in names.items() if word and name.startswith(word)), None)


def _gone(nvml: Any, handle: Any) -> str:
    """Return why a card answers no more; the name of a lost one is still told from memory."""
    try:
        nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError as error:
        return str(error) if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED) else ""
    return ""


def _card(nvml: Any, index: int, handle: Any, problem: str) -> GpuInfo:
    if handle is None:
        return GpuInfo(index, "", None, None, "", False, problem)
    memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    capability = _ask(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    mig = _ask(nvml, nvml.nvmlDeviceGetMigMode, handle)
    model = _ask(nvml, nvml.nvmlDeviceGetCurrentDriverModel, handle)
    return GpuInfo(
        index=index,
        name=str(_ask(nvml, nvml.nvmlDeviceGetName, handle) or ""),
        memory_bytes=int(memory.total) if memory else None,
        capability=(int(capability[0]), int(capability[1])) if capability else None,
        model={0: "WDDM", 1: "TCC", 2: "MCDM"}.get(model, ""),
        mig=bool(mig and mig[0]),
        problem="",
    )


def _sample(nvml: Any, index: int, handle: Any, problem: str) -> GpuSample:
    if handle is None:
        return GpuSample(index, "", None, None, None, None, None, None, None, (), problem)
    rates = _ask(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    power = _ask(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
    limit = _ask(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    reasons = _ask_first(nvml, CLOCK_REASONS, handle) or 0
    return GpuSample(
        index=index,
        name=str(_ask(nvml, nvml.nvmlDeviceGetName, handle) or ""),
        utilization=float(rates.gpu) if rates else None,
        memory_used_mb=memory.used / _MB if memory else None,
        memory_total_mb=memory.total / _MB if memory else None,
        temperature_c=_number(_ask_first(nvml, TEMPERATURE, handle, nvml.NVML_TEMPERATURE_GPU)),
        power_w=power / 1000 if power is not None else None,
        power_limit_w=limit / 1000 if limit is not None else None,
        sm_clock_mhz=_number(_ask(nvml, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM)),
        throttles=tuple(word for bit, word in THROTTLES.items() if reasons & bit),
        problem="",
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _who(pid: int) -> tuple[str, str]:
    """Return (user, command line) of a process, "" for what may not be seen."""
    try:
        process = psutil.Process(pid)
        words = process.cmdline() or [process.name()]
    except psutil.Error:
        return "", ""
    try:
        user = str(process.username())
    except (psutil.Error, KeyError):
        user = ""
    return user, command_text(words)
