"""The check at the start of a run: what it lets pass is rounding, on every way through attention that the run takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import GptOssConfig, GptOssForCausalLM, MistralConfig, MistralForCausalLM

from expert_cli.errors import EnvironmentProblem
from expert_cli.model import isolation
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.attention_backends import BACKENDS, AttentionBackend, attention_backend
from tests import tiny
from tests.machines import CPU

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
