"""The kernel plan: asked x available, with the reason; no GPU is never an error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
from bitsandbytes.nn import Linear4bit

from expert_cli.config.run_config import ModelConfig
from expert_cli.hardware.machine import Machine
from expert_cli.manifest.keys.compute import ComputeConfig
from expert_cli.model.adapter import add_adapter
from expert_cli.model.kernels import attention_backends, select
from expert_cli.model.kernels.select import apply_adapter_kernels, apply_kernels, kernel_plan
from expert_cli.model.loading.quantize import load_base
from tests import run_blocks, tiny
from tests.machines import CPU as HERE
from tests.machines import H200, T4

MODEL = ModelConfig("m", "", "int4", "", None, ())
CPU = run_blocks.COMPUTE
GPU = replace(CPU, device="cuda")

ATTENTION = {
    "CPU": (CPU, HERE, (), "documents", "packed", "no mask"),
    "CPU, flash asked": (replace(CPU, attention="flash"), HERE, ("flash_attn",), "documents", "packed", "needs a GPU"),
    "eager asked": (replace(CPU, attention="eager"), HERE, (), "eager", "padded", "as asked"),
    "GPU": (GPU, H200, (), "varlen", "packed", "FlashAttention inside PyTorch"),
    "GPU, flash asked and there": (
        replace(GPU, attention="flash"),
        H200,
        ("flash_attn",),
        "flash_attention_2",
        "packed",
        "as asked",
    ),
    "GPU, flash asked and missing": (
        replace(GPU, attention="flash"),
        H200,
        (),
        "varlen",
        "packed",
        "flash-attn is not installed",
    ),
    "GPU in fp32": (replace(GPU, dtype="fp32"), H200, (), "documents", "packed", "fp32"),
    "older than Ampere": (replace(GPU, dtype="fp16"), T4, (), "documents", "packed", "older than Ampere"),
}


@pytest.mark.parametrize(
    ("compute", "machine", "packages", "name", "layout", "why"), ATTENTION.values(), ids=ATTENTION.keys()
)
def test_attention_is_the_best_that_is_there(
    monkeypatch: pytest.MonkeyPatch,
    compute: ComputeConfig,
    machine: Machine,
    packages: tuple[str, ...],
    name: str,
    layout: str,
    why: str,
) -> None:
    monkeypatch.setattr(attention_backends, "has_package", lambda package: package in packages)
    plan = kernel_plan(compute, MODEL, machine)
    assert (plan.attention, plan.layout, plan.lines["attention"].used) == (name, layout, name)
    assert why in plan.lines["attention"].reason


@pytest.mark.parametrize(("packages", "fused"), [((), False), (("liger_kernel",), True)], ids=["missing", "there"])
def test_fused_kernels_need_a_gpu_and_the_package(
    monkeypatch: pytest.MonkeyPatch, packages: tuple[str, ...], fused: bool
) -> None:
    monkeypatch.setattr(select, "has_package", lambda package: package in packages)
    assert kernel_plan(GPU, MODEL, H200).fused is fused
    assert kernel_plan(replace(GPU, fused_kernels="off"), MODEL, H200).fused is False
    assert kernel_plan(CPU, MODEL, HERE).fused is False


@pytest.mark.parametrize(
    ("change", "kind", "used"),
    [
        ({}, "lora", "lora"),
        ({}, "dora", "off"),
        ({"fused_kernels": "off"}, "lora", "off"),
        ({"dtype": "fp32"}, "lora", "off"),
        ({"torch_compile": True}, "lora", "off"),
    ],
)
def test_plain_lora_is_fused_on_a_cpu(change: dict[str, Any], kind: Any, used: str) -> None:
    model = add_adapter(tiny.tiny_model(), replace(run_blocks.ADAPTER, type=kind))
    compute = replace(CPU, **change)
    plan = apply_adapter_kernels(kernel_plan(compute, MODEL, HERE), model, compute)
    assert plan.lines["fused"].used == used


def test_liger_is_told_as_used_where_it_is_on_the_model() -> None:
    """Liger leaves a model that it does not know as it is, without a word: installed is not used."""
    model, plan = tiny.tiny_model(), replace(kernel_plan(CPU, MODEL, HERE), fused=True)
    untouched = select.with_liger(plan, model)
    assert (untouched.fused, untouched.lines["fused"].used) == (False, "off")
    assert "no kernels for llama" in untouched.lines["fused"].reason

    def forward(_: Any, x: Any) -> Any:
        return x

    forward.__module__ = "liger_kernel.transformers.rms_norm"
    for layer in model.model.layers:
        layer.input_layernorm.forward = MethodType(forward, layer.input_layernorm)
    used = select.with_liger(plan, model)
    assert (used.fused, used.lines["fused"].used) == (True, "liger")
    assert used.lines["fused"].reason.startswith("Liger's kernels in 2 norms")


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
    plan = apply_kernels(kernel_plan(compute, MODEL, HERE), model, compute)
    assert plan.dequantized is dequantized
    assert any(isinstance(module, Linear4bit) for module in model.modules()) is not dequantized
    assert (plan.lines["copy"].used == "bf16") is dequantized
    assert model.config._attn_implementation == "expert_documents"
