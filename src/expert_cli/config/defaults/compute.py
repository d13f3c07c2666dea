"""How a step is computed: precision, attention, kernels, recomputation, compiler, memory."""

from __future__ import annotations

from typing import Literal, cast

from expert_cli.config.defaults.training import Config
from expert_cli.config.run_config import Attention, Checkpointing, ComputeConfig, DeviceName
from expert_cli.hardware.machine import Machine, has_package
from expert_cli.manifest.types import AdapterType, Dtype, Quantization

ATTENTION: dict[Attention, str] = {
    "fused": "documents attend within themselves by fused kernels (the kernel plan names them)",
    "flash": "documents attend within themselves by flash-attn",
    "eager": "attention with a mask of tokens x tokens",
}
CHECKPOINTING: dict[Checkpointing, str] = {
    "off": "activations are kept, none recomputed",
    "all": "every layer is recomputed in the backward pass",
    "selective": "every second layer is recomputed",
    "attention_only": "the attention blocks are recomputed",
}
COPIES = {"auto": "where memory allows", "always": "always", "never": "never"}


def compute(
    config: Config, machine: Machine, device: DeviceName, adapter: AdapterType, quantization: Quantization
) -> ComputeConfig:
    """Return how a step is computed on this machine."""
    compiles, backend, mode = _compiler(config)
    checkpointing, reentrant = _checkpointing(config)
    decided = ComputeConfig(
        device=device,
        dtype=_dtype(config, machine, device),
        tf32=_tf32(config, machine, device),
        attention=_attention(config, device),
        checkpointing=checkpointing,
        reentrant=reentrant,
        torch_compile=compiles,
        compile_backend=backend,
        compile_mode=mode,
        fused_kernels=config.written.fused_kernels or "auto",
        dequantized_copy=_copy(config, quantization),
        on_oom=_on_oom(config, device),
    )
    _fused(config, decided, adapter)
    return decided


def _dtype(config: Config, machine: Machine, device: DeviceName) -> Dtype:
    fp16, bf16 = config.written.fp16, config.written.bf16
    if fp16 is False and bf16 is False:
        dtype: Dtype = "fp32"
    elif device == "cpu":
        dtype = "bf16" if bf16 is True or (machine.cpu_bf16 and bf16 is not False) else "fp32"
    else:
        dtype = "fp16" if fp16 or not machine.gpus[0].has_bf16 or bf16 is False else "bf16"
    why = "a CPU has no fp16 training" if device == "cpu" else "this GPU has no bfloat16"
    for key, asked in (("fp16", fp16), ("bf16", bf16)):
        if asked and dtype != key:
            config.put(key, dtype, dtype, why)
        elif key == "fp16" and device == "cpu":
            config.leave(why, key)
        else:
            config.put(key, dtype, f"trains in {dtype}")
    return dtype


def _tf32(config: Config, machine: Machine, device: DeviceName) -> bool:
    if device == "cpu":
        config.leave("no GPU", "use_tf32")
        return False
    if not machine.gpus[0].has_tf32:
        config.leave("this GPU has no TF32 (it came with Ampere)", "use_tf32")
        return False
    asked = bool(config.written.use_tf32)
    effect = "matrix products and cuDNN may use TF32" if asked else "TF32 stays off"
    return bool(config.put("use_tf32", asked, effect))


def _attention(config: Config, device: DeviceName) -> Attention:
    """Decide the attention; of the three keys, the first that asks for something decides."""
    written = config.written
    if written.flash_attention_2:
        missing = "needs a GPU" if device == "cpu" else "" if has_package("flash_attn") else "is not installed"
        why = f"flash-attn {missing}; PyTorch's kernels keep packed documents apart too" if missing else ""
        config.put("flash_attention_2", "flash", "fused" if missing else ATTENTION["flash"], why)
        config.leave("flash_attention_2 decides", "use_sdpa", "memory_efficient_attention")
        return "flash"
    config.put("flash_attention_2", "fused", "flash-attn is not asked for")
    if written.use_sdpa is not False:
        config.leave("use_sdpa decides", "memory_efficient_attention")
        return cast(Attention, config.put("use_sdpa", "fused", ATTENTION["fused"]))
    decided: Attention = "fused" if written.memory_efficient_attention else "eager"
    effect = ATTENTION[decided]
    config.put("memory_efficient_attention", decided, effect)
    why = "memory_efficient_attention asks for fused kernels" if decided == "fused" else ""
    return cast(Attention, config.put("use_sdpa", decided, decided if why else effect, why))


def _checkpointing(config: Config) -> tuple[Checkpointing, bool]:
    """Return what is recomputed, and whether by the reentrant form."""
    written = config.written
    asked, narrowed = written.gradient_checkpointing, written.activation_checkpointing
    what: Checkpointing = "selective" if asked == "selective" else "all" if asked else "off"
    if asked is False or asked == "selective":
        config.leave(f"gradient_checkpointing is {str(asked).lower()}", "activation_checkpointing")
    else:
        what = "attention_only" if narrowed else what
        config.put("activation_checkpointing", what, CHECKPOINTING[what])
    if asked is True and narrowed:
        config.put("gradient_checkpointing", what, CHECKPOINTING[what], "activation_checkpointing narrows it")
    else:
        config.put("gradient_checkpointing", what, CHECKPOINTING[what])
    reentrant = bool((written.gradient_checkpointing_kwargs or {}).get("use_reentrant", False))
    config.put("gradient_checkpointing_kwargs", reentrant, f"use_reentrant: {str(reentrant).lower()}")
    if what == "off":
        config.leave("gradient checkpointing is off", "gradient_checkpointing_kwargs")
    return what, reentrant


def _compiler(config: Config) -> tuple[bool, str, str]:
    """Return (whether, back end, mode)."""
    written = config.written
    compiles = bool(written.torch_compile)
    config.put("torch_compile", compiles, "every decoder layer is compiled" if compiles else "nothing is compiled")
    backend = str(config.use("torch_compile_backend", "inductor", "compiler back end"))
    mode = str(config.use("torch_compile_mode", "default", "what the compiler optimizes for"))
    if mode == "reduce-overhead":
        reason = "it records CUDA graphs, which gradient accumulation overwrites"
        mode = str(config.put("torch_compile_mode", "default", "default", reason))
    if not compiles:
        config.leave("torch_compile is off", "torch_compile_backend", "torch_compile_mode")
    return compiles, backend, mode


def _fused(config: Config, decided: ComputeConfig, adapter: AdapterType) -> None:
    """Note what `fused_kernels` comes to; the kernel plan makes it real."""
    if decided.fused_kernels == "off":
        config.put("fused_kernels", "off", "no fused kernels but PyTorch's")
    elif decided.device == "cuda" and has_package("liger_kernel"):
        config.put("fused_kernels", "auto", "Liger's kernels are used")
    elif decided.device == "cuda":
        config.leave("liger-kernel is not installed", "fused_kernels")
    elif decided.fuses_lora and adapter in ("lora", "rslora"):
        config.put("fused_kernels", "auto", "LoRA's products are added in place")
    else:
        config.leave("Liger's kernels need a GPU", "fused_kernels")


def _copy(config: Config, quantization: Quantization) -> Literal["auto", "always", "never"]:
    copy = config.written.dequantized_copy or "auto"
    config.put("dequantized_copy", copy, f"4-bit weights are unpacked once: {COPIES[copy]}")
    if quantization != "int4":
        config.leave(f"the weights are {quantization}", "dequantized_copy")
    return copy


def _on_oom(config: Config, device: DeviceName) -> Literal["fit", "error"]:
    what = config.written.on_oom or "fit"
    fits = "the micro-batch is halved until a full step fits"
    config.put("on_oom", what, fits if what == "fit" else "a step that does not fit ends the run")
    if device == "cpu":
        config.leave("no GPU: nothing is probed", "on_oom")
    return what
