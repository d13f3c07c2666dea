"""Tiny real models with layers that carry a state, one of each kind: seeded, fp32, in blocks of 32 or 64 tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import (
    FalconH1Config,
    FalconH1ForCausalLM,
    GraniteMoeHybridConfig,
    GraniteMoeHybridForCausalLM,
    JambaConfig,
    JambaForCausalLM,
    Lfm2Config,
    Lfm2ForCausalLM,
    Mamba2Config,
    Mamba2ForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
    Zamba2Config,
    Zamba2ForCausalLM,
)

from tests import tiny

BLOCK = 32
_SHAPE: dict[str, Any] = {name: value for name, value in tiny.SHAPE.items() if name != "head_dim"} | {
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": None,
}
_BOTH = {"layer_types": ["linear_attention", "full_attention"]}
DELTA: dict[str, Any] = {
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    **_BOTH,
}
_MAMBA: dict[str, Any] = {
    "mamba_n_heads": 4,
    "mamba_d_head": 32,
    "mamba_n_groups": 1,
    "mamba_d_state": 16,
    "mamba_chunk_size": BLOCK,
}
_EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_THREE = _SHAPE | {"num_hidden_layers": 3}
_ZAMBA2: dict[str, Any] = {
    "layers_block_type": ["linear_attention", "linear_attention", "hybrid"],
    "mamba_d_state": 16,
    "n_mamba_heads": 4,
    "mamba_ngroups": 1,
    "mamba_headdim": 32,
    "chunk_size": BLOCK,
    "num_mem_blocks": 1,
}
_GRANITE: dict[str, Any] = _SHAPE | _MAMBA | _BOTH | {"shared_intermediate_size": 128}
_JAMBA: dict[str, Any] = {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 8, "mamba_dt_rank": 4}
_ALONE = {name: _SHAPE[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers", "eos_token_id")} | {
    "bos_token_id": None,
    "pad_token_id": None,
    "num_heads": 4,
    "head_dim": 32,
    "state_size": 16,
    "n_groups": 1,
    "chunk_size": BLOCK,
}

_MODELS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "qwen3_5": (Qwen3_5ForCausalLM, partial(Qwen3_5TextConfig, **_SHAPE, **DELTA)),
    "qwen3_next": (
        Qwen3NextForCausalLM,
        partial(Qwen3NextConfig, **_SHAPE, **DELTA, **_EXPERTS, shared_expert_intermediate_size=32),
    ),
    "granite": (GraniteMoeHybridForCausalLM, partial(GraniteMoeHybridConfig, **_GRANITE, num_local_experts=0)),
    "falcon_h1": (FalconH1ForCausalLM, partial(FalconH1Config, **_SHAPE, **_MAMBA, mamba_d_ssm=128, head_dim=16)),
    "jamba": (JambaForCausalLM, partial(JambaConfig, **_SHAPE, **_JAMBA, num_experts=2, num_experts_per_tok=1)),
    "zamba2": (Zamba2ForCausalLM, partial(Zamba2Config, **_THREE, **_ZAMBA2)),
    "lfm2": (
        Lfm2ForCausalLM,
        partial(Lfm2Config, **_SHAPE, layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False),
    ),
    "mamba2": (Mamba2ForCausalLM, partial(Mamba2Config, **_ALONE)),
}
HYBRIDS = tuple(_MODELS)


def hybrid(name: str, **overrides: Any) -> Any:
    """Return a fresh model of a kind in `HYBRIDS`; `overrides` go to its config."""
    model, config = _MODELS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return model(config(**overrides))


def hybrid_folder(path: Path, name: str) -> Path:
    """Write such a model and `tiny_tokenizer` to the folder `path`; return it."""
    hybrid(name).save_pretrained(path)
    tiny.tiny_tokenizer().save_pretrained(path)
    return path
