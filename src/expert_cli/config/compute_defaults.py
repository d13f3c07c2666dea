"""Decides how a step is computed on this machine, from the manifest's settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from expert_cli.config.settings import Settings
from expert_cli.config.training_defaults import METHOD as RFT
from expert_cli.config.training_defaults import Config
from expert_cli.hardware.machine import Machine
from expert_cli.manifest.key import Dtype, Quantization
from expert_cli.manifest.keys.compute import WITHOUT_GRAPHS, Attention, Checkpointing, ComputeConfig, DeviceName
from expert_cli.manifest.schema import Base, EvaluationBlock
from expert_cli.manifest.training_config import TrainingConfig


def compute(config: Config, machine: Machine, device: DeviceName, quantization: Quantization) -> ComputeConfig:
    """Return how a step is computed on this machine."""
    checkpointing, reentrant = _checkpointing(config)
    sharded, unshared = bool(config.use("fsdp")), dict[str, Any]()
    if sharded:  # no trial steps and no copies
        why = "fsdp shards the packed weights"
        unshared = {"on_oom": "error", "dequantized_copy": config.put("dequantized_copy", "never", reason=why)}
        why = "fsdp: if memory ran out in one process, the others would wait forever"
        config.leave(why, "on_oom")
    decided = config.block(
        ComputeConfig,
        device=device,
        dtype=_dtype(config, machine, device),
        tf32=_tf32(config, machine, device),
        attention=_attention(config, machine, device),
        checkpointing=checkpointing,
        reentrant=reentrant,
        **_compiler(config),
        capture=_capture(config, device, checkpointing),
        fsdp=sharded,
        **unshared,
    )
    if quantization != "int4":
        config.leave(f"the weights are {quantization}", "dequantized_copy")
    if device == "cpu":
        config.leave("no GPU", "on_oom")
    return decided


def _dtype(config: Config, machine: Machine, device: DeviceName) -> Dtype:
    fp16, bf16 = config.written.fp16, config.written.bf16
    if fp16 is False and bf16 is False:
        dtype: Dtype = "fp32"
    elif device == "cpu":
        dtype = "bf16" if machine.cpu_bf16 and bf16 is not False else "fp32"
    else:
        dtype = "fp16" if fp16 or not machine.gpus[0].is_ampere or bf16 is False else "bf16"
    here = "CPU" if device == "cpu" else "GPU"
    lacks = {"fp16": "a CPU has no fp16 training", "bf16": f"this {here} has no bfloat16"}
    for key, asked in (("fp16", fp16), ("bf16", bf16)):
        if asked is not None and asked != (dtype == key):
            config.put(key, dtype, dtype, lacks[key if asked else "bf16"])
        elif key == "fp16" and device == "cpu":
            config.leave(lacks[key], key)
        else:
            config.put(key, dtype)
    return dtype


def _tf32(config: Config, machine: Machine, device: DeviceName) -> bool:
    if device != "cpu" and machine.gpus[0].is_ampere and not machine.torch_hip:
        return bool(config.use("use_tf32"))
    config.leave("no GPU" if device == "cpu" else "this GPU has no TF32 (it came with Ampere)", "use_tf32")
    return False


def _attention(config: Config, machine: Machine, device: DeviceName) -> Attention:
    """Decide the attention; the first of the three keys that is set decides."""
    keys = ("flash_attention_2", "use_sdpa", "memory_efficient_attention")
    if config.use("pad_documents"):
        config.leave("pad_documents decides", *keys)
        return "rows"
    deciding = next((key for key in keys if config[key]), "")
    decided: Attention = "fused" if deciding else "eager"
    lacks = deciding == keys[0] and (device == "cpu" or not machine.gpus[0].is_ampere or bool(machine.torch_hip))
    for key in keys:
        if key == deciding or not deciding:
            config.put(key, decided, reason="FlashAttention needs an NVIDIA GPU from Ampere on" if lacks else "")
        elif config.written.use_sdpa is False and key == "use_sdpa":
            config.put(key, decided, decided, f"{deciding} asks for fused kernels")
        else:
            config.leave(f"{deciding} decides", key)
    return decided


def _checkpointing(config: Config) -> tuple[Checkpointing, bool]:
    """Return what is recomputed, and whether in the reentrant form."""
    asked, narrowed = config.written.gradient_checkpointing, config.written.activation_checkpointing
    what: Checkpointing = "all" if asked or (narrowed and asked is None) else "off"
    whole = "all layers are recomputed completely"
    config.put("gradient_checkpointing", what, reason=whole if asked == "selective" else "")
    config.put("activation_checkpointing", what, reason=whole if narrowed else "")
    if asked is False:
        config.leave("gradient_checkpointing is false", "activation_checkpointing")
    reentrant = (config.written.gradient_checkpointing_kwargs or {}).get("use_reentrant", False)
    config.put("gradient_checkpointing_kwargs", reentrant)
    if what == "off":
        config.leave("gradient checkpointing is off", "gradient_checkpointing_kwargs")
    return what, reentrant


def why_eager(device: DeviceName, *, packs: bool, fsdp: bool) -> str:
    """Return why this model's step cannot be recorded as a CUDA graph; "" if it can."""
    reasons = {
        "CUDA graphs need a GPU": device == "cpu",
        "packing is off: batches have no fixed shape": not packs,
        "fsdp gathers layers in every step": fsdp,
    }
    return next((why for why, holds in reasons.items() if holds), "")


def _capture(config: Config, device: DeviceName, checkpointing: Checkpointing) -> bool:
    """Return whether to use a CUDA graph, and note the effects of the keys that belong to it."""
    asked = bool(config.use("use_cuda_graphs"))
    lack = why_eager(device, packs=config["packing"] is not False, fsdp=config["fsdp"])
    if lack:
        config.leave(lack, "use_cuda_graphs")
    if lack or not asked:
        config.leave(lack or "use_cuda_graphs is false", "cuda_graph_warmup_steps")
    elif checkpointing == "all" and config["dropout"]:
        effect = "the step is recorded without recomputation if it fits, else not recorded"
        config.put(
            "gradient_checkpointing", checkpointing, effect, "the adapter's dropout cannot be recomputed in a graph"
        )
    return asked


def _compiler(config: Config) -> dict[str, Any]:
    """Return back end and mode of torch.compile; modes with CUDA graphs are replaced by those without."""
    backend, mode = config.use("torch_compile_backend"), config.use("torch_compile_mode")
    if backend != "inductor":
        config.leave(f"{backend} has no modes", "torch_compile_mode")
        mode = "default"
    elif mode in WITHOUT_GRAPHS:
        why = "it records CUDA graphs, which gradient accumulation overwrites"
        mode = config.put("torch_compile_mode", WITHOUT_GRAPHS[mode], WITHOUT_GRAPHS[mode], why)
    if not config["torch_compile"]:
        config.leave("torch_compile is off", "torch_compile_backend", "torch_compile_mode")
    return {"compile_backend": backend, "compile_mode": mode}


FSDP_OFF = "leave fsdp out: each process then holds the whole base model"


def sharding_conflicts(
    config: Settings[TrainingConfig], base: Settings[Base], evaluation: EvaluationBlock
) -> Iterator[tuple[str, str, str]]:
    """Yield settings that exclude fsdp, as (key, message, remedy): no process has the whole base model."""
    if not config["fsdp"]:
        return
    if base["quantization"] == "int8":
        message = "does not work with quantization int8: FSDP2 does not find bitsandbytes' int8 weights"
        yield "fsdp", message, f'for {base["name"]} write "quantization": "int4" or "bf16"'
    answering = {f"method {RFT}": config["method"] == RFT, "evaluation.every_steps": evaluation.every_steps}
    for what in (name for name, is_asked in answering.items() if is_asked):
        yield "fsdp", f"does not work with {what}: no process has the whole model", FSDP_OFF
