"""What the machine is made to do, and why: one line a choice."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from expert_cli.machine import Machine
from expert_cli.runconfig import ComputeConfig, ModelConfig


@dataclass(frozen=True)
class Kernel:
    """One choice: what is used ("off" for nothing) and the reason."""

    used: str
    reason: str


def kernel_plan(compute: ComputeConfig, model: ModelConfig, machine: Machine) -> dict[str, Kernel]:
    """Return the choices by name, in the order in which they are worth reading."""
    on_gpu = compute.device == "cuda"
    where = machine.gpus[0].name if on_gpu else f"{machine.cores} CPU cores"
    native = machine.gpus[0].has_bf16 if on_gpu else machine.cpu_bf16
    dtype_reason = {
        "bf16": "native here" if native else "asked for; this machine emulates it",
        "fp16": "this GPU has no bfloat16, or fp16 was asked for",
        "fp32": "asked for, or the best this machine does without bfloat16",
    }[compute.dtype]
    if compute.tf32:
        tf32_reason = "fp32 matrix products use it; bf16 ones do not need it"
    else:
        tf32_reason = "not asked for, or older than Ampere" if on_gpu else "only NVIDIA GPUs have it"
    four_bit = "NF4, double quantisation" if model.quantization == "int4" else "as the manifest says"
    return {
        "device": Kernel(compute.device, where),
        "weights": Kernel(model.quantization, four_bit),
        "dtype": Kernel(compute.dtype, dtype_reason),
        "tf32": Kernel("on" if compute.tf32 else "off", tf32_reason),
        "attention": Kernel(
            compute.attention, "PyTorch's fused kernels" if compute.attention == "sdpa" else "as asked"
        ),
        "compile": Kernel(
            compute.compile_backend if compute.torch_compile else "off",
            f"every decoder layer, mode {compute.compile_mode}" if compute.torch_compile else "not asked for",
        ),
    }


def switch_on(compute: ComputeConfig) -> None:
    """Set torch's process-wide switches: TF32 for fp32 matrix products and cuDNN."""
    if compute.device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = compute.tf32
        torch.backends.cudnn.allow_tf32 = compute.tf32
