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
from expert_cli.hardware.device import FIGURES, PLAIN_ATTENTION, Card, Device, Lack

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
        return total - self.reserved(), total


class Mps(Device):
    """Apple's: one card, which shares the host's memory; no peak is counted."""

    def is_available(self) -> bool:
        """Whether torch, as installed, can compute on it now. Loads torch."""
        import torch

        return torch.backends.mps.is_available()

    def cards(self) -> list[Card]:
        """Return the one card of every Mac with Apple's processor; asks no torch."""
        return [("Apple GPU", _host_memory()[1], (0, 0))]

    def place(self, process: int = 0) -> str | int:  # noqa: ARG002
        """Return the only place there is."""
        return "mps"

    def card_name(self) -> str:
        """Return the one name that there is."""
        return self.cards()[0][0]

    def memory(self) -> tuple[int, int]:
        """Return what Metal recommends to take at most, and what of it neither this process nor others hold."""
        module = self._torch()
        total = int(module.recommended_max_memory())
        return max(0, min(total - self.reserved(), _host_memory()[0])), total

    def allocated(self) -> int:
        """Return the bytes that this process's tensors take."""
        return int(self._torch().current_allocated_memory())

    def peak(self) -> int | None:
        """Return None: nothing counts it."""
        return None

    def reserved(self) -> int:
        """Return the bytes that Metal holds for this process."""
        return int(self._torch().driver_allocated_memory())

    def peak_reserved(self) -> int | None:
        """Return None: nothing counts it."""
        return None

    def reset_peak(self) -> None:
        """Do nothing: nothing counts it."""

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


class Cpu(Device):
    """The processor: it is everywhere, its memory is the process's."""

    def lacks(self, machine: Machine) -> Lack | None:  # noqa: ARG002
        """Return None: there is always one."""
        return None

    def is_available(self) -> bool:
        """Return True."""
        return True

    def cards(self) -> list[Card]:
        """Return no card."""
        return []

    def place(self, process: int = 0) -> str | int:  # noqa: ARG002
        """Return the only place there is."""
        return "cpu"

    def card_name(self) -> str:
        """Return the device's name."""
        return self.name

    def memory(self) -> tuple[int, int]:
        """Return (bytes that are free, bytes in all) of the host's memory."""
        return _host_memory()

    def allocated(self) -> int:
        """Return this process's resident memory."""
        return int(psutil.Process().memory_info().rss)

    def peak(self) -> int | None:
        """Return None: nothing counts it."""
        return None

    def reserved(self) -> int:
        """Return this process's resident memory."""
        return self.allocated()

    def peak_reserved(self) -> int | None:
        """Return None: nothing counts it."""
        return None

    def reset_peak(self) -> None:
        """Do nothing: nothing counts it."""

    def spilled(self) -> int:
        """Return 0: its memory is the host's."""
        return 0

    def empty_cache(self) -> None:
        """Do nothing: torch keeps nothing."""

    def synchronize(self) -> None:
        """Do nothing: what was begun is done."""

    def event(self) -> Any:
        """Return a mark on the clock."""
        return _Mark()

    def rng_states(self) -> list[torch.Tensor]:
        """Return the state of the one random generator."""
        import torch

        return [torch.get_rng_state()]

    def set_rng_states(self, states: Sequence[torch.Tensor]) -> None:
        """Set the one random generator."""
        import torch

        for state in states[:1]:
            torch.set_rng_state(state)


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
        # torch asks amdsmi, where that is installed
        figures={
            "utilization": ("utilization", 1.0),
            "memory_mb": ("device_memory_used", 1e-6),
            "power_w": ("power_draw", 1.0),
            "temperature_c": ("temperature", 1.0),
        },
    ),
    Xpu(
        "xpu",
        "xpu",
        "Intel GPU",
        install="pip install torch --index-url https://download.pytorch.org/whl/xpu --force-reinstall",
        driver=_LOOK.format("sycl-ls"),
        bitsandbytes="backends/xpu",
        # utilization and power would take 0.1 s each
        figures={"memory_mb": ("device_memory_used", 1e-6), "temperature_c": ("temperature", 1.0)},
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
