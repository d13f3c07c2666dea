"""Packed documents attend within themselves alone: every back end, several architectures, and a leak is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, MistralConfig, MistralForCausalLM

from expert_cli.config.run_config import Layout
from expert_cli.model.kernels import attention
from tests import tiny

SHAPE: dict[str, Any] = {
    "vocab_size": 384,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
LENGTHS = (5, 1, 9, 3)
BACKENDS: dict[str, Layout] = {"documents": "packed", "sdpa": "padded", "eager": "padded"}


def mistral() -> torch.nn.Module:
    torch.manual_seed(0)
    return MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=4))


MODELS = {"llama": tiny.tiny_model, "qwen3": lambda: tiny.tiny_model("qwen3"), "mistral, window 4": mistral}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize(("backend", "layout"), BACKENDS.items())
def test_packed_logits_are_those_of_the_documents_alone(make: Any, backend: str, layout: Layout) -> None:
    model = make().eval()
    ids = torch.randint(384, (1, sum(LENGTHS)), generator=torch.Generator().manual_seed(1))
    positions = torch.cat([torch.arange(n) for n in LENGTHS])[None]
    starts = torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0).tolist()], dtype=torch.int32)
    with torch.no_grad():
        alone = torch.cat([model(input_ids=part).logits for part in ids.split(LENGTHS, 1)], 1)
        attention.use(model, backend)
        extra = attention.varlen_kwargs(starts, max(LENGTHS)) if layout == "packed" else {}
        packed = model(input_ids=ids, position_ids=positions, use_cache=False, **extra).logits
    torch.testing.assert_close(packed, alone, rtol=0, atol=2e-6)


def test_gradients_of_one_document_stay_in_it() -> None:
    q, k, v = (torch.randn(1, 2, 12, 8, requires_grad=True) for _ in range(3))
    starts = torch.tensor([0, 4, 12], dtype=torch.int32)
    out, _ = attention.per_document_sdpa(torch.nn.Module(), q, k, v, None, cu_seq_lens_q=starts)
    out[:, 4:].sum().backward()
    for tensor in (q, k, v):
        assert not tensor.grad[:, :, :4].any()
        assert tensor.grad[:, :, 4:].abs().sum() > 0 or tensor is q


def test_architectures_that_need_more_than_we_do_keep_their_own() -> None:
    torch.manual_seed(0)
    assert "caps attention scores" in attention.unsupported_reason(Gemma2ForCausalLM(Gemma2Config(**SHAPE)))
    assert attention.unsupported_reason(tiny.tiny_model()) == ""


def test_generation_has_its_own_attention_for_a_while() -> None:
    model = tiny.tiny_model()
    attention.use(model, "documents")
    with attention.plain_attention(model):
        assert model.config._attn_implementation == "sdpa"
    assert model.config._attn_implementation == attention.NAMES["documents"]
