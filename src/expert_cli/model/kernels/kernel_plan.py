"""How a step is computed, and why: what is asked and what is available become one plan, a reason a line."""

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
from expert_cli.model.kernels.dequantize import copy_bytes, dequantize_linears
from expert_cli.model.kernels.lora import fuse, patch_dora
from expert_cli.model.layers import recurrent_layers
from expert_cli.model.loading.quantize import DTYPES
from expert_cli.model.vocabulary_rows import spare_copies

SPARE = 3
"""A copy of the weights is made where this many times its size is free: activations need room too."""
LIGER = "liger"


@dataclass(frozen=True)
class Kernel:
    """One choice: what is used ("off" for nothing) and the reason."""

    used: str
    reason: str


@dataclass(frozen=True)
class KernelPlan:
    """Every choice that the step rests on. lines: the same in words, in the order in which they are worth reading.

    dequantized: 4-bit weights are dequantized once. full_logits: the model makes its logits itself. fused: norms and
    activations keep no more for the backward pass than a fused kernel does. fixed_shape: every batch has the same number of
    tokens.
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

    def summary(self) -> str:
        """Return what is used, in one line."""
        used = {name: kernel.used for name, kernel in self.lines.items() if kernel.used not in ("off", "none")}
        return ", ".join(f"{name} {what}" for name, what in used.items() if name != "capture")

    def as_json(self) -> dict[str, dict[str, str]]:
        """Return the lines as run.json and reports have them."""
        return {name: asdict(kernel) for name, kernel in self.lines.items()}


def kernel_plan(compute: ComputeConfig, model: ModelConfig, machine: Machine) -> KernelPlan:
    """Return the plan before the model is there; `apply_kernels` adds what only the model tells."""
    backend, why = choose_attention(compute.attention, compute.device, compute.dtype, machine)
    fused = _fused(compute)
    quantized = "NF4, double quantization" if model.quantization == "int4" else "as the manifest says"
    lines = {
        "device": Kernel(compute.device, machine.words_of(compute.device)),
        "weights": Kernel(model.quantization, quantized),
        "dtype": Kernel(compute.dtype, "as asked, or the best that this machine does"),
        "tf32": Kernel("on" if compute.tf32 else "off", "of fp32 matrix products; bf16 ones do not need it"),
        "attention": Kernel(backend.name, why),
        "loss": Kernel("chunked", "head and cross-entropy in chunks, only where a token is trained"),
        "compile": Kernel(compute.compile_backend, f"every decoder layer, mode {compute.compile_mode}"),
        "fused": fused,
    }
    if not compute.torch_compile:
        lines["compile"] = Kernel("off", "not asked for")
    return KernelPlan(backend.name, backend.layout, False, False, fused.used == LIGER, compute.torch_compile, lines)


def apply_kernels(plan: KernelPlan, model: Any, compute: ComputeConfig, machine: Machine) -> KernelPlan:
    """Make the plan's choices real on a base model without adapter and return the plan with what was possible."""
    plan = _for_weights(plan, copy_bytes(model), compute, free_bytes(compute.device))
    if plan.dequantized:
        on_trial = compute.device != "cpu" and (compute.dequantized_copy, compute.on_oom) == ("auto", "fit")
        dequantize_linears(model, DTYPES[compute.dtype], keep_packed=on_trial)
    plan = _for_model(plan, model, compute, machine)
    if plan.fused:
        apply_liger(model)
    if plan.attention != attention_name(model.config):
        attention.use(model, plan.attention)
    return plan


def predict_kernels(
    plan: KernelPlan, model: Any, compute: ComputeConfig, machine: Machine, *, dequantized_bytes: int, free: int
) -> KernelPlan:
    """Return the plan as `apply_kernels` and `apply_adapter_kernels` would leave it, for a model on the meta device.

    dequantized_bytes: what dequantized 4-bit weights would take (0: none are quantized); free: bytes of the device beside
    the base model.
    """
    plan = _for_weights(plan, dequantized_bytes, compute, free)
    return apply_adapter_kernels(_for_model(plan, model.get_base_model(), compute, machine), model, compute)


def apply_adapter_kernels(plan: KernelPlan, model: Any, compute: ComputeConfig) -> KernelPlan:
    """Return the plan with what the model with its adapter can take: LoRA layers are fused, the loss's way is chosen."""
    spare_copies(model)
    is_plain = compute.fused_kernels == "off"
    if not (is_plain or compute.fsdp):  # its weights are in shards, and PEFT's own forward passes gather them
        patch_dora(model)
    if compute.fuses_lora and (count := fuse(model)):
        plan = plan.with_line("lora", "fused", f"{count} products are computed with their layers")
    reason = "fused kernels are switched off" if is_plain else can_skip_logits(model)
    return plan.with_line("loss", "full logits", reason, full_logits=True) if reason else plan


def with_capture(plan: KernelPlan, run: RunConfig) -> KernelPlan:
    """Return the plan with whether the step is to be recorded, and why not."""
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


def _fused(compute: ComputeConfig, model_type: str = "") -> Kernel:
    """Return what fuses norms, rotary embeddings and activations of a model ("": of any)."""
    if compute.fused_kernels == "off":
        return Kernel("off", "switched off")
    if compute.device == "cpu":
        return Kernel("off", "Liger has no kernels for a CPU")
    if not has_package("liger_kernel"):
        return Kernel("off", 'liger-kernel is not installed (pip install "expert-cli[kernels]")')
    if model_type and not liger_knows(model_type):  # it would leave the model as it is, in silence
        return Kernel("off", f"Liger has no kernels for {model_type}")
    return Kernel(LIGER, "Liger's norms, rotary embeddings and activations")


def _for_model(plan: KernelPlan, model: Any, compute: ComputeConfig, machine: Machine) -> KernelPlan:
    """Return the plan with the best that this model can take, and what keeps documents apart in layers that do not attend."""
    fused = _fused(compute, model.config.model_type)
    plan = plan.with_line("fused", fused.used, fused.reason, fused=fused.used == LIGER)
    if layers := recurrent_layers(model):
        why = f"{len(layers)} of the model's layers carry a state, which no mask keeps apart; rows are padded on the right"
        plan = plan.with_line("recurrence", "one document a row", why)
    own = attention_name(model.config)
    if not attention_layers(model.config.get_text_config()):
        return plan.with_line("attention", "off", "no layer attends", attention=own, layout="padded")
    if layers:
        return plan.with_line("attention", own, "one document a row", attention=own, layout="padded")
    backend, why = choose_attention(compute.attention, compute.device, compute.dtype, machine, model)
    # where no kernel knows documents it is the model's own, which is not SDPA in every architecture
    name = own if backend.name == "sdpa" else backend.name
    return plan.with_line("attention", name, why, attention=name, layout=backend.layout)


def _for_weights(plan: KernelPlan, needed: int, compute: ComputeConfig, free: int) -> KernelPlan:
    """Return the plan with whether 4-bit weights are unpacked once: where that was asked for or there is room."""
    if not needed:
        return plan
    asked = compute.dequantized_copy
    room = f"{needed / 2**20:,.0f} MB, {free / 2**20:,.0f} MB are free"
    if asked == "never" or (asked == "auto" and free < SPARE * needed):
        why = "as asked" if asked == "never" else f"an unpacked copy takes {room}"
        return plan.with_line("copy", "off", f"{why}: weights are unpacked at every step")
    why = f"NF4 unpacked once instead of at every step ({room})"
    return plan.with_line("copy", compute.dtype, why, dequantized=True)
