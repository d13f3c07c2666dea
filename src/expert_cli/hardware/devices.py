"""The devices of training, the CPU and torch's cuda; only this module calls torch's functions for them.

To torch, AMD's cards are cuda, too. torch takes seconds to import, so only the functions that need it do.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import psutil

if TYPE_CHECKING:
    import torch


Count = Literal["memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"]
"""Bytes of this process, in torch's words: allocated by tensors, or reserved; now, or at the peak."""
_OUT_OF_MEMORY = ("out of memory", "_STATUS_ALLOC_FAILED", "DefaultCPUAllocator")
"""Messages of torch.OutOfMemoryError, of the driver through AcceleratorError or Triton, of cuBLAS, cuDNN and others, which
allocate themselves, and of a CPU. accelerate's `should_reduce_batch_size` lacks cuBLAS and AcceleratorError.
"""


@dataclass(frozen=True)
class Device:
    """A device by its name in torch, as in `--device`, manifests and run.json."""

    name: Literal["cpu", "cuda"]

    @property
    def is_gpu(self) -> bool:
        """Whether it is not the CPU: it has memory and a clock of its own, and copies from pinned memory do not wait."""
        return self.name != "cpu"

    def place(self, process: int = 0) -> str | int:
        """Return a process's device for transformers' `device_map`, by its rank on this machine."""
        return process % int(_cuda().device_count()) if self.is_gpu else self.name

    def card_name(self) -> str:
        """Return the name of the card in use."""
        return str(_cuda().get_device_name()) if self.is_gpu else self.name

    def memory(self) -> tuple[int, int]:
        """Return (free bytes, total bytes) of the card in use, or of the host."""
        if not self.is_gpu:
            host = psutil.virtual_memory()
            return int(host.available), int(host.total)
        free, total = _cuda().mem_get_info()
        return int(free), int(total)

    def held(self, count: Count) -> int | None:
        """Return a count of bytes, on a CPU this process's resident memory; None for a peak there, which is not counted."""
        if self.is_gpu:
            return int(getattr(_cuda(), count)())
        return None if "max" in count else int(psutil.Process().memory_info().rss)

    def reset_peak(self) -> None:
        """Reset both peaks, where they are counted."""
        if self.is_gpu:
            _cuda().reset_peak_memory_stats()

    def spilled(self) -> int:
        """Return the bytes of its memory in host memory: Windows' driver silently moves them there."""
        return max(0, (self.held("memory_reserved") or 0) - self.memory()[1]) if self.is_gpu else 0

    def set_flags(self, *, tf32: bool) -> None:
        """Set torch's global switches: TF32 for fp32 matrix products and cuDNN."""
        if not self.is_gpu:
            return
        import torch

        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32

    def empty_cache(self) -> None:
        """Release memory that torch keeps unused."""
        if self.is_gpu:
            _cuda().empty_cache()

    def event(self) -> Any:
        """Return an event in the device's queue, which measures milliseconds to another one."""
        return _cuda().Event(enable_timing=True) if self.is_gpu else _Mark()


def _cuda() -> Any:
    import torch

    return torch.cuda


class _Mark:
    """torch's event for a device that works synchronously."""

    def record(self) -> None:
        """Record the time."""
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        """Do nothing: all work is done."""

    def elapsed_time(self, end: _Mark) -> float:
        """Return the milliseconds to another event."""
        return 1000 * (end.at - self.at)


CUDA = Device("cuda")
DEVICES = {"cpu": Device("cpu"), "cuda": CUDA}


def device_of(place: torch.device) -> Device:
    """Return the device of a tensor's or trainer's `torch.device`."""
    return DEVICES[place.type]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch or one of its libraries ran out of memory."""
    import torch

    told = isinstance(error, RuntimeError) and any(sign in str(error) for sign in _OUT_OF_MEMORY)
    return told or isinstance(error, torch.OutOfMemoryError)
