"""The kernel plan: asked x available, with the reason; no GPU is never an error."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
import torch
from bitsandbytes.nn import Linear4bit
from torch._inductor import list_mode_options
from transformers import Gemma2Config, Gemma2ForCausalLM

from expert_cli.config.run_config import ModelConfig
from expert_cli.errors import InputError
from expert_cli.estimate.model_shape import meta_model
from expert_cli.hardware.machine import Machine
from expert_cli.manifest.keys.compute import Attention, ComputeConfig, Mode
from expert_cli.model.adapter import add_adapter
from expert_cli.model.kernels import select
from expert_cli.model.kernels.attention_backends import loaded_with
from expert_cli.model.kernels.select import (
    apply_adapter_kernels,
    apply_kernels,
    kernel_plan,
    predict_kernels,
)
from expert_cli.model.loading.quantize import load_base
from tests import run_blocks, tiny
from tests.machines import CPU as HERE
from tests.machines import H200, T4, install

MODEL = ModelConfig("m", "", "int4", "", None, ())
CPU = run_blocks.COMPUTE
GPU = replace(CPU, device="cuda")

FLASH = {"flash_attn": "flash-attn"}
FLASH_4 = {"flash_attn": "flash-attn-4"}
ASKED = replace(GPU, attention="flash")
ATTENTION: dict[str, tuple[ComputeConfig, Machine, dict[str, str], str, str, str]] = {
    "CPU": (CPU, HERE, {}, "documents", "packed", "no mask"),
    "CPU, flash asked": (replace(CPU, attention="flash"), HERE, FLASH, "documents", "packed", "needs a GPU"),
    "eager asked": (replace(CPU, attention="eager"), HERE, {}, "eager", "padded", "as asked"),
    "GPU": (GPU, H200, {}, "varlen", "packed", "FlashAttention inside PyTorch"),
    "flash asked and there": (ASKED, H200, FLASH, "flash_attention_2", "packed", "as asked"),
    "flash asked and missing": (ASKED, H200, {}, "varlen", "packed", "flash-attn is not installed"),
    "flash 4 alone": (ASKED, H200, FLASH_4, "varlen", "packed", "flash-attn is not installed"),
    "flash not asked": (GPU, H200, FLASH, "varlen", "packed", "FlashAttention inside PyTorch"),
    "flash in fp32": (replace(ASKED, dtype="fp32"), H200, FLASH, "documents", "packed", "flash-attn has no fp32"),
    "flash before Ampere": (replace(ASKED, dtype="fp16"), T4, FLASH, "documents", "packed", "older than Ampere"),
    "GPU in fp32": (replace(GPU, dtype="fp32"), H200, {}, "documents", "packed", "fp32"),
    "older than Ampere": (replace(GPU, dtype="fp16"), T4, {}, "documents", "packed", "older than Ampere"),
}


@pytest.mark.parametrize(
    ("compute", "machine", "packages", "name", "layout", "why"), ATTENTION.values(), ids=ATTENTION.keys()
)
def test_attention_is_the_best_that_is_there(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compute: ComputeConfig,
    machine: Machine,
    packages: dict[str, str],
    name: str,
    layout: str,
    why: str,
) -> None:
    install(tmp_path, monkeypatch, **packages)
    plan = kernel_plan(compute, MODEL, machine)
    assert (plan.attention, plan.layout, plan.lines["attention"].used) == (name, layout, name)
    assert why in plan.lines["attention"].reason


@pytest.mark.parametrize("asked", ["fused", "flash", "eager"])
def test_a_model_that_needs_more_keeps_its_own_attention(tmp_path: Path, asked: Attention) -> None:
    """Caps on attention scores are none of SDPA's either."""
    torch.manual_seed(0)
    Gemma2ForCausalLM(Gemma2Config(**tiny.SHAPE)).save_pretrained(tmp_path)
    model = load_base(
        tmp_path,
        quantization="none",
        dtype=torch.float32,
        device="cpu",
        attention=loaded_with(asked),
        rope_scaling={},
    )
    own, compute = model.config._attn_implementation, replace(CPU, attention=asked)
    plan = apply_kernels(kernel_plan(compute, MODEL, HERE), model, compute, HERE)
    assert plan.layout == "padded"
    assert plan.attention == plan.lines["attention"].used == model.config._attn_implementation == own
    assert ("caps attention scores" in plan.lines["attention"].reason) == (asked != "eager")
    assert meta_model(tmp_path, run_blocks.ADAPTER, dtype=torch.float32, attention=loaded_with(asked))


FUSED = {
    "Liger": (GPU, ("liger_kernel", "triton"), "liger", "Liger's norms"),
    "Liger beside compiled layers": (replace(GPU, torch_compile=True), ("liger_kernel", "triton"), "liger", ""),
    "nothing extra installed": (GPU, ("triton",), "off", "liger-kernel is not installed"),
    "layers are compiled": (replace(GPU, torch_compile=True), ("triton",), "off", "takes whole layers"),
    "off": (replace(GPU, fused_kernels="off"), ("liger_kernel", "triton"), "off", "switched off"),
    "CPU": (CPU, ("liger_kernel", "triton"), "off", "on a CPU"),
}


@pytest.mark.parametrize(("compute", "packages", "used", "why"), FUSED.values(), ids=FUSED.keys())
def test_norms_and_activations_are_fused_by_what_is_there(
    monkeypatch: pytest.MonkeyPatch, compute: ComputeConfig, packages: tuple[str, ...], used: str, why: str
) -> None:
    monkeypatch.setattr(select, "has_package", lambda package: package in packages)
    line = kernel_plan(compute, MODEL, H200).lines["fused"]
    assert line.used == used
    assert why in line.reason


@pytest.mark.parametrize(
    ("change", "kind", "used"),
    [
        ({}, "lora", "lora"),
        ({}, "dora", "off"),
        ({"fsdp": True}, "dora", "off"),
        ({"fused_kernels": "off"}, "lora", "off"),
        ({"dtype": "fp32"}, "lora", "lora"),
        ({"torch_compile": True}, "lora", "off"),
    ],
)
def test_plain_lora_is_fused_and_dora_is_ours(change: dict[str, Any], kind: Any, used: str) -> None:
    model = add_adapter(tiny.tiny_model(), replace(run_blocks.ADAPTER, type=kind))
    compute = replace(CPU, **change)
    plan = apply_adapter_kernels(kernel_plan(compute, MODEL, HERE), model, compute)
    assert plan.lines["fused"].used == used
    assert bool(getattr(model, "dora_layers", ())) == (kind == "dora" and not compute.fsdp)


def liger_of(monkeypatch: pytest.MonkeyPatch, *architectures: str) -> list[Any]:
    """Install a Liger that has kernels for these; return what it will have been given."""
    taken: list[Any] = []
    package, inside = ModuleType("liger_kernel.transformers"), ModuleType("liger_kernel.transformers.monkey_patch")
    package._apply_liger_kernel_to_instance = lambda model, **_: taken.append(model)  # type: ignore[attr-defined]
    inside.MODEL_TYPE_TO_APPLY_LIGER_FN = dict.fromkeys(architectures)  # type: ignore[attr-defined]
    for name, module in (("liger_kernel", package), (package.__name__, package), (inside.__name__, inside)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(select, "has_package", lambda name: name == "liger_kernel")
    return taken


@pytest.mark.parametrize(
    ("architectures", "used"), [(("llama",), "liger, lora"), (("gemma",), "lora")], ids=["known", "not"]
)
def test_liger_is_used_and_counted_on_for_what_it_knows(
    monkeypatch: pytest.MonkeyPatch, architectures: tuple[str, ...], used: str
) -> None:
    """It leaves a model that it does not know as it is, without a word."""
    taken = liger_of(monkeypatch, *architectures)
    model = add_adapter(tiny.tiny_model(), run_blocks.ADAPTER)
    plan = kernel_plan(GPU, MODEL, H200)
    assert plan.lines["fused"].used == "liger"
    found = predict_kernels(plan, model, GPU, H200, dequantized_bytes=0, free=0)
    assert (found.fused, found.lines["fused"].used) == ("liger" in used, used)
    if not found.fused:
        assert "no kernels for llama" in found.lines["fused"].reason
    monkeypatch.setattr(select, "free_bytes", lambda _: 0)
    base = model.get_base_model()
    assert apply_kernels(plan, base, GPU, H200).fused == found.fused == (taken == [base])


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("backend", torch.compiler.list_backends(exclude_tags=()))
def test_no_compiler_records_cuda_graphs(backend: str, mode: Mode) -> None:
    """Gradient accumulation overwrites what a graph returned."""
    compute = replace(GPU, torch_compile=True, compile_backend=backend, compile_mode=mode)
    line = kernel_plan(compute, MODEL, H200).lines["compile"]
    chosen, settings = compute.compiler
    assert line.used == chosen != "cudagraphs"
    options = list_mode_options(settings)
    assert not options.get("triton.cudagraphs")
    assert (options.get("max_autotune", False)) == (chosen == "inductor" and mode.startswith("max-autotune"))
    assert (f"mode {settings}" in line.reason) == (chosen == "inductor")


def test_a_compiler_that_there_is_not_is_refused_before_a_model_is_loaded() -> None:
    asked = replace(CPU, torch_compile=True, compile_backend="inducter")
    with pytest.raises(InputError, match='no back end "inducter"') as caught:
        kernel_plan(asked, MODEL, HERE)
    assert "inductor" in caught.value.hint
    assert kernel_plan(replace(asked, torch_compile=False), MODEL, HERE).lines["compile"].used == "off"


COPIES = {
    "auto with room": ("auto", 2**40, True),
    "auto without": ("auto", 1000, False),
    "always": ("always", 0, True),
    "never": ("never", 2**40, False),
}


@pytest.mark.parametrize(("asked", "free", "dequantized"), COPIES.values(), ids=COPIES.keys())
def test_the_copy_is_made_where_it_is_asked_or_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, free: int, dequantized: bool
) -> None:
    monkeypatch.setattr(select, "free_bytes", lambda _: free)
    compute = replace(CPU, dequantized_copy=asked)
    model = load_base(
        tiny.tiny_model_folder(tmp_path),
        quantization="int4",
        dtype=select.DTYPES["bf16"],
        device="cpu",
        attention="sdpa",
        rope_scaling={},
    )
    plan = apply_kernels(kernel_plan(compute, MODEL, HERE), model, compute, HERE)
    assert plan.dequantized is dequantized
    assert any(isinstance(module, Linear4bit) for module in model.modules()) is not dequantized
    assert (plan.lines["copy"].used == "bf16") is dequantized
    assert model.config._attn_implementation == "expert_documents"
