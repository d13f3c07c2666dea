"""A whole training step of the GPU path on fake CUDA tensors: it runs, on the card alone, and never waits for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainingArguments

from expert_cli.data.packing.batches import Collator
from expert_cli.manifest.key import declared
from expert_cli.manifest.keys.optim import OPTIMIZERS
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.model.activation_checkpointing import enable_activation_checkpointing
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.model.kernels.dora import refresh_norms
from expert_cli.model.kernels.select import KernelPlan
from expert_cli.model.loading.quantize import DTYPES
from expert_cli.training.gradients import Gradients
from tests import tiny
from tests.fake_cuda import FakeCuda, fake_cuda
from tests.fake_step import Asked, planned_base, planned_model
from tests.kernel_counts import TO_HOST, KernelCounter
from tests.machines import H200

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


@dataclass
class Step:
    """What a step left, and how the card was asked. names: the kernels'."""

    plan: KernelPlan
    loss: torch.Tensor
    parameters: list[torch.nn.Parameter]
    names: Counter[str]
    waits: list[str]


def pack(*lengths: int) -> dict[str, torch.Tensor]:
    positions = torch.cat([torch.arange(n) for n in lengths])
    ids = positions + 3
    return {"input_ids": ids, "labels": torch.where(positions < 2, -100, ids), "position_ids": positions}


def step(architecture: str, quantization: str, shape: dict[str, Any] = tiny.SHAPE, **config: Any) -> Step:
    asked = Asked({**shape, "model_type": architecture}, quantization, config, H200.gpus[0])
    compute = asked.compute
    counter = KernelCounter()
    with fake_cuda() as cuda:
        base, plan = planned_base(asked, cuda)
        model, plan = planned_model(asked, base, plan)
        enable_activation_checkpointing(base, compute.checkpointing, reentrant=compute.reentrant)
        module = CausalLoss(model, full_logits=plan.full_logits).train()
        gradients = Gradients(module.named_parameters())
        optimizer = optimizer_of(cuda, "adamw_torch_fused", gradients.parameters)
        with cuda.real():
            batch = Collator(0, plan.layout)([pack(5, 9, 2), pack(7, 8)])
            del batch["real_tokens"]
        inputs = cuda.place(batch)
        with counter:
            with torch.autocast("cuda", dtype=DTYPES[compute.dtype]):
                loss = module(**inputs) * (1 / 3)
            loss.backward()
            gradients.clip(1.0)
            optimizer.step()
            refresh_norms(model)
    return Step(plan, loss, gradients.parameters, counter.names, cuda.waits)


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
    assert {(p.grad.device.type, p.grad.dtype) for p in found.parameters if p.grad is not None} == {
        ("cuda", torch.float32)
    }
    assert all(p.grad is not None for p in found.parameters)
    layers = tiny.SHAPE["num_hidden_layers"]
    assert found.names["_varlen_attn"] == layers * (2 if "recomputed" in setting else 1)
    assert found.names["_varlen_attn_backward"] == layers
    assert (found.names["dequantize_4bit"] > 0) is (weights == "NF4")
    assert found.waits == []
    assert [name for name in found.names if name.endswith(TO_HOST)] == []


@pytest.mark.parametrize("optim", [name for name in OPTIMIZERS if name != "adagrad"])
def test_an_optimizer_waits_for_the_card_as_its_effect_says(optim: str) -> None:
    """torch's Adagrad cannot be asked: it reads its number of steps, which lies on the CPU, and a fake one has no value."""
    with fake_cuda() as cuda:
        parameters = [torch.nn.Parameter(torch.empty(64, 128)) for _ in range(3)]
        for parameter in parameters:
            parameter.grad = torch.empty_like(parameter)
        optimizer_of(cuda, optim, parameters).step()
    told = "waits" in declared(TrainingConfig, "optim").effect_of(optim, {})
    assert told is (len(cuda.waits) >= len(parameters))
    assert told or not cuda.waits
