"""The kernel plan: asked x available, with the reason; no GPU is never an error."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from bitsandbytes.nn import Linear4bit

from expert_cli.config.run_config import ModelConfig
from expert_cli.manifest.keys.compute import ComputeConfig
from expert_cli.model.adapter import add_adapter
from expert_cli.model.kernels import kernel_plan as planning
from expert_cli.model.kernels.dequantize import copy_bytes
from expert_cli.model.kernels.kernel_plan import apply_adapter_kernels, apply_kernels, kernel_plan
from tests import run_blocks, tiny
from tests.adapted import loaded
from tests.machines import CPU as HERE
from tests.machines import H200

MODEL = ModelConfig("m", "", "int4", "", None, ())
CPU = run_blocks.COMPUTE
GPU = replace(CPU, device="cuda")


FUSED = {
    "Liger": (GPU, ("liger_kernel",), "liger", "Liger's norms"),
    "nothing extra installed": (GPU, (), "off", "liger-kernel is not installed"),
    "off": (replace(GPU, fused_kernels="off"), ("liger_kernel",), "off", "switched off"),
    "CPU": (CPU, ("liger_kernel",), "off", "for a CPU"),
}


@pytest.mark.parametrize(("compute", "packages", "used", "why"), FUSED.values(), ids=FUSED.keys())
def test_norms_and_activations_are_fused_by_what_is_there(
    monkeypatch: pytest.MonkeyPatch, compute: ComputeConfig, packages: tuple[str, ...], used: str, why: str
) -> None:
    monkeypatch.setattr(planning, "has_package", lambda package: package in packages)
    monkeypatch.setattr(planning, "liger_knows", lambda _: True)
    line = kernel_plan(compute, MODEL, H200, tiny.tiny_model(), unpacked=0, free=0).lines["fused"]
    assert line.used == used
    assert why in line.reason


@pytest.mark.parametrize(
    ("change", "kind", "is_fused"),
    [
        ({}, "lora", True),
        ({}, "dora", False),
        ({"fsdp": True}, "dora", False),
        ({"fused_kernels": "off"}, "lora", False),
        ({"dtype": "fp32"}, "lora", True),
        ({"torch_compile": True}, "lora", False),
    ],
)
def test_plain_lora_is_fused_and_dora_is_ours(change: dict[str, Any], kind: Any, *, is_fused: bool) -> None:
    model = add_adapter(tiny.tiny_model(), replace(run_blocks.ADAPTER, type=kind))
    compute = replace(CPU, **change)
    plan = kernel_plan(compute, MODEL, HERE, model.get_base_model(), unpacked=0, free=0)
    plan = apply_adapter_kernels(plan, model, compute)
    assert ("lora" in plan.lines) == is_fused
    assert bool(getattr(model, "dora_layers", ())) == (kind == "dora" and not compute.fsdp)


@pytest.mark.parametrize("known", [True, False])
def test_liger_is_used_and_counted_on_for_what_it_knows(monkeypatch: pytest.MonkeyPatch, *, known: bool) -> None:
    """It leaves a model that it does not know as it is, without a word."""
    taken: list[Any] = []
    package, inside = ModuleType("liger_kernel.transformers"), ModuleType("liger_kernel.transformers.monkey_patch")
    package._apply_liger_kernel_to_instance = lambda model, **_: taken.append(model)  # type: ignore[attr-defined]
    inside.MODEL_TYPE_TO_APPLY_LIGER_FN = {"llama" if known else "gemma": None}  # type: ignore[attr-defined]
    for name, module in (("liger_kernel", package), (package.__name__, package), (inside.__name__, inside)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(planning, "has_package", lambda name: name == "liger_kernel")
    base = tiny.tiny_model()
    plan = kernel_plan(GPU, MODEL, H200, base, unpacked=0, free=0)
    assert (plan.fused, plan.lines["fused"].used) == (known, "liger" if known else "off")
    assert ("no kernels for llama" in plan.lines["fused"].reason) is not known
    apply_kernels(plan, base, GPU)
    assert taken == [base] * known


COPIES: dict[str, tuple[Any, int, bool]] = {
    "auto with room": ("auto", 2**40, True),
    "auto without": ("auto", 1000, False),
    "always": ("always", 0, True),
    "never": ("never", 2**40, False),
}


@pytest.mark.parametrize(("asked", "free", "dequantized"), COPIES.values(), ids=COPIES.keys())
def test_the_copy_is_made_where_it_is_asked_or_fits(tmp_path: Path, asked: Any, free: int, dequantized: bool) -> None:
    compute = replace(CPU, dequantized_copy=asked)
    model = loaded(tiny.tiny_model_folder(tmp_path), "int4", torch.bfloat16)
    plan = kernel_plan(compute, MODEL, HERE, model, unpacked=copy_bytes(model), free=free)
    apply_kernels(plan, model, compute)
    assert plan.dequantized is (plan.lines["copy"].used == "bf16") is dequantized
    assert any(isinstance(module, Linear4bit) for module in model.modules()) is not dequantized
