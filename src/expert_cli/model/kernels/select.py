"""What the machine is made to do, and why: asked x available -> one plan, a reason a line."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from expert_cli._compat import apply_liger, attention_name, expandable_segments
from expert_cli.config.run_config import Layout, ModelConfig
from expert_cli.hardware.machine import Machine, has_package
from expert_cli.manifest.keys.compute import ComputeConfig
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.attention_backends import attention_backend, choose_attention
from expert_cli.model.kernels.chunked_loss import can_skip_logits
from expert_cli.model.kernels.dequantize import copy_bytes, dequantize_linears
from expert_cli.model.kernels.fused_lora import fuse
from expert_cli.model.loading.quantize import DTYPES

SPARE = 3
"""A copy of the weights is made where this many times its size is free: activations need room too."""


@dataclass(frozen=True)
class Kernel:
    """One choice: what is used ("off" for nothing) and the reason."""

    used: str
    reason: str


@dataclass(frozen=True)
class KernelPlan:
    """Every choice that the step rests on. lines: the same in words, in the order in which they are worth reading.

    dequantized: 4-bit weights are dequantized once. full_logits: the model makes its logits itself. fixed_shape: every
    batch has the same number of tokens.
    """

    attention: str
    layout: Layout
    dequantized: bool
    full_logits: bool
    fused: bool
    fixed_shape: bool
    lines: Mapping[str, Kernel]

    def with_line(self, name: str, used: str, reason: str, **changes: Any) -> KernelPlan:
        """Return the plan with one choice made anew."""
        return replace(self, lines={**self.lines, name: Kernel(used, reason)}, **changes)


def kernel_plan(compute: ComputeConfig, model: ModelConfig, machine: Machine) -> KernelPlan:
    """Return the plan before the model is there; `apply_kernels` adds what only the model tells."""
    on_gpu = compute.device == "cuda"
    backend, why = choose_attention(compute.attention, compute.device, compute.dtype, machine)
    fused = on_gpu and compute.fused_kernels != "off" and has_package("liger_kernel")
    lines = {
        "device": Kernel(compute.device, machine.gpus[0].name if on_gpu else f"{machine.cores} CPU cores"),
        "weights": Kernel(
            model.quantization, "NF4, double quantization" if model.quantization == "int4" else "as the manifest says"
        ),
        "dtype": Kernel(compute.dtype, _dtype_reason(compute, machine)),
        "tf32": Kernel("on" if compute.tf32 else "off", _tf32_reason(compute)),
        "attention": Kernel(backend.name, why),
        "loss": Kernel("chunked", "head and cross-entropy in chunks, only where a token is trained"),
        "compile": Kernel(
            compute.compile_backend if compute.torch_compile else "off",
            f"every decoder layer, mode {compute.compile_mode}" if compute.torch_compile else "not asked for",
        ),
        "fused": Kernel("liger" if fused else "off", _fused_reason(compute, fused=fused)),
    }
    return KernelPlan(backend.name, backend.layout, False, False, fused, compute.torch_compile, lines)


def apply_kernels(plan: KernelPlan, model: Any, compute: ComputeConfig) -> KernelPlan:
    """Make the plan's choices real on a base model without adapter and return the plan with what was possible.

    Unpacks 4-bit weights where there is room, fuses kernels, sets the attention back end.
    """
    plan = _with_dequantized(plan, copy_bytes(model), compute, free_bytes(compute.device))
    if plan.dequantized:
        dequantize_linears(model, DTYPES[compute.dtype])
    if plan.fused:
        apply_liger(model)
        plan = with_liger(plan, model)
    settled = _with_attention(plan, model)
    if settled.attention == plan.attention:
        attention.use(model, plan.attention)
    return settled


def predict_kernels(
    plan: KernelPlan, model: Any, compute: ComputeConfig, *, dequantized_bytes: int, free: int
) -> KernelPlan:
    """Return the plan as `apply_kernels` and `apply_adapter_kernels` would leave it, for a model on the meta device.

    dequantized_bytes: what dequantized 4-bit weights would take (0: none are quantized); free: bytes of the device beside
    the base model.
    """
    plan = _with_dequantized(plan, dequantized_bytes, compute, free)
    return apply_adapter_kernels(_with_attention(plan, model.get_base_model()), model, compute)


def apply_adapter_kernels(plan: KernelPlan, model: Any, compute: ComputeConfig) -> KernelPlan:
    """Return the plan with what the model with its adapter can take: LoRA layers are fused, the loss's way is chosen."""
    if compute.fuses_lora and (count := fuse(model)):
        plan = plan.with_line("fused", "lora", f"{count} LoRA products are added to their layers' outputs in place")
    reason = can_skip_logits(model)
    return plan.with_line("loss", "full logits", reason, full_logits=True) if reason else plan


def set_torch_flags(compute: ComputeConfig) -> None:
    """Set torch's process-wide switches: TF32 for fp32 matrix products and cuDNN, and an allocator that can grow its blocks."""
    if compute.device == "cuda":
        if sys.platform == "linux":  # elsewhere it does not exist; fixed blocks fragment when batches differ in length
            expandable_segments()
        torch.backends.cuda.matmul.allow_tf32 = compute.tf32
        torch.backends.cudnn.allow_tf32 = compute.tf32


def _dtype_reason(compute: ComputeConfig, machine: Machine) -> str:
    native = machine.gpus[0].has_bf16 if compute.device == "cuda" else machine.cpu_bf16
    return {
        "bf16": "native here" if native else "asked for; this machine emulates it",
        "fp16": "this GPU has no bfloat16, or fp16 was asked for",
        "fp32": "asked for, or the best this machine does without bfloat16",
    }[compute.dtype]


def _tf32_reason(compute: ComputeConfig) -> str:
    if compute.tf32:
        return "fp32 matrix products use it; bf16 ones do not need it"
    return "not asked for, or older than Ampere" if compute.device == "cuda" else "only NVIDIA GPUs have it"


def _fused_reason(compute: ComputeConfig, *, fused: bool) -> str:
    if fused:
        return "Liger's norms, rotary embeddings and activations"
    if compute.fused_kernels == "off":
        return "switched off"
    if compute.device == "cpu":
        return "only plain LoRA in bf16 or fp16, not compiled, is fused on a CPU"
    return 'liger-kernel is not installed: pip install "expert-cli[kernels]"'


def _with_attention(plan: KernelPlan, model: Any) -> KernelPlan:
    """Return the plan with the attention that this model can take."""
    reason = attention.unsupported_reason(model) if attention_backend(plan.attention).function else ""
    if not reason:
        return plan
    own = attention_name(model.config)
    return plan.with_line("attention", own, f"{reason}; a mask keeps documents apart", attention=own, layout="padded")


def with_liger(plan: KernelPlan, model: Any) -> KernelPlan:
    """Return the plan with the kernels that Liger really put on the model: it leaves one that it does not know as it is."""
    forwards = [vars(module).get("forward") for module in model.modules()]
    count = sum(str(getattr(forward, "__module__", "")).startswith("liger_kernel") for forward in forwards)
    if not count:
        return plan.with_line("fused", "off", f"Liger has no kernels for {model.config.model_type}", fused=False)
    return plan.with_line(
        "fused", "liger", f"Liger's kernels in {count} norms and activations, and its rotary embeddings"
    )


def _with_dequantized(plan: KernelPlan, needed: int, compute: ComputeConfig, free: int) -> KernelPlan:
    """Return the plan with whether 4-bit weights are unpacked once: where that was asked for or there is room."""
    if not needed:
        return plan
    asked = compute.dequantized_copy
    room = f"{needed / 2**20:,.0f} MB, {free / 2**20:,.0f} MB are free"
    if asked == "never" or (asked == "auto" and free < SPARE * needed):
        why = "as asked" if asked == "never" else f"an unpacked copy takes {room}"
        return plan.with_line("copy", "off", f"{why}: weights are unpacked at every step")
    return plan.with_line(
        "copy", compute.dtype, f"NF4 unpacked once instead of at every step ({room})", dequantized=True
    )


def free_bytes(device: str) -> int:
    """Return the bytes of memory that are free for this process on a device."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    import psutil

    return int(psutil.virtual_memory().available)
