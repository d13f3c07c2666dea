"""The devices for training: the CPU and torch's cuda. Only this module calls torch's functions for them.

In torch, AMD GPUs are cuda devices, too. torch takes seconds to import, so only the functions that need it import it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import psutil

if TYPE_CHECKING:
    import torch


Count = Literal["memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"]
"""Bytes of this process, by torch's names: allocated by tensors, or reserved; the current value, or the peak."""
_OUT_OF_MEMORY = ("out of memory", "_STATUS_ALLOC_FAILED", "DefaultCPUAllocator")
"""Messages of torch.OutOfMemoryError, of the driver through AcceleratorError or Triton, of cuBLAS, cuDNN and others, which
allocate memory themselves, and of a CPU. accelerate's `should_reduce_batch_size` lacks cuBLAS and AcceleratorError.
"""


@dataclass(frozen=True)
class Device:
    """A device by its name in torch, as in `--device`, manifests and run.json."""

    name: Literal["cpu", "cuda"]

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU: it has its own memory and timer, and copies from pinned memory are asynchronous."""
        return self.name != "cpu"

    def place(self, process: int = 0) -> str | int:
        """Return a process's device for transformers' `device_map`, by its rank on this machine."""
        return process % int(_cuda().device_count()) if self.is_gpu else self.name

    def card_name(self) -> str:
        """Return the name of the GPU in use, or "cpu"."""
        return str(_cuda().get_device_name()) if self.is_gpu else self.name

    def memory(self) -> tuple[int, int]:
        """Return (free bytes, total bytes) of the GPU in use, or of the host."""
        if not self.is_gpu:
            host = psutil.virtual_memory()
            return int(host.available), int(host.total)
        free, total = _cuda().mem_get_info()
        return int(free), int(total)

    def held(self, count: Count) -> int | None:
        """Return a count of bytes. On a CPU: the resident memory of this process; None for a peak, which is not counted."""
        if self.is_gpu:
            return int(getattr(_cuda(), count)())
        return None if "max" in count else int(psutil.Process().memory_info().rss)

    def reset_peak(self) -> None:
        """Reset both peaks; on a CPU they are not counted."""
        if self.is_gpu:
            _cuda().reset_peak_memory_stats()

    def spilled(self) -> int:
        """Return how many bytes of GPU memory are in host memory, to which the Windows driver silently moves them."""
        return max(0, (self.held("memory_reserved") or 0) - self.memory()[1]) if self.is_gpu else 0

    def set_flags(self, *, tf32: bool) -> None:
        """Set torch's global switches: TF32 for fp32 matrix products and cuDNN."""
        if not self.is_gpu:
            return
        import torch

        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32

    def empty_cache(self) -> None:
        """Release cached GPU memory that torch does not use."""
        if self.is_gpu:
            _cuda().empty_cache()

    def event(self) -> Any:
        """Return a timing event for the device's queue; two events measure the milliseconds between them."""
        return _cuda().Event(enable_timing=True) if self.is_gpu else _Mark()


def _cuda() -> Any:
    import torch

    return torch.cuda


class _Mark:
    """The counterpart of torch.cuda.Event for a device that works synchronously."""

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
    """Return whether an error means that torch or one of its libraries ran out of memory."""
    import torch

    told = isinstance(error, RuntimeError) and any(sign in str(error) for sign in _OUT_OF_MEMORY)
    return told or isinstance(error, torch.OutOfMemoryError)
