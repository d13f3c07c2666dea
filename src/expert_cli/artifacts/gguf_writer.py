"""A model as one GGUF file: weights under llama.cpp's names, its tokenizer, its template.

Written for the architectures whose tensors need no more than a new name: Llama (and SmolLM2), Qwen2, Qwen3. Tensor names
come from the gguf package's map; rows of q and k are reordered for Llama, because llama.cpp turns neighboring pairs where
transformers turns halves (LlamaModel.permute of its converter).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
import torch
from transformers import PreTrainedModel

from expert_cli.errors import InputError
from expert_cli.model.loading.gguf_tokenizer import RULES, pre_tokenizer
from expert_cli.model.tokenizer import TokenizerInfo

GgufType = Literal["q8_0", "f16"]
ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""model_type of transformers -> general.architecture."""
QWEN3_HEAD_DIM = 128
"""transformers 5.23 (integrations/ggml) does not read attention.key_length of a Qwen3; all published ones have this."""
_KINDS = {
    "q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
    "f16": (gguf.GGMLQuantizationType.F16, gguf.LlamaFileType.MOSTLY_F16),
}
_PROBE = "The 2nd   answer:\n\n  it's 12345.67 for Müller-Lüdenscheidt (SELECT a FROM b) \t{x_1: [1, 22, 333]}  \r\n 東京 don't"


def require_writable(config: Any, rope: dict[str, Any], tokenizer: TokenizerInfo) -> None:
    """Raise InputError for a model (its configuration, its rotary positions) that cannot be written as GGUF."""
    model_type = config.model_type
    if model_type not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise InputError(f"--gguf: the architecture {model_type} is not written here ({known} are)", "use --merge")
    kind = rope.get("rope_type", "default")
    if kind != "default":
        raise InputError(f"--gguf: rotary positions of the type {kind} are not written here", "use --merge")
    if model_type == "qwen3" and config.head_dim != QWEN3_HEAD_DIM:
        raise InputError(
            f"--gguf: transformers would read head_dim {config.head_dim} as {QWEN3_HEAD_DIM}", "use --merge"
        )
    _rule(tokenizer)


def write_gguf(
    path: Path, model: PreTrainedModel, tokenizer: TokenizerInfo, *, name: str, kind: GgufType, end_token: str
) -> None:
    """Write a model. end_token: what generation stops at. Matrices as `kind`, vectors in fp32."""
    config = model.config
    architecture = ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, architecture)
    wanted, file_type = _KINDS[kind]
    _add_shape(writer, config, name)
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _add_tokenizer(writer, tokenizer, config.vocab_size, end_token)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], config.num_hidden_layers)
    tied = bool(config.tie_word_embeddings)
    for key, value in model.state_dict().items():
        if tied and key == "lm_head.weight":
            continue
        short = names.get_name(key, try_suffixes=(".weight", ".bias"))
        if short is None:
            raise InputError(f"--gguf: {key} has no name in a GGUF of {architecture}", "use --merge")
        array = _array(key, value, config) if architecture == "llama" else value.float().cpu().numpy()
        stored = _stored(array, wanted)
        writer.add_tensor(short, gguf.quants.quantize(array, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _stored(array: np.ndarray[Any, Any], wanted: gguf.GGMLQuantizationType) -> gguf.GGMLQuantizationType:
    """Vectors stay fp32; blocks of 32 do not fit every width."""
    if array.ndim < 2:
        return gguf.GGMLQuantizationType.F32
    return wanted if array.shape[-1] % 32 == 0 else gguf.GGMLQuantizationType.F16


def _array(key: str, value: torch.Tensor, config: Any) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = value.float().cpu().numpy()
    heads = config.num_attention_heads if ".q_proj." in key else config.num_key_value_heads if ".k_proj." in key else 0
    if not heads:
        return array
    halves = array.reshape(heads, 2, -1, *array.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(array.shape))


def _add_shape(writer: gguf.GGUFWriter, config: Any, name: str) -> None:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_name(name)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_freq_base(float((config.rope_parameters or {}).get("rope_theta", 10000.0)))
    if config.model_type == "llama":
        writer.add_rope_dimension_count(head_dim)


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: TokenizerInfo, rows: int, end_token: str) -> None:
    """Write a byte-level BPE; rows of the embedding beyond its tokens are told as unused, as llama.cpp does."""
    state = json.loads(tokenizer.backend.to_str())
    tokens = [f"[PAD{n}]" for n in range(rows)]
    kinds = [gguf.TokenType.UNUSED] * rows
    for token, number in state["model"]["vocab"].items():
        tokens[number], kinds[number] = token, gguf.TokenType.NORMAL
    for number, added in tokenizer.backend.get_added_tokens_decoder().items():
        tokens[number] = added.content
        kinds[number] = gguf.TokenType.CONTROL if added.special else gguf.TokenType.USER_DEFINED
    merges = state["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_rule(tokenizer))
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    ids = {token: number for number, token in enumerate(tokens)}
    writer.add_eos_token_id(ids[end_token])
    writer.add_pad_token_id(tokenizer.pad_id)
    if tokenizer.hf.bos_token in ids:
        writer.add_bos_token_id(ids[tokenizer.hf.bos_token])
    starts = tokenizer.backend.encode("a", add_special_tokens=True).tokens
    writer.add_add_bos_token(starts[:1] == [tokenizer.hf.bos_token])
    if tokenizer.hf.chat_template:
        writer.add_chat_template(tokenizer.hf.chat_template)


def _rule(tokenizer: TokenizerInfo) -> str:
    """Return the name of the rule that splits text as this tokenizer does. Raises InputError for one without a name here."""
    splitter = tokenizer.backend.pre_tokenizer
    is_bpe = json.loads(tokenizer.backend.to_str())["model"]["type"] == "BPE"
    if is_bpe and splitter is not None:
        wanted = splitter.pre_tokenize_str(_PROBE)
        for rule in RULES:
            known = pre_tokenizer(rule)
            if known is not None and known.pre_tokenize_str(_PROBE) == wanted:
                return rule
    raise InputError(
        f"--gguf: this tokenizer splits text in a way without a name here ({', '.join(RULES)} have one)", "use --merge"
    )
