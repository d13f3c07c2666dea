"""Decides how a step is computed from settings, machine and model: one plan, with a reason for each choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from expert_cli._compat import apply_liger, attention_name, liger_knows
from expert_cli.config.compute_defaults import why_eager
from expert_cli.config.run_config import Layout, ModelConfig, RunConfig
from expert_cli.hardware.devices import DEVICES
from expert_cli.hardware.machine import Machine, has_package
from expert_cli.manifest.keys.compute import ComputeConfig
from expert_cli.model.flops import attention_layers
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.attention_backends import attention_backend, choose_attention
from expert_cli.model.kernels.chunked_loss import can_skip_logits
from expert_cli.model.kernels.dequantize import dequantize_linears
from expert_cli.model.kernels.lora import fuse, patch_dora
from expert_cli.model.layers import recurrent_layers
from expert_cli.model.loading.quantize import DTYPES
from expert_cli.model.vocabulary_rows import spare_copies

SPARE = 3
"""Weights are dequantized if this many times the copy's size is free: activations need room, too."""
LIGER = "liger"


@dataclass(frozen=True)
class Kernel:
    """One choice: what is used ("off" for nothing) and the reason."""

    used: str
    reason: str


@dataclass(frozen=True)
class KernelPlan:
    """All choices for the step. lines: the same in words, the most important first.

    dequantized: 4-bit weights are dequantized once. full_logits: the model computes its logits itself. fused: Liger's kernels
    compute norms and activations, and save less for the backward pass. fixed_shape: all batches have equal numbers of tokens.
    """

    attention: str
    layout: Layout
    dequantized: bool
    full_logits: bool
    fused: bool
    fixed_shape: bool
    lines: Mapping[str, Kernel]

    def with_line(self, name: str, used: str, reason: str, **changes: Any) -> KernelPlan:
        """Return the plan with one choice replaced."""
        return replace(self, lines={**self.lines, name: Kernel(used, reason)}, **changes)

    def summary(self) -> str:
        """Return the choices in one line."""
        used = {name: kernel.used for name, kernel in self.lines.items() if kernel.used not in ("off", "none")}
        return ", ".join(f"{name} {what}" for name, what in used.items() if name != "capture")

    def as_json(self) -> dict[str, dict[str, str]]:
        """Return the lines as in run.json and reports."""
        return {name: asdict(kernel) for name, kernel in self.lines.items()}


def kernel_plan(
    compute: ComputeConfig, model: ModelConfig, machine: Machine, base: Any, *, unpacked: int, free: int
) -> KernelPlan:
    """Return the plan for a base model, which may be on the meta device; `apply_kernels` applies it.

    unpacked: bytes of dequantized 4-bit weights (0: none are quantized); free: bytes on the device beside the base model.
    """
    used, layout, why = _attention(compute, machine, base)
    fused = _fused(compute, base.config.model_type)
    quantized = "NF4, double quantization" if model.quantization == "int4" else "as the manifest says"
    lines = {
        "device": Kernel(compute.device, machine.words_of(compute.device)),
        "weights": Kernel(model.quantization, quantized),
        "dtype": Kernel(compute.dtype, "as requested, or the best one of this machine"),
        "tf32": Kernel("on" if compute.tf32 else "off", "for fp32 matrix products; bf16 does not need it"),
        "attention": Kernel(used, why),
        "loss": Kernel("chunked", "head and cross-entropy in chunks, only where a token is trained"),
        "compile": Kernel("off", "not requested"),
        "fused": fused,
    }
    if compute.torch_compile:
        lines["compile"] = Kernel(compute.compile_backend, f"every decoder layer, mode {compute.compile_mode}")
    if unpacked:
        lines["copy"] = _copy(compute, unpacked, free)
    if layers := recurrent_layers(base):
        state = f"{len(layers)} of the layers have a state that no mask can separate; rows are padded on the right"
        lines["recurrence"] = Kernel("one document in each row", state)
    name = attention_name(base.config) if used == "off" else used
    is_copied = unpacked > 0 and lines["copy"].used != "off"
    return KernelPlan(name, layout, is_copied, False, fused.used == LIGER, compute.torch_compile, lines)


def apply_kernels(plan: KernelPlan, base: Any, compute: ComputeConfig) -> None:
    """Apply the plan's choices to a base model without adapter."""
    if plan.dequantized:
        on_trial = compute.device != "cpu" and (compute.dequantized_copy, compute.on_oom) == ("auto", "fit")
        dequantize_linears(base, DTYPES[compute.dtype], keep_packed=on_trial)
    if plan.fused:
        apply_liger(base)
    if plan.attention != attention_name(base.config):
        attention.use(base, plan.attention)


def apply_adapter_kernels(plan: KernelPlan, model: Any, compute: ComputeConfig) -> KernelPlan:
    """Fuse the LoRA layers of a model, choose the kind of loss, and return the plan with both."""
    spare_copies(model)
    is_plain = compute.fused_kernels == "off"
    if not (is_plain or compute.fsdp):  # fsdp: only PEFT's own forward passes gather sharded weights
        patch_dora(model)
    if compute.fuses_lora and (count := fuse(model)):
        plan = plan.with_line("lora", "fused", f"{count} products are computed with their layers")
    reason = "fused kernels are switched off" if is_plain else can_skip_logits(model)
    return plan.with_line("loss", "full logits", reason, full_logits=True) if reason else plan


def with_capture(plan: KernelPlan, run: RunConfig) -> KernelPlan:
    """Return the plan with the choice to record the step as a CUDA graph, or the reason not to."""
    compute = run.compute
    reasons = {
        "use_cuda_graphs: false": not compute.capture,
        "padded rows have no fixed shape": plan.layout != "packed",
        "fp16 looks for overflows in every step": compute.dtype == "fp16",
        "LLM.int8 looks for outliers in every layer": run.model.quantization == "int8",
    }
    why = why_eager(compute.device, packs=run.loader.packing != "off", fsdp=compute.fsdp)
    why = why or next((reason for reason, holds in reasons.items() if holds), "")
    why = why or attention_backend(plan.attention).captures
    used = ("off", why) if why else ("cuda graph", "packs have one shape")
    return plan.with_line("capture", *used)


def free_bytes(device: str) -> int:
    """Return the bytes of memory that are free for this process on a device."""
    return DEVICES[device].memory()[0]


def _fused(compute: ComputeConfig, model_type: str) -> Kernel:
    """Return the fused kernels for a model's norms, rotary embeddings and activations."""
    if compute.fused_kernels == "off":
        return Kernel("off", "switched off")
    if compute.device == "cpu":
        return Kernel("off", "Liger has no kernels for a CPU")
    if not has_package("liger_kernel"):
        return Kernel("off", 'liger-kernel is not installed (pip install "expert-cli[kernels]")')
    if not liger_knows(model_type):  # it would silently leave the model unchanged
        return Kernel("off", f"Liger has no kernels for {model_type}")
    return Kernel(LIGER, "Liger's norms, rotary embeddings and activations")


def _attention(compute: ComputeConfig, machine: Machine, base: Any) -> tuple[str, Layout, str]:
    """Return the best back end for a model ("off" without attention layers), its layout, and the reason."""
    own = attention_name(base.config)
    if not attention_layers(base.config.get_text_config()):
        return "off", "padded", "no layer has attention"
    if recurrent_layers(base):
        return own, "padded", "one document in each row"
    backend, why = choose_attention(compute.attention, compute.device, compute.dtype, machine, base)
    # if no kernel separates documents: the model's own attention, which is not SDPA in every architecture
    return own if backend.name == "sdpa" else backend.name, backend.layout, why


def _copy(compute: ComputeConfig, unpacked: int, free: int) -> Kernel:
    """Return whether 4-bit weights are dequantized once: if requested, or if memory allows."""
    asked = compute.dequantized_copy
    room = f"{unpacked / 2**20:,.0f} MB, {free / 2**20:,.0f} MB are free"
    if asked == "never" or (asked == "auto" and free < SPARE * unpacked):
        why = "as requested" if asked == "never" else f"a dequantized copy takes {room}"
        return Kernel("off", f"{why}: weights are dequantized in every step")
    return Kernel(compute.dtype, f"NF4 dequantized once instead of in every step ({room})")
