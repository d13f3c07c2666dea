"""The devices that a step can be computed on, the CPU and torch's cuda: here alone torch's functions of them are called.

To torch, AMD's cards are cuda, too. It takes seconds to load, so the functions that need it load it, not this module.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import psutil

if TYPE_CHECKING:
    import torch


Count = Literal["memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"]
"""Bytes of this process, in torch's words: what its tensors take, and what it holds for them; of both now, and the most."""
_OUT_OF_MEMORY = ("out of memory", "_STATUS_ALLOC_FAILED", "DefaultCPUAllocator")
"""torch.OutOfMemoryError of CUDA, the driver by way of torch.AcceleratorError or Triton; cuBLAS, cuDNN and their like, which
allocate for themselves; a CPU. accelerate's `should_reduce_batch_size` knows neither cuBLAS nor AcceleratorError."""


@dataclass(frozen=True)
class Device:
    """A device, by its name in torch, as `--device`, manifests and run.json have it."""

    name: Literal["cpu", "cuda"]

    @property
    def is_gpu(self) -> bool:
        """Whether it is another thing than the CPU, with memory and time of its own: copies from pinned memory do not wait."""
        return self.name != "cpu"

    def place(self, process: int = 0) -> str | int:
        """Return where the model of a process, by its number on this machine, goes, as transformers' `device_map` takes it."""
        return process % int(_cuda().device_count()) if self.is_gpu else self.name

    def card_name(self) -> str:
        """Return the name of the card in use."""
        return str(_cuda().get_device_name()) if self.is_gpu else self.name

    def memory(self) -> tuple[int, int]:
        """Return (bytes that are free, bytes in all) of the card in use, or of the host."""
        if not self.is_gpu:
            host = psutil.virtual_memory()
            return int(host.available), int(host.total)
        free, total = _cuda().mem_get_info()
        return int(free), int(total)

    def held(self, count: Count) -> int | None:
        """Return a count of bytes, on a CPU this process's resident memory; None for a peak there: nothing counts it."""
        if self.is_gpu:
            return int(getattr(_cuda(), count)())
        return None if "max" in count else int(psutil.Process().memory_info().rss)

    def reset_peak(self) -> None:
        """Begin to count both peaks anew, where they are counted."""
        if self.is_gpu:
            _cuda().reset_peak_memory_stats()

    def spilled(self) -> int:
        """Return the bytes of its memory that lie in the host's: Windows' driver moves them there without a word."""
        return max(0, (self.held("memory_reserved") or 0) - self.memory()[1]) if self.is_gpu else 0

    def set_flags(self, *, tf32: bool) -> None:
        """Set torch's process-wide switches: TF32 for fp32 matrix products and cuDNN."""
        if not self.is_gpu:
            return
        import torch

        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32

    def empty_cache(self) -> None:
        """Give back what torch keeps and nothing uses."""
        if self.is_gpu:
            _cuda().empty_cache()

    def event(self) -> Any:
        """Return a mark in what the device has to do, which tells the milliseconds to another one."""
        return _cuda().Event(enable_timing=True) if self.is_gpu else _Mark()


def _cuda() -> Any:
    import torch

    return torch.cuda


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


CUDA = Device("cuda")
DEVICES = {"cpu": Device("cpu"), "cuda": CUDA}


def device_of(place: torch.device) -> Device:
    """Return the device that a tensor's or a trainer's `torch.device` is."""
    return DEVICES[place.type]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch or one of its libraries could not get the memory that it asked for."""
    import torch

    told = isinstance(error, RuntimeError) and any(sign in str(error) for sign in _OUT_OF_MEMORY)
    return told or isinstance(error, torch.OutOfMemoryError)
