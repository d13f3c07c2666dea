"""What an error that stands for too little memory looks like; libraries do not agree on it."""

from __future__ import annotations

_SIGNS = ("out of memory", "_STATUS_ALLOC_FAILED", "DefaultCPUAllocator")
"""torch.OutOfMemoryError of CUDA and ROCm, the driver by way of torch.AcceleratorError or Triton; cuBLAS, cuDNN and
their like, which allocate for themselves; a CPU. accelerate's `should_reduce_batch_size` knows neither cuBLAS nor
AcceleratorError, and takes an operation that cuDNN does not have for a lack of memory."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch or one of its libraries could not get the memory that it asked for."""
    import torch

    told = isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)
    return told or isinstance(error, torch.OutOfMemoryError)
