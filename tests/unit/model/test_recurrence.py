"""Layers that carry a state: packed documents leak through them, one document a row they do not, and train as alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from expert_cli.config.run_config import Layout
from expert_cli.data.packing.batches import Collator
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.model import isolation
from expert_cli.model.adapter import add_adapter, linear_names
from expert_cli.model.flops import attention_layers, flops, head_widths
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.attention_backends import attention_backend
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.model.kernels.kernel_plan import KernelPlan, apply_kernels, kernel_plan
from expert_cli.model.layers import decoder_layers, enable_activation_checkpointing, read_as_weights, recurrent_layers
from expert_cli.utils.length_histogram import LengthHistogram
from tests import run_blocks
from tests.machines import CPU
from tests.packs import model_inputs, pack
from tests.tiny_hybrids import HYBRIDS, hybrid
from tests.unit.model.kernels.test_kernel_plan import MODEL

COMPUTE = replace(run_blocks.COMPUTE, dtype="fp32")
ADAPTER = replace(run_blocks.ADAPTER, target_modules=("all-linear",), dropout=0.0)
LENGTHS = (40, 7, 130, 1, 64, 65)
LONG = 300


def prepared(name: str) -> tuple[Any, KernelPlan]:
    model = hybrid(name).requires_grad_(False)
    return model, apply_kernels(kernel_plan(COMPUTE, MODEL, CPU), model, COMPUTE, CPU)


IN_LAYOUTS: list[tuple[str, Layout]] = [(name, "padded") for name in HYBRIDS]
IN_LAYOUTS += [(name, "packed") for name in HYBRIDS if not attention_backend("documents").refuses(hybrid(name))]


@pytest.mark.parametrize(("name", "layout"), IN_LAYOUTS)
def test_packed_documents_leak(name: str, layout: Layout) -> None:
    model = hybrid(name)
    assert recurrent_layers(model)
    if layout == "packed":
        attention.use(model, "documents")
    with pytest.raises(EnvironmentProblem, match="other documents beside them change them by"):
        isolation.prove(model, layout, "documents", LONG)
    isolation.prove(model, layout, "documents", LONG, one_document=True)


@pytest.mark.filterwarnings("ignore:The following (rank|alpha)_pattern keys")  # peft, of experts
@pytest.mark.parametrize(
    ("name", "checkpointing", "full_logits"),
    [(name, "off", True) for name in HYBRIDS] + [(name, "all", False) for name in ("qwen3_5", "granite", "zamba2")],
)
def test_loss_and_gradients_are_those_of_the_documents_alone(name: str, checkpointing: Any, full_logits: bool) -> None:
    model, plan = prepared(name)
    assert plan.layout == "padded"
    loss_of = CausalLoss(add_adapter(model, ADAPTER), full_logits=full_logits).train()
    trained = {name: p for name, p in loss_of.named_parameters() if p.requires_grad}
    for n, parameter in enumerate(trained.values()):
        torch.nn.init.normal_(parameter, std=0.05, generator=torch.Generator().manual_seed(n))
    enable_activation_checkpointing(model, checkpointing, reentrant=False)

    def read(rows: Any) -> tuple[float, dict[str, torch.Tensor]]:
        loss = loss_of(**model_inputs(Collator(0, plan.layout), *rows))
        gradients = torch.autograd.grad(loss, list(trained.values()))
        return float(loss.detach()), dict(zip(trained, gradients, strict=True))

    documents = [pack(length) for length in LENGTHS]
    single = [read([document]) for document in documents]
    loss, gradients = read(documents)
    assert loss == pytest.approx(sum(found for found, _ in single), rel=1e-6)
    for part, gradient in gradients.items():
        assert gradient.norm() > 0, f"{part} does not train"
        assert torch.dist(gradient, sum(found[part] for _, found in single)) < 1e-4 * gradient.norm()


def test_an_adapter_on_weights_that_a_layer_reads_itself_trains_nothing_and_is_refused() -> None:
    model = hybrid("jamba").requires_grad_(False)
    (mixer,) = recurrent_layers(model)
    assert read_as_weights(mixer) == {"dt_proj"}
    assert "dt_proj" in linear_names(model)
    with pytest.raises(InputError, match="jamba reads the weights of dt_proj itself, past an adapter") as caught:
        add_adapter(model, replace(ADAPTER, target_modules=("q_proj", "dt_proj")))
    assert "x_proj" in caught.value.hint
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["dt_proj"], init_lora_weights=False))
    out = adapted(input_ids=torch.tensor([[5, 6, 7]])).logits
    assert not out.requires_grad, "if this fails, transformers calls the layer now: it need not be left out"


def test_what_peft_cannot_do_on_experts_is_told_with_what_can_be_written() -> None:
    model = hybrid("qwen3_next").requires_grad_(False)
    with pytest.raises(InputError, match="qwen3_next takes no dora adapter on these layers") as caught:
        add_adapter(model, replace(ADAPTER, type="dora"))
    assert '"adapter_type": "lora"' in caught.value.hint


def test_the_plan_tells_of_them() -> None:
    lines = {name: prepared(name)[1].lines for name in ("granite", "mamba2")}
    told = "GraniteMoeHybridMambaLayer in 1 of the model's layers carries a state"
    assert lines["granite"]["recurrence"].reason.startswith(told)
    assert (lines["mamba2"]["attention"].used, lines["mamba2"]["attention"].reason) == ("off", "no layer attends")


def test_layers_within_layers_are_one() -> None:
    names = [type(layer).__name__ for layer in decoder_layers(hybrid("zamba2"))]
    assert names == [*["Zamba2MambaDecoderLayer"] * 2, "Zamba2HybridLayer"]


def test_only_layers_that_attend_cost_more_with_longer_documents() -> None:
    attending = {"mamba2": 0, "granite": 1, "zamba2": 1, "nemotron_h": 1, "falcon_h1": 2, "lfm2": 1}
    for name, count in attending.items():
        model = hybrid(name)
        assert attention_layers(model.config) == count
        lengths = (LengthHistogram.of(np.array([length])) for length in (64, 128))
        short, long = (flops(model, of, recomputed=False).per_token for of in lengths)
        assert long - short == 6 * 64 * head_widths(model.config)[0] * count
