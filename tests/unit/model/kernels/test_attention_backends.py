"""Every attention back end that this machine can run is plain softmax attention, on documents that lie end to end."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.nn.attention import varlen
from transformers import (
    AttentionInterface,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GptOssConfig,
    GptOssForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    MistralConfig,
    MistralForCausalLM,
)

from expert_cli.hardware import machine
from expert_cli.manifest.keys.compute import Attention, DeviceName
from expert_cli.manifest.types import Dtype
from expert_cli.model import isolation
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.attention_backends import (
    BACKENDS,
    AttentionBackend,
    choose_attention,
)
from tests import tiny
from tests.fake_cuda import fake_cuda
from tests.machines import CPU, H200, T4, install

LENGTHS = (5, 1, 9, 3)


def borders(count: int = len(LENGTHS)) -> torch.Tensor:
    """Return where the documents begin, and the end: int32 [count + 1]; what is missing is empty documents."""
    starts = torch.tensor([0, *LENGTHS]).cumsum(0).int()
    return torch.cat([starts, starts[-1:].expand(count + 1 - len(starts))])


def mistral() -> Any:
    torch.manual_seed(0)
    return MistralForCausalLM(MistralConfig(**tiny.SHAPE, sliding_window=4))


MODELS = {"llama": tiny.tiny_model, "qwen3": lambda: tiny.tiny_model("qwen3"), "mistral, window 4": mistral}


def where(backend: AttentionBackend) -> tuple[DeviceName, Dtype]:
    """Return the device and the best dtype that this machine runs a back end in; skips where there is none."""
    here, devices = machine.inspect(), ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",)
    places = list(itertools.product(devices, ("fp32", "bf16")))
    found = next((place for place in places if not backend.lacks(*place, here)), None)
    if found is None:
        pytest.skip(backend.lacks(*places[-1], here))
    return found


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_packed_logits_are_those_of_the_documents_alone(backend: AttentionBackend, make: Any) -> None:
    lengths = LENGTHS
    device, dtype = where(backend)
    half = dtype != "fp32"
    model = make().eval().to(device, torch.bfloat16 if half else torch.float32)
    ids = torch.randint(384, (1, sum(lengths)), generator=torch.Generator().manual_seed(1)).to(device)
    positions = torch.cat([torch.arange(n) for n in lengths])[None].to(device)
    starts = borders(len(lengths) + 2).to(device)
    with torch.no_grad():
        attention.use(model, "eager")
        alone = torch.cat([model(input_ids=part).logits for part in ids.split(lengths, 1)], 1)
        attention.use(model, backend.name)
        extra = attention.varlen_kwargs(starts, max(lengths)) if backend.layout == "packed" else {}
        packed = model(input_ids=ids, position_ids=positions, use_cache=False, **extra).logits
    torch.testing.assert_close(packed, alone, rtol=0, atol=0.05 if half else 2e-6)


def test_every_entry_is_one_that_transformers_knows() -> None:
    known = {"eager", *AttentionInterface().valid_keys()}
    assert [backend.name for backend in BACKENDS if backend.registered not in known] == []
    assert (
        len({backend.name for backend in BACKENDS})
        == len({backend.registered for backend in BACKENDS})
        == len(BACKENDS)
    )


@pytest.mark.parametrize("here", [CPU, H200, T4], ids=["cpu", "H200", "T4"])
@pytest.mark.parametrize("dtype", get_args(Dtype))
@pytest.mark.parametrize("asked", get_args(Attention))
def test_there_is_one_for_every_setting_and_machine(asked: Attention, dtype: Dtype, here: Any) -> None:
    device: DeviceName = "cuda" if here.gpus else "cpu"
    chosen, reason = choose_attention(asked, device, dtype, here)
    assert chosen.lacks(device, dtype, here) == ""
    assert chosen.reason in reason


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_only_what_has_fixed_shapes_and_asks_for_nothing_can_be_captured(backend: AttentionBackend) -> None:
    if backend.name == FLASH:
        pytest.skip("flash-attn is not installed")
    if backend.layout == "padded":
        assert "longest" in backend.captures
        return
    with fake_cuda():
        model = tiny.tiny_model().to(torch.bfloat16)
        attention.use(model, backend.name)
        ids, starts = torch.zeros(1, 64, dtype=torch.int64), torch.zeros(5, dtype=torch.int32)
        with pytest.raises(DataDependentOutputException) if backend.captures else nullcontext():
            model(input_ids=ids, position_ids=ids, use_cache=False, **attention.varlen_kwargs(starts, 64))


EXPERTS = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 32,
}
LATENT = {
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "head_dim": 8,
    "num_key_value_heads": 4,
}
FLASH = "flash_attention_2"
# what is taken where nothing but PyTorch is installed, and with FlashAttention
LIMITED: dict[str, tuple[Callable[[], Any], str, str, str]] = {
    "none": (tiny.tiny_model, "FlashAttention inside PyTorch", "varlen", FLASH),
    "windows": (mistral, "FlashAttention inside PyTorch", "varlen", FLASH),
    "wide heads": (lambda: tiny.tiny_model(head_dim=320), "heads of 320 are wider than", "documents", "documents"),
    "odd heads": (lambda: tiny.tiny_model(head_dim=12), "heads of 12 are no multiple of 8", "documents", FLASH),
    "latent heads": (
        lambda: DeepseekV3ForCausalLM(DeepseekV3Config(**tiny.SHAPE | EXPERTS | LATENT)),
        "values have heads of 16, queries and keys of 24",
        "documents",
        FLASH,
    ),
    "dropout": (
        lambda: GPT2LMHeadModel(GPT2Config(vocab_size=384, n_embd=64, n_layer=2, n_head=4)),
        "attention has dropout",
        "documents",
        FLASH,
    ),
    "capped scores": (lambda: Gemma2ForCausalLM(Gemma2Config(**tiny.SHAPE)), "caps attention scores", "sdpa", FLASH),
    "chunks": (
        lambda: Llama4ForCausalLM(
            Llama4TextConfig(**tiny.SHAPE, intermediate_size_mlp=64, num_local_experts=2, attention_chunk_size=8)
        ),
        "within chunks",
        "sdpa",
        "sdpa",
    ),
    "sinks": (
        lambda: GptOssForCausalLM(GptOssConfig(**tiny.SHAPE, num_local_experts=4, pad_token_id=None)),
        "attention sinks",
        "sdpa",
        "sdpa",
    ),
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", [name for name, entry in LIMITED.items() if entry[2] == "documents"])
def test_what_takes_their_place_keeps_documents_apart(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = LIMITED[name][0]().to(dtype).eval()
    attention.use(model, "documents")
    found = isolation.measure_leakage(model, "packed", isolation.SHORT)
    assert found.holds
    assert found.difference < (1e-6 if dtype == torch.float32 else 0.02)


def of_torch_2_10(
    query: Any, key: Any, value: Any, cu_seq_q: Any, cu_seq_k: Any, max_q: int, max_k: int, is_causal: bool = False
) -> Any:
    raise AssertionError("it cannot be told of the scale that every model has")


def test_varlen_is_for_a_torch_that_takes_what_models_hand_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_attention("fused", "cuda", "bf16", H200)[0].name == "varlen"
    monkeypatch.setattr(varlen, "varlen_attn", of_torch_2_10)
    chosen, reason = choose_attention("fused", "cuda", "bf16", H200)
    assert chosen.name == "documents"
    assert "torch 2.11 has" in reason
    monkeypatch.delattr(varlen, "varlen_attn")
    assert choose_attention("fused", "cuda", "bf16", H200)[0].name == "documents"
