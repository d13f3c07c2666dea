"""Every attention back end that this machine can run is plain softmax attention, on documents that lie end to end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.nn.attention import varlen

from expert_cli.hardware.machine import Machine
from expert_cli.manifest.key import Dtype
from expert_cli.manifest.keys.compute import Attention
from expert_cli.model import isolation
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.attention_backends import BACKENDS, AttentionBackend, attention_backend, choose_attention
from tests import tiny
from tests.fake_cuda import fake_cuda
from tests.machines import CPU, H200, T4, install
from tests.varlen_kernel import varlen_on_cpu

FLASH = "flash_attention_2"
LENGTHS = (5, 1, 9, 3)
STARTS = torch.tensor([0, 5, 6, 15, 18, 18, 18], dtype=torch.int32)  # two empty documents


def mistral() -> Any:
    torch.manual_seed(0)
    return hf.MistralForCausalLM(hf.MistralConfig(**tiny.SHAPE, sliding_window=4))


MODELS = {"llama": tiny.tiny_model, "qwen3": lambda: tiny.tiny_model("qwen3"), "mistral, window 4": mistral}


@torch.no_grad()
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("backend", [one for one in BACKENDS if one.name != FLASH], ids=lambda backend: backend.name)
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


INSTALLED = {"flash_attn": "flash-attn"}
CHOSEN: dict[str, tuple[Attention, Dtype, Machine, dict[str, str], str, str]] = {
    "CPU": ("fused", "bf16", CPU, {}, "documents", "no mask"),
    "CPU, flash asked": ("flash", "bf16", CPU, INSTALLED, "documents", "needs a GPU"),
    "eager asked": ("eager", "bf16", CPU, {}, "eager", "as asked"),
    "GPU": ("fused", "bf16", H200, INSTALLED, "varlen", "FlashAttention inside PyTorch"),
    "flash asked and there": ("flash", "bf16", H200, INSTALLED, FLASH, "as asked"),
    "flash 4 alone": ("flash", "bf16", H200, {"flash_attn": "flash-attn-4"}, "varlen", "flash-attn is not installed"),
    "flash in fp32": ("flash", "fp32", H200, INSTALLED, "documents", "flash-attn has no fp32"),
    "flash before Ampere": ("flash", "fp16", T4, INSTALLED, "documents", "older than Ampere"),
    "GPU in fp32": ("fused", "fp32", H200, {}, "documents", "fp32"),
    "older than Ampere": ("fused", "fp16", T4, {}, "documents", "older than Ampere"),
}


@pytest.mark.parametrize(("asked", "dtype", "here", "packages", "name", "why"), CHOSEN.values(), ids=CHOSEN.keys())
def test_it_is_the_best_that_is_there(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: Attention,
    dtype: Dtype,
    here: Machine,
    packages: dict[str, str],
    name: str,
    why: str,
) -> None:
    install(tmp_path, monkeypatch, **packages)
    chosen, reason = choose_attention(asked, "cuda" if here.gpus else "cpu", dtype, here)
    assert chosen.name == name
    assert why in reason
    assert chosen.reason in reason


@pytest.mark.parametrize("name", ["varlen", "documents"])
def test_only_what_asks_for_nothing_can_be_captured(name: str) -> None:
    backend = attention_backend(name)
    with fake_cuda():
        model = tiny.tiny_model().to(torch.bfloat16)
        attention.use(model, backend.name)
        ids, starts = torch.zeros(1, 64, dtype=torch.int64), torch.zeros(5, dtype=torch.int32)
        with pytest.raises(DataDependentOutputException) if backend.captures else nullcontext():
            model(input_ids=ids, position_ids=ids, use_cache=False, **attention.varlen_kwargs(starts, 64))


EXPERTS = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
LATENT = {"kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "num_key_value_heads": 4}
DEEPSEEK = {**tiny.SHAPE, **EXPERTS, **LATENT, "head_dim": 8, "q_lora_rank": 32, "moe_intermediate_size": 32}
LLAMA4 = {**tiny.SHAPE, "intermediate_size_mlp": 64, "num_local_experts": 2, "attention_chunk_size": 8}
GPT_OSS = {**tiny.SHAPE, "num_local_experts": 4, "pad_token_id": None}
GPT2 = {"vocab_size": 384, "n_embd": 64, "n_layer": 2, "n_head": 4}
# what is taken where nothing but PyTorch is installed, and with FlashAttention
LIMITED: dict[str, tuple[Callable[[], Any], str, str, str]] = {
    "wide heads": (lambda: tiny.tiny_model(head_dim=320), "heads of 320 are wider than", "documents", "documents"),
    "odd heads": (lambda: tiny.tiny_model(head_dim=12), "heads of 12 are no multiple of 8", "documents", FLASH),
    "latent heads": (
        lambda: hf.DeepseekV3ForCausalLM(hf.DeepseekV3Config(**DEEPSEEK)),
        "values have heads of 16, queries and keys of 24",
        "documents",
        FLASH,
    ),
    "dropout": (lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2)), "attention has dropout", "documents", FLASH),
    "capped scores": (
        lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(**tiny.SHAPE)),
        "caps attention scores",
        "sdpa",
        FLASH,
    ),
    "chunks": (lambda: hf.Llama4ForCausalLM(hf.Llama4TextConfig(**LLAMA4)), "within chunks", "sdpa", "sdpa"),
    "sinks": (lambda: hf.GptOssForCausalLM(hf.GptOssConfig(**GPT_OSS)), "attention sinks", "sdpa", "sdpa"),
}


@pytest.mark.parametrize(("make", "why", "fused", "flash"), LIMITED.values(), ids=LIMITED.keys())
def test_no_back_end_is_chosen_for_a_model_beyond_its_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], Any], why: str, fused: str, flash: str
) -> None:
    torch.manual_seed(0)
    model = make()
    chosen, reason = choose_attention("fused", "cuda", "bf16", H200, model)
    assert chosen.name == fused
    assert why in reason
    assert chosen.reason in reason
    install(tmp_path, monkeypatch, flash_attn="flash-attn")
    assert choose_attention("flash", "cuda", "bf16", H200, model)[0].name == flash
    if fused == "documents":
        attention.use(model, fused)
        isolation.prove(model.eval(), "packed", fused, 100)


def of_torch_2_10(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, max_q: int, max_k: int, is_causal: bool = False) -> Any:
    raise AssertionError("it cannot be told of the scale that every model has")


def test_varlen_is_for_a_torch_that_takes_what_models_hand_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen, "varlen_attn", of_torch_2_10)
    chosen, reason = choose_attention("fused", "cuda", "bf16", H200)
    assert chosen.name == "documents"
    assert "torch 2.11 has" in reason
    monkeypatch.delattr(varlen, "varlen_attn")
    assert choose_attention("fused", "cuda", "bf16", H200)[0].name == "documents"
