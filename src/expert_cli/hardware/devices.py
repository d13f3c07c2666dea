"""The devices that a step can be computed on, one entry each: here and in device.py alone torch's functions of them are called.

A new one is an entry in `DEVICES`, and its name in `DeviceName` (manifest/keys/compute.py).
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil

from expert_cli.hardware import nvml
from expert_cli.hardware.device import FIGURES, PLAIN_ATTENTION, Card, Count, Device, Lack

if TYPE_CHECKING:
    import torch

    from expert_cli.hardware.machine import Machine


class Cuda(Device):
    """NVIDIA's: the driver (NVML) tells of the cards, mostly without torch."""

    def lacks(self, machine: Machine) -> Lack | None:
        """As of the others, but a card is known where torch is not built for it."""
        if not machine.gpus or machine.torch_device == "cpu":
            return "no usable GPU", machine.first_words or "use --device cpu, or a machine with an NVIDIA GPU"
        return super().lacks(machine)

    def cards(self) -> list[Card]:
        """As of the others; where the driver's own library is not there, torch need not be asked."""
        with suppress(OSError):
            ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
            return super().cards()
        return []

    def memory(self) -> tuple[int, int]:
        """As of the others; where CPU and GPU share one memory, CUDA counts the files in it as taken, which they are not."""
        module = self._torch()
        if getattr(module.get_device_properties(module.current_device()), "is_integrated", 0):
            return _host_memory()
        return super().memory()

    def sample(self) -> dict[str, float | None] | None:
        """Ask the driver; torch numbers the card in use among those that CUDA_VISIBLE_DEVICES names."""
        with nvml.nvml_session():
            index = dict(enumerate(nvml.visible())).get(self._torch().current_device())
            found = next((one for one in nvml.sample() if one.index == index), None)
        if found is None:
            return None
        figures = (found.utilization, found.memory_used_mb, found.power_w, found.temperature_c)
        return dict(zip(FIGURES, figures, strict=True))


class Xpu(Device):
    """Intel's: a card within the processor does not tell what is free."""

    def memory(self) -> tuple[int, int]:
        """As of the others, else what this process has not reserved."""
        with suppress(RuntimeError):
            return super().memory()
        module = self._torch()
        total = int(module.get_device_properties(module.current_device()).total_memory)
        return total - (self.held("memory_reserved") or 0), total


class _OfTheHost(Device):
    """One that there is once, in the host's memory: nothing lies elsewhere."""

    def cards(self) -> list[Card]:
        """Return the one card of every Mac with Apple's processor, and none of a CPU; asks no torch."""
        return [(self.title, _host_memory()[1], (0, 0))] if self.is_gpu else []

    def card_name(self) -> str:
        """Return the one name that there is."""
        return self.title if self.is_gpu else self.name

    def place(self, process: int = 0) -> str | int:  # noqa: ARG002
        """Return the only place there is."""
        return self.type

    def spilled(self) -> int:
        """Return 0: its memory is the host's."""
        return 0

    def rng_states(self) -> list[torch.Tensor]:
        """Return the state of the one random generator."""
        return [self._torch().get_rng_state()]

    def set_rng_states(self, states: Sequence[torch.Tensor]) -> None:
        """Set the one random generator."""
        for state in states[:1]:
            self._torch().set_rng_state(state)


class Mps(_OfTheHost):
    """Apple's."""

    def is_available(self) -> bool:
        """Whether torch, as installed, can compute on it now. Loads torch."""
        import torch

        return torch.backends.mps.is_available()

    def memory(self) -> tuple[int, int]:
        """Return what Metal recommends to take at most, and what of it neither this process nor others hold."""
        total = int(self._torch().recommended_max_memory())
        return max(0, min(total - (self.held("memory_reserved") or 0), _host_memory()[0])), total


class Cpu(_OfTheHost):
    """The processor: it is everywhere, and does each thing at once."""

    def lacks(self, machine: Machine) -> Lack | None:  # noqa: ARG002
        """Return None: there is always one."""
        return None

    def is_available(self) -> bool:
        """Return True."""
        return True

    def memory(self) -> tuple[int, int]:
        """Return (bytes that are free, bytes in all) of the host's memory."""
        return _host_memory()

    def held(self, count: Count) -> int | None:
        """Return this process's resident memory; None for a peak: nothing counts it."""
        return None if "max" in count else int(psutil.Process().memory_info().rss)

    def empty_cache(self) -> None:
        """Do nothing: torch keeps nothing."""

    def event(self) -> Any:
        """Return a mark on the clock."""
        return _Mark()

    def _torch(self) -> Any:
        """Return torch itself, whose random generator is the CPU's."""
        import torch

        return torch


class _Mark:
    """What torch calls an event, of a device that does each thing at once."""

    def record(self) -> None:
        """Mark now."""
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        """Do nothing: all before it is done."""

    def elapsed_time(self, end: _Mark) -> float:
        """Return the milliseconds from this mark to another."""
        return 1000 * (end.at - self.at)


def _host_memory() -> tuple[int, int]:
    memory = psutil.virtual_memory()
    return int(memory.available), int(memory.total)


_LOOK = "look at the driver: {} must name the card; or use --device cpu"
_ENTRIES = (
    Cpu("cpu", "cpu", "CPU", systems=("Linux", "Windows", "Darwin"), pins_memory=False, has_triton=False),
    Cuda(
        "cuda",
        "cuda",
        "NVIDIA GPU",
        install="pip install torch --index-url https://download.pytorch.org/whl/cu130 --force-reinstall",
        bf16_since=(8, 0),
        tf32_since=(8, 0),
        grows_blocks=True,
        attention=("flash_attention_3", "flash_attention_2", "varlen", *PLAIN_ATTENTION),
        bitsandbytes="libbitsandbytes_cuda*",
    ),
    Device(
        "rocm",
        "cuda",
        "AMD GPU",
        install="install torch's wheel for ROCm: https://pytorch.org/get-started/locally has the command",
        driver=_LOOK.format("rocminfo"),
        attention=("flash_attention_2", *PLAIN_ATTENTION),
        bitsandbytes="libbitsandbytes_rocm*",
        figures=tuple(FIGURES),  # torch asks amdsmi, where that is installed
    ),
    Xpu(
        "xpu",
        "xpu",
        "Intel GPU",
        install="pip install torch --index-url https://download.pytorch.org/whl/xpu --force-reinstall",
        driver=_LOOK.format("sycl-ls"),
        bitsandbytes="backends/xpu",
        figures=("memory_mb", "temperature_c"),  # utilization and power would take 0.1 s each
    ),
    Mps(
        "mps",
        "mps",
        "Apple GPU",
        systems=("Darwin",),
        install="Metal needs a Mac with Apple's own processor and its Python, not that for Intel's",
        automatic=False,
        pins_memory=False,
        has_triton=False,
        bitsandbytes="backends/mps",
        small_optimizers=False,
        counters={"memory_allocated": "current_allocated_memory", "memory_reserved": "driver_allocated_memory"},
    ),
)
DEVICES = {device.name: device for device in _ENTRIES}
"""By name; `auto` takes the first GPU of them that a machine has."""


def device_of(place: torch.device) -> Device:
    """Return the device that a tensor's or a trainer's `torch.device` is."""
    import torch

    name = "rocm" if place.type == "cuda" and torch.version.hip else place.type
    return DEVICES[name]


def present() -> list[Device]:
    """Return the GPUs that torch, as installed, can compute on now. Loads torch."""
    import torch

    return [device for device in map(device_of, map(torch.device, ("cuda", "xpu", "mps"))) if device.is_available()]
