"""Every attention back end that this machine can run is plain softmax attention, on documents that lie end to end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import transformers as hf
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.nn.attention import varlen

from expert_cli.hardware.machine import Machine
from expert_cli.manifest.key import Dtype
from expert_cli.manifest.keys.compute import Attention
from expert_cli.model import isolation
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.attention_backends import BACKENDS, AttentionBackend, attention_backend, choose_attention
from tests import tiny
from tests.machines import CPU, H200, MI300X, T4
from tests.varlen_kernel import varlen_on_cpu

LENGTHS = (5, 1, 9, 3)
STARTS = torch.tensor([0, 5, 6, 15, 18, 18, 18], dtype=torch.int32)  # two empty documents


def mistral() -> Any:
    torch.manual_seed(0)
    return hf.MistralForCausalLM(hf.MistralConfig(**tiny.SHAPE, sliding_window=4))


MODELS = {"llama": tiny.tiny_model, "qwen3": lambda: tiny.tiny_model("qwen3"), "mistral, window 4": mistral}


@torch.no_grad()
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_packed_logits_are_those_of_the_documents_alone(backend: AttentionBackend, make: Any) -> None:
    model = make().eval().double()
    ids = torch.randint(384, (1, sum(LENGTHS)), generator=torch.Generator().manual_seed(1))
    positions = torch.cat([torch.arange(n) for n in LENGTHS])[None]
    attention.use(model, "eager")
    alone = torch.cat([model(input_ids=part).logits for part in ids.split(LENGTHS, 1)], 1)
    attention.use(model, backend.name)
    extra = attention.varlen_kwargs(STARTS, max(LENGTHS)) if backend.layout == "packed" else {}
    with varlen_on_cpu():
        packed = model(input_ids=ids, position_ids=positions, use_cache=False, **extra).logits
    torch.testing.assert_close(packed, alone, rtol=0, atol=2e-6)


CHOSEN: dict[str, tuple[Attention, Dtype, Machine, str, str]] = {
    "CPU": ("fused", "bf16", CPU, "documents", "without a mask"),
    "eager asked": ("eager", "bf16", CPU, "eager", "as requested"),
    "GPU": ("fused", "bf16", H200, "varlen", "FlashAttention inside PyTorch"),
    "GPU in fp32": ("fused", "fp32", H200, "documents", "fp32"),
    "AMD": ("fused", "bf16", MI300X, "documents", "for NVIDIA GPUs"),
    "older than Ampere": ("fused", "fp16", T4, "documents", "older than Ampere"),
}


@pytest.mark.parametrize(("asked", "dtype", "here", "name", "why"), CHOSEN.values(), ids=CHOSEN.keys())
def test_it_is_the_best_that_is_there(asked: Attention, dtype: Dtype, here: Machine, name: str, why: str) -> None:
    chosen, reason = choose_attention(asked, "cuda" if here.gpus else "cpu", dtype, here, tiny.tiny_model())
    assert chosen.name == name
    assert why in reason
    assert chosen.reason in reason


@pytest.mark.parametrize("name", ["varlen", "documents"])
def test_only_what_asks_for_nothing_can_be_captured(name: str) -> None:
    backend = attention_backend(name)
    model = tiny.tiny_model().to(torch.bfloat16)
    attention.use(model, backend.name)
    with FakeTensorMode(allow_non_fake_inputs=True):
        ids, starts = torch.zeros(1, 64, dtype=torch.int64), torch.zeros(5, dtype=torch.int32)
        with pytest.raises(DataDependentOutputException) if backend.captures else nullcontext():
            model(input_ids=ids, position_ids=ids, use_cache=False, **attention.varlen_kwargs(starts, 64))


LLAMA4 = {**tiny.SHAPE, "intermediate_size_mlp": 64, "num_local_experts": 2, "attention_chunk_size": 8}
GPT_OSS = {**tiny.SHAPE, "num_local_experts": 4, "pad_token_id": None}
GPT2 = {"vocab_size": 384, "n_embd": 64, "n_layer": 2, "n_head": 4}
LIMITED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "wide heads": (lambda: tiny.tiny_model(head_dim=320), "FlashAttention takes heads of 8 to 256", "documents"),
    "odd heads": (lambda: tiny.tiny_model(head_dim=12), "FlashAttention takes heads of 8 to 256", "documents"),
    "dropout": (lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2)), "attention has dropout", "documents"),
    "capped scores": (lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(**tiny.SHAPE)), "caps attention scores", "sdpa"),
    "chunks": (lambda: hf.Llama4ForCausalLM(hf.Llama4TextConfig(**LLAMA4)), "within chunks", "sdpa"),
    "sinks": (lambda: hf.GptOssForCausalLM(hf.GptOssConfig(**GPT_OSS)), "attention sinks", "sdpa"),
}


@pytest.mark.parametrize(("make", "why", "fused"), LIMITED.values(), ids=LIMITED.keys())
def test_no_back_end_is_chosen_for_a_model_beyond_its_limits(make: Callable[[], Any], why: str, fused: str) -> None:
    torch.manual_seed(0)
    model = make()
    chosen, reason = choose_attention("fused", "cuda", "bf16", H200, model)
    assert chosen.name == fused
    assert why in reason
    assert chosen.reason in reason
    if fused == "documents":
        attention.use(model, fused)
        isolation.prove(model.eval(), "packed", fused, 100)


HEADS, D = 4, 16
NOT_TOLD = "not told of groups"
Parts = tuple[torch.Tensor, ...]


@pytest.fixture
def seen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what reaches torch's function, which runs on this CPU; of torch 2.11, where NOT_TOLD, it knows no groups."""
    own, tensors = varlen.varlen_attn, []

    def look(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, max_q: int, max_k: int, **settings: Any) -> Any:
        tensors.extend((q, k, v))
        return own(q, k, v, cu_q, cu_k, max_q, max_k, **settings)

    monkeypatch.setattr(attention, "KNOWS_GROUPS", getattr(request, "param", "") != NOT_TOLD)
    monkeypatch.setattr(varlen, "varlen_attn", look)
    with varlen_on_cpu():
        yield tensors


def parts(key_heads: int) -> Parts:
    """Return q, k and v as transformers hands them over: [1, heads, tokens, d], of projections [1, tokens, heads, d]."""
    torch.manual_seed(0)
    forms = [(1, sum(LENGTHS), heads, D) for heads in (HEADS, key_heads, key_heads)]
    return tuple(torch.randn(form, dtype=torch.float64).transpose(1, 2).requires_grad_() for form in forms)


def read(function: Any, inputs: Parts, window: int | None = None, scaling: float | None = None) -> Parts:
    """Return the result and the gradients."""
    starts = attention.varlen_kwargs(STARTS, max(LENGTHS))
    out, _ = function(torch.nn.Module(), *inputs, None, scaling=scaling, sliding_window=window, **starts)
    weight = torch.arange(out.numel(), dtype=torch.float64).view_as(out).cos()
    return out, *torch.autograd.grad((out * weight).sum(), inputs)


def one_by_one(inputs: Parts, window: int | None = None, scaling: float | None = None) -> Parts:
    """The same by hand, a document at a time."""
    outputs = []
    for q, k, v in zip(*(torch.split(part, LENGTHS, 2) for part in inputs), strict=True):
        keys, values = (part.repeat_interleave(HEADS // part.shape[1], 1) for part in (k, v))
        distance = torch.arange(q.shape[2])[:, None] - torch.arange(q.shape[2])
        hidden = (distance < 0) | (distance >= (window or 99))
        scores = (q @ keys.mT * (scaling or D**-0.5)).masked_fill(hidden, -torch.inf)
        outputs.append(scores.softmax(-1) @ values)
    out = torch.cat(outputs, 2).transpose(1, 2)
    weight = torch.arange(out.numel(), dtype=torch.float64).view_as(out).cos()
    return out, *torch.autograd.grad((out * weight).sum(), inputs)


@pytest.mark.parametrize("seen", ["groups", NOT_TOLD], indirect=True)
@pytest.mark.parametrize("function", [attention.varlen_attention, attention.per_document_sdpa])
@pytest.mark.parametrize(("window", "scaling"), [(None, None), (3, 0.3)])
@pytest.mark.parametrize("key_heads", [1, 2, HEADS])
def test_values_and_gradients_are_those_of_each_document_by_itself(
    seen: Any, function: Any, key_heads: int, window: int | None, scaling: float | None
) -> None:
    inputs = parts(key_heads)
    found, known = read(function, inputs, window, scaling), one_by_one(inputs, window, scaling)
    for mine, other in zip(found, known, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-13)


@pytest.mark.parametrize("seen", ["groups", NOT_TOLD], indirect=True)
def test_nothing_is_copied_on_the_way_to_the_kernel(request: pytest.FixtureRequest, seen: list[torch.Tensor]) -> None:
    """Keys and values reach it as they lie, in groups where it knows them."""
    inputs = parts(2)
    read(attention.varlen_attention, inputs)
    repeats = NOT_TOLD in request.node.name
    assert [tensor.numel() for tensor in seen] == [(inputs[0] if repeats else tensor).numel() for tensor in inputs]
    assert repeats or [tensor.data_ptr() for tensor in seen] == [tensor.data_ptr() for tensor in inputs]
