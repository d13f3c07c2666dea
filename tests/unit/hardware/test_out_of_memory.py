"""Too little memory is known by whatever torch and its libraries say of it."""

from __future__ import annotations

import pytest
import torch

from expert_cli.hardware.devices import is_out_of_memory

MEMORY = {
    "torch": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "driver": torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be reported later", 2)
    if hasattr(torch, "AcceleratorError")
    else RuntimeError("CUDA error: out of memory"),
    "cublas": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "triton": RuntimeError("Triton Error [CUDA]: out of memory"),
}
OTHER = {
    "shapes": RuntimeError("mat1 and mat2 shapes cannot be multiplied (48x64 and 7x1)"),
    "assertion": RuntimeError("CUDA error: device-side assert triggered"),
    "a file": FileNotFoundError("out of memory.txt"),
}


@pytest.mark.parametrize("error", MEMORY.values(), ids=MEMORY.keys())
def test_memory(error: Exception) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize("error", OTHER.values(), ids=OTHER.keys())
def test_another_error(error: Exception) -> None:
    assert not is_out_of_memory(error)


def test_what_a_cpu_really_raises() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
