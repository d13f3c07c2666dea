"""The check at the start of a run: what passes is rounding; layers with a state leak, and train one document a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    GptOssConfig,
    GptOssForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from expert_cli.config.run_config import Layout
from expert_cli.data.packing.batches import Collator
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.model import isolation
from expert_cli.model.adapter import add_adapter, fused_experts, linear_names
from expert_cli.model.flops import attention_layers, flops, head_widths
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.attention_backends import BACKENDS, AttentionBackend, attention_backend
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.model.kernels.kernel_plan import KernelPlan, apply_kernels, kernel_plan
from expert_cli.model.layers import decoder_layers, enable_activation_checkpointing, read_as_weights, recurrent_layers
from expert_cli.utils.length_histogram import LengthHistogram
from tests import run_blocks, tiny
from tests.machines import CPU
from tests.packs import model_inputs, pack
from tests.tiny_hybrids import HYBRIDS, hybrid
from tests.unit.model.kernels.test_kernel_plan import MODEL

HERE = [backend for backend in BACKENDS if not backend.lacks("cpu", "fp32", CPU)]
WINDOW = 16
LONG = 600
Call = Callable[..., Any]


def windowed() -> Any:
    torch.manual_seed(0)
    return MistralForCausalLM(MistralConfig(**tiny.SHAPE, sliding_window=WINDOW))


def prove(model: Any, longest: int, dtype: torch.dtype = torch.float32) -> None:
    attention.use(model, "documents")
    autocast = dtype if dtype != torch.float32 else None
    isolation.prove(model.to(dtype), "packed", "documents", longest, autocast=autocast)


@pytest.fixture
def instead(monkeypatch: pytest.MonkeyPatch) -> Callable[[Call], None]:
    """Let another function attend in place of `documents`; it gets the right one first."""

    def put(function: Call) -> None:
        def call(*given: Any, **settings: Any) -> Any:
            return function(attention.per_document_sdpa, *given, **settings)

        known = attention.AttentionInterface._global_mapping
        monkeypatch.setitem(known, attention_backend("documents").registered, call)

    return put


def joined(settings: dict[str, Any], tokens: int) -> dict[str, Any]:
    return settings | {"cu_seq_lens_q": torch.tensor([0, tokens], dtype=torch.int32)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("make", [tiny.tiny_model, lambda: tiny.tiny_model("qwen3"), windowed])
@pytest.mark.parametrize("backend", HERE, ids=lambda backend: backend.name)
def test_it_holds_on_every_back_end(make: Any, backend: AttentionBackend, dtype: torch.dtype) -> None:
    model = make().to(dtype).train()
    attention.use(model, backend.name)
    for lengths in isolation.packs(LONG, WINDOW):
        autocast = dtype if dtype != torch.float32 else None
        found = isolation.measure_leakage(model, backend.layout, lengths, autocast=autocast)
        assert found.holds
        assert found.seen == 0
        assert found.difference < (1e-6 if dtype == torch.float32 else 0.02)
    assert model.training
    assert not model.get_input_embeddings()._forward_hooks


def test_the_lengths_take_every_way_that_the_documents_of_a_run_take() -> None:
    assert isolation.packs(3, None) == [(3, 3, 3, 3)]
    assert isolation.packs(130, 128) == [(23, 61, 57, 9), (23, 130, 57)]
    assert isolation.packs(512, 128) == [(23, 61, 57, 9), (23, 136, 57)]
    assert isolation.packs(512, 128, one_document=True) == [(61,), (136,)]
    assert isolation.packs(4096, 4096) == [(23, 61, 57, 9)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("share", [1.0, 0.01])
def test_a_leak_through_one_head_of_one_layer_is_refused(
    instead: Callable[[Call], None], share: float, dtype: torch.dtype
) -> None:
    def leaky(right: Call, module: Any, query: Any, *rest: Any, **settings: Any) -> Any:
        out, _ = right(module, query, *rest, **settings)
        if module.layer_idx == 1:
            leak, _ = right(module, query, *rest, **joined(settings, query.shape[2]))
            out = torch.cat([out[:, :, :1].lerp(leak[:, :, :1], share), out[:, :, 1:]], 2)
        return out, None

    instead(leaky)
    with pytest.raises(EnvironmentProblem, match="documents of 23, 61, 57, 9 tokens: packed documents are"):
        prove(tiny.tiny_model(), 100, dtype)


def test_a_leak_of_documents_beyond_the_window_alone_is_refused(instead: Callable[[Call], None]) -> None:
    def leaky(right: Call, module: Any, query: Any, *rest: Any, **settings: Any) -> Any:
        long = int(settings["cu_seq_lens_q"].diff().max()) > settings["sliding_window"]
        return right(module, query, *rest, **(joined(settings, query.shape[2]) if long else settings))

    instead(leaky)
    with pytest.raises(EnvironmentProblem, match="23, 61, 57, 9 tokens") as caught:
        prove(windowed(), 100)
    assert "use_sdpa" in caught.value.hint
    prove(windowed(), WINDOW)


WRONG: dict[str, Call] = {
    "a window of one token less": lambda right, *of, **its: right(*of, **(its | {"sliding_window": WINDOW - 1})),
    "a window of one token more": lambda right, *of, **its: right(*of, **(its | {"sliding_window": WINDOW + 1})),
    "not a number": lambda right, *of, **its: (right(*of, **its)[0] * float("nan"), None),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_in_every_document_is_refused(instead: Callable[[Call], None], wrong: Call) -> None:
    instead(wrong)
    with pytest.raises(EnvironmentProblem, match="of their norm"):
        prove(windowed(), 100)


def scaled_by_the_batch(module: Any, given: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """As 8-bit weights do: one scale for all tokens of a batch, and every number rounded to it."""
    step = given[0].abs().max() / 127
    return (given[0] / step).round() * step


def test_what_rows_of_a_batch_change_in_each_other_is_no_leak_and_a_leak_beside_it_is_one(
    instead: Callable[[Call], None],
) -> None:
    model = tiny.tiny_model()
    model.model.layers[0].mlp.register_forward_pre_hook(scaled_by_the_batch)
    attention.use(model, "documents")
    found = isolation.measure_leakage(model, "packed", isolation.SHORT, autocast=torch.bfloat16)
    assert min(found.seen, found.may_see) > isolation.ROUNDING
    assert found.holds
    instead(
        lambda right, module, query, *rest, **settings: right(module, query, *rest, **joined(settings, query.shape[2]))
    )
    with pytest.raises(EnvironmentProblem):
        prove(model, 100, torch.bfloat16)


def test_an_architecture_that_leaks_by_itself_is_refused_and_told_what_is_left() -> None:
    """transformers 5.23 makes no mask of documents for gpt-oss."""
    torch.manual_seed(0)
    model = GptOssForCausalLM(GptOssConfig(**tiny.SHAPE, num_local_experts=4, pad_token_id=None))
    assert "attention sinks" in attention_backend("documents").refuses(model)
    with pytest.raises(EnvironmentProblem, match="other documents beside them change them by") as caught:
        isolation.prove(model, "padded", "eager", 100)
    assert caught.value.hint == 'write "packing": false and "batch_size": 1'
    isolation.prove(model, "padded", "eager", LONG, one_document=True)


COMPUTE = replace(run_blocks.COMPUTE, dtype="fp32")
ADAPTER = replace(run_blocks.ADAPTER, target_modules=("all-linear",), dropout=0.0)
LENGTHS = (40, 7, 130, 1, 64, 65)
FAR = 300


def prepared(name: str) -> tuple[Any, KernelPlan]:
    model = hybrid(name).requires_grad_(False)
    plan = kernel_plan(COMPUTE, MODEL, CPU, model, unpacked=0, free=0)
    apply_kernels(plan, model, COMPUTE)
    return model, plan


IN_LAYOUTS: list[tuple[str, Layout]] = [(name, "padded") for name in HYBRIDS]
IN_LAYOUTS += [(name, "packed") for name in HYBRIDS if not attention_backend("documents").refuses(hybrid(name))]


@pytest.mark.parametrize(("name", "layout"), IN_LAYOUTS)
def test_packed_documents_leak(name: str, layout: Layout) -> None:
    model = hybrid(name)
    assert recurrent_layers(model)
    if layout == "packed":
        attention.use(model, "documents")
    with pytest.raises(EnvironmentProblem, match="other documents beside them change them by"):
        isolation.prove(model, layout, "documents", FAR)
    isolation.prove(model, layout, "documents", FAR, one_document=True)


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
    with pytest.raises(InputError, match="no layer of jamba that takes an adapter is called dt_proj") as caught:
        add_adapter(model, replace(ADAPTER, target_modules=("q_proj", "dt_proj")))
    assert "x_proj" in caught.value.hint
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["dt_proj"], init_lora_weights=False))
    out = adapted(input_ids=torch.tensor([[5, 6, 7]])).logits
    assert not out.requires_grad, "if this fails, transformers calls the layer now: it need not be left out"


def test_weights_of_several_experts_are_named() -> None:
    config = Qwen3MoeConfig(**tiny.SHAPE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
    assert fused_experts(Qwen3MoeForCausalLM(config)) == ["down_proj", "gate_up_proj"]
    assert not any(fused_experts(hybrid(name)) for name in ("zamba2", "lfm2", "mamba2"))


def test_what_peft_cannot_do_on_experts_is_told_with_what_can_be_written() -> None:
    model = hybrid("qwen3_next").requires_grad_(False)
    with pytest.raises(InputError, match="qwen3_next takes no dora adapter on these layers") as caught:
        add_adapter(model, replace(ADAPTER, type="dora"))
    assert '"adapter_type": "lora"' in caught.value.hint


def test_the_plan_tells_of_them() -> None:
    lines = {name: prepared(name)[1].lines for name in ("granite", "mamba2")}
    told = "1 of the layers have a state"
    assert lines["granite"]["recurrence"].reason.startswith(told)
    assert (lines["mamba2"]["attention"].used, lines["mamba2"]["attention"].reason) == ("off", "no layer has attention")


def test_layers_within_layers_are_one() -> None:
    names = [type(layer).__name__ for layer in decoder_layers(hybrid("zamba2"))]
    assert names == [*["Zamba2MambaDecoderLayer"] * 2, "Zamba2HybridLayer"]


def test_only_layers_that_attend_cost_more_with_longer_documents() -> None:
    attending = {"mamba2": 0, "granite": 1, "zamba2": 1, "falcon_h1": 2, "lfm2": 1}
    for name, count in attending.items():
        model = hybrid(name)
        assert attention_layers(model.config) == count
        lengths = (LengthHistogram.of(np.array([length])) for length in (64, 128))
        short, long = (flops(model, of, recomputed=False).per_token for of in lengths)
        assert long - short == 6 * 64 * head_widths(model.config)[0] * count
