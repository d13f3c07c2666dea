"""Tiny GGUF files for tests, written as llama.cpp's converter writes them."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import torch

from tests import tiny

HEADS, KEY_HEADS = 4, 2
_NAMES = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)


def write_gguf(
    path: Path,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    *,
    leave_out: str = "",
    architecture: str = "llama",
    pre: str = "gpt-2",
) -> dict[str, torch.Tensor]:
    """Write `tiny_model("llama")`, matrices as `kind`; return the values a reader must find, by transformers' names."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_context_length(2048)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(128)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_rope_dimension_count(16)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(384)
    _add_tokenizer(writer, pre)
    expected = {}
    for name, value in tiny.tiny_model("llama").state_dict().items():
        if name in ("lm_head.weight", leave_out):
            continue
        array = _permuted(name, value.numpy())
        stored = kind if array.ndim == 2 else gguf.GGMLQuantizationType.F32
        packed = gguf.quants.quantize(array, stored)
        writer.add_tensor(_NAMES.get_name(name, try_suffixes=(".weight",)) or "", packed, raw_dtype=stored)
        values = torch.from_numpy(gguf.quants.dequantize(packed, stored).reshape(array.shape).copy())
        expected[name] = _unpermuted(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def _add_tokenizer(writer: gguf.GGUFWriter, pre: str) -> None:
    backend = json.loads(tiny.tiny_backend().to_str())
    tokens = [token for token, _ in sorted(backend["model"]["vocab"].items(), key=lambda item: item[1])]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in tiny.CONTROL_TOKENS else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in backend["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(tiny.CHATML)


def _heads(name: str) -> int:
    return HEADS if "q_proj" in name else KEY_HEADS if "k_proj" in name else 0


def _permuted(name: str, array: np.ndarray) -> np.ndarray:
    """llama.cpp interleaves the two halves of each rotary head (LlamaModel.permute of its converter)."""
    if not (heads := _heads(name)):
        return array
    return array.reshape(heads, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape).copy()


def _unpermuted(name: str, values: torch.Tensor) -> torch.Tensor:
    if not (heads := _heads(name)):
        return values
    return values.reshape(heads, -1, 2, values.shape[1]).transpose(1, 2).reshape(values.shape)
