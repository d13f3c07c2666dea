"""The rules of the keys that say how a step is computed: precision, attention, kernels, recomputation, compiler, memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from expert_cli.machine import has_package
from expert_cli.manifest.rule import Facts, Outcome, Rule, adjusted, applied, not_used


def _pin_memory(f: Facts) -> Outcome:
    if f.run.compute.device == "cpu" and f.config.dataloader_pin_memory:
        return not_used("no GPU: there is nothing to copy to")
    return applied("page-locked batches" if f.run.loader.pin_memory else "ordinary memory")


def _precision(name: Literal["fp16", "bf16"]) -> Rule:
    def rule(f: Facts) -> Outcome:
        asked = f.config.fp16 if name == "fp16" else f.config.bf16
        got = f.run.compute.dtype
        if asked and got != name:
            where = "a CPU has no fp16 training" if f.run.compute.device == "cpu" else "this GPU has no bfloat16"
            return adjusted(got, where)
        return applied(f"trains in {got}")

    return rule


def _tf32(f: Facts) -> Outcome:
    if not f.config.use_tf32:
        return applied("TF32 stays off")
    if f.run.compute.tf32:
        return applied("matrix products and cuDNN may use TF32")
    return not_used("no GPU" if f.run.compute.device == "cpu" else "this GPU has no TF32 (it came with Ampere)")


ATTENTION = {
    "fused": "documents attend within themselves by fused kernels (the kernel plan names them)",
    "flash": "flash-attn where it is installed, else PyTorch's own kernels",
    "eager": "attention with a mask of tokens x tokens",
}


def _sdpa(f: Facts) -> Outcome:
    got = f.run.compute.attention
    if f.config.use_sdpa is False and got != "eager":
        return adjusted(got, "the other attention keys ask for fused kernels")
    return applied(ATTENTION[got])


def _flash(f: Facts) -> Outcome:
    got = f.run.compute
    if not f.config.flash_attention_2 or (got.device == "cuda" and has_package("flash_attn")):
        return applied(ATTENTION[got.attention])
    why = "flash-attn needs a GPU" if got.device == "cpu" else "flash-attn is not installed"
    return adjusted("fused", f"{why}; PyTorch's kernels keep packed documents apart too")


def _memory_efficient(f: Facts) -> Outcome:
    return applied(ATTENTION[f.run.compute.attention])


def _copy(f: Facts) -> Outcome:
    if f.run.model.quantization != "int4":
        return not_used(f"the weights are {f.run.model.quantization}")
    words = {"auto": "where memory allows", "always": "always", "never": "never"}
    return applied(f"4-bit weights are unpacked once: {words[f.run.compute.dequantized_copy]}")


def _fused(f: Facts) -> Outcome:
    if f.run.compute.fused_kernels == "off":
        return applied("no fused kernels but PyTorch's")
    if f.run.compute.device == "cpu":
        fused = f.run.compute.fuses_lora and f.run.adapter.type in ("lora", "rslora")
        return applied("LoRA's products are added in place") if fused else not_used("Liger's kernels need a GPU")
    return (
        applied("Liger's kernels are used")
        if has_package("liger_kernel")
        else not_used("liger-kernel is not installed")
    )


def _on_oom(f: Facts) -> Outcome:
    if f.run.compute.device == "cpu":
        return not_used("no GPU: nothing is probed")
    what = {"fit": "the micro-batch is halved until a full step fits", "error": "a step that does not fit ends the run"}
    return applied(what[f.run.compute.on_oom])


def _checkpointing(f: Facts) -> Outcome:
    names = {
        "off": "activations are kept, none recomputed",
        "all": "every layer is recomputed in the backward pass",
        "selective": "every second layer is recomputed",
        "attention_only": "the attention blocks are recomputed",
    }
    return applied(names[f.run.compute.checkpointing])


def _activation_checkpointing(f: Facts) -> Outcome:
    got = f.run.compute.checkpointing
    if got == "attention_only":
        return applied("the attention blocks are recomputed")
    return not_used(f"gradient_checkpointing is {f.config.gradient_checkpointing!r}".replace("False", "false"))


def _checkpointing_kwargs(f: Facts) -> Outcome:
    if f.run.compute.checkpointing == "off":
        return not_used("gradient checkpointing is off")
    return applied(f"use_reentrant: {str(f.run.compute.reentrant).lower()}")


def _compile(effect: str) -> Rule:
    def rule(f: Facts) -> Outcome:
        return applied(effect) if f.run.compute.torch_compile else not_used("torch_compile is off")

    return rule


def _compile_mode(f: Facts) -> Outcome:
    if not f.run.compute.torch_compile:
        return not_used("torch_compile is off")
    if f.run.compute.compile_mode != f.config.torch_compile_mode:
        return adjusted(f.run.compute.compile_mode, "it records CUDA graphs, which gradient accumulation overwrites")
    return applied("what the compiler optimises for")


def _cuda_graphs(f: Facts) -> Outcome:
    if f.config.use_cuda_graphs is False:
        return applied("no graphs are recorded")
    return not_used("no graphs are recorded: the documents of a batch differ from step to step")


def _memory_clear(_: Facts) -> Outcome:
    return not_used("the allocator reuses freed memory by itself; clearing it in the loop only costs time")


COMPUTE_RULES: Mapping[str, Rule] = {
    "dataloader_pin_memory": _pin_memory,
    "fp16": _precision("fp16"),
    "bf16": _precision("bf16"),
    "use_tf32": _tf32,
    "use_sdpa": _sdpa,
    "flash_attention_2": _flash,
    "memory_efficient_attention": _memory_efficient,
    "gradient_checkpointing": _checkpointing,
    "gradient_checkpointing_kwargs": _checkpointing_kwargs,
    "activation_checkpointing": _activation_checkpointing,
    "torch_compile": lambda f: applied(
        "every decoder layer is compiled" if f.run.compute.torch_compile else "nothing is compiled"
    ),
    "torch_compile_backend": _compile("compiler back end"),
    "torch_compile_mode": _compile_mode,
    "use_cuda_graphs": _cuda_graphs,
    "cuda_graph_warmup_steps": lambda _: not_used("no graphs are recorded"),
    "fused_kernels": _fused,
    "dequantized_copy": _copy,
    "on_oom": _on_oom,
    "memory_clear_every": _memory_clear,
}
