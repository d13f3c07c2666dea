"""A whole training step of the GPU path on fake CUDA tensors: it runs, on the card alone, and never waits for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainingArguments

from expert_cli.data.packing.batches import Collator, FixedShape
from expert_cli.manifest.key import declared
from expert_cli.manifest.keys.optim import OPTIMIZERS
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.model.flat_parameters import FlatParameters
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.model.kernels.kernel_plan import KernelPlan
from expert_cli.model.kernels.lora import refresh_norms
from expert_cli.model.layers import enable_activation_checkpointing
from expert_cli.model.loading.quantize import DTYPES
from tests import tiny
from tests.fake_cuda import FakeCuda, fake_cuda
from tests.fake_step import Asked, planned_base, planned_model
from tests.kernel_counts import TO_HOST, KernelCounter
from tests.machines import H200
from tests.packs import model_inputs, pack

SETTINGS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "fp16": {"fp16": True},
    "recomputed": {"gradient_checkpointing": True},
    "dropout": {"dropout": 0.1},
    "dora": {"adapter_type": "dora"},
}
WEIGHTS: dict[str, tuple[str, dict[str, Any]]] = {
    "bf16": ("bf16", {}),
    "NF4": ("int4", {"dequantized_copy": "never"}),
    "NF4 with copy": ("int4", {"dequantized_copy": "always"}),
}


CASES = [
    *(("qwen3", weights, "as it is") for weights in ("bf16", "NF4 with copy")),
    *(("llama", "NF4", setting) for setting in ("fp16", "recomputed", "dropout")),
    *(("llama", weights, "dora") for weights in WEIGHTS),
]


SHAPE = FixedShape(tokens=64, longest=32, borders=8, targets=(30,), padding=0.0)


@dataclass
class Step:
    """What a step left, and how the card was asked. names: the kernels'."""

    plan: KernelPlan
    loss: torch.Tensor
    flat: FlatParameters
    names: Counter[str]
    waits: list[str]


def step(architecture: str, quantization: str, **config: Any) -> Step:
    """Do what a captured step does, of two micro-batches."""
    asked = Asked({**tiny.SHAPE, "model_type": architecture}, quantization, config, H200.gpus[0])
    compute = asked.compute
    counter = KernelCounter()
    with fake_cuda() as cuda:
        base, plan = planned_base(asked, cuda)
        model, plan = planned_model(asked, base, plan)
        enable_activation_checkpointing(base, compute.checkpointing, reentrant=compute.reentrant)
        dtype = DTYPES[compute.dtype]
        module = CausalLoss(model, full_logits=plan.full_logits, autocast=dtype).train()
        flat = FlatParameters(module.named_parameters())
        optimizer = optimizer_of(cuda, "adamw_torch_fused", [flat.flat])
        collate = Collator(0, plan.layout, SHAPE)
        with cuda.real():
            batches = [model_inputs(collate, pack(5, 9, 2), pack(7, 8)), model_inputs(collate, pack(20))]
        placed = [cuda.place(batch) for batch in batches]
        with counter:
            for batch in placed:
                loss = module(**batch) * (1 / 3)
                loss.backward()
            flat.clip(1.0)
            optimizer.step()
            refresh_norms(model)
            flat.gradient.zero_()
    return Step(plan, loss, flat, counter.names, cuda.waits)


def optimizer_of(cuda: FakeCuda, name: str, parameters: list[torch.nn.Parameter]) -> Any:
    with cuda.real():
        known = {"paged_adamw": "paged_adamw_32bit"}.get(name, name)
        arguments = TrainingArguments(optim=known, use_cpu=True, report_to="none")
        kind, settings = Trainer.get_optimizer_cls_and_kwargs(arguments)
    return kind(parameters, **settings)


@pytest.mark.parametrize(("architecture", "weights", "setting"), CASES)
def test_a_step_runs_on_the_card_alone(architecture: str, weights: str, setting: str) -> None:
    quantization, more = WEIGHTS[weights]
    found = step(architecture, quantization, **more, **SETTINGS[setting])
    assert (found.plan.attention, found.plan.dequantized) == ("varlen", weights == "NF4 with copy")
    assert (found.loss.device.type, found.loss.dtype, found.loss.shape) == ("cuda", torch.float32, ())
    gradient = found.flat.gradient
    assert (gradient.device.type, gradient.dtype) == ("cuda", torch.float32)
    assert gradient.numel() == sum(parameter.numel() for parameter in found.flat.parameters)
    passes = 2 * tiny.SHAPE["num_hidden_layers"]
    assert found.names["_varlen_attn"] == passes * (2 if "recomputed" in setting else 1)
    assert found.names["_varlen_attn_backward"] == passes
    assert (found.names["dequantize_4bit"] > 0) is (weights == "NF4")
    assert found.waits == []
    assert [name for name in found.names if name.endswith(TO_HOST)] == []


@pytest.mark.parametrize("optim", [name for name in OPTIMIZERS if name != "adagrad"])
def test_an_optimizer_waits_for_the_card_as_its_effect_says(optim: str) -> None:
    """A paged one asks twice in a row: the second time there is nothing left to wait for.

    torch's Adagrad cannot be asked: it reads its number of steps, which lies on the CPU, and a fake one has no value.
    """
    with fake_cuda() as cuda:
        flat = FlatParameters((f"layer{n}.lora_A", torch.nn.Parameter(torch.empty(64, 128))) for n in range(3))
        parameters = flat.parameters if optim == "adafactor" else [flat.flat]
        optimizer_of(cuda, optim, parameters).step()
    told = "waits for the GPU once" in declared(TrainingConfig, "optim").effect_of(optim, {})
    assert len(cuda.waits) == told * (2 if "paged" in optim else 1)
