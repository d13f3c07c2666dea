"""A model as one GGUF file: weights under llama.cpp's names, its tokenizer, its template.

Written for the architectures whose tensors need no more than a new name: Llama (and SmolLM2), Qwen2, Qwen3. Tensor names
come from the gguf package's map; rows of q and k are reordered for Llama, because llama.cpp turns neighboring pairs where
transformers turns halves (LlamaModel.permute of its converter).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
from transformers import PreTrainedModel

from expert_cli.errors import InputError
from expert_cli.inference.expert import PromptRenderer
from expert_cli.model.loading.gguf_tokenizer import RULES, pre_tokenizer
from expert_cli.model.tokenizer import TokenizerInfo

GgufType = Literal["q8_0", "f16"]
ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""model_type of transformers, and general.architecture: both have one name."""
QWEN3_HEAD_DIM = 128
"""transformers 5.23 (integrations/ggml) does not read attention.key_length of a Qwen3; all published ones have this."""
_PROBE = "The 2nd   answer:\n\n  it's 12345.67 for Müller-Lüdenscheidt (SELECT a FROM b) \t{x_1: [1, 22, 333]}  \r\n 東京 don't"


def require_writable(config: Any, rope: Mapping[str, Any], tokenizer: TokenizerInfo) -> None:
    """Raise InputError for a model that cannot be written as GGUF. rope: laid over the configuration's rotary positions."""
    rope = {**(getattr(config, "rope_parameters", None) or {}), **rope}
    kind = rope.get("rope_type", "default")
    if config.model_type not in ARCHITECTURES:
        raise _refused(f"the architecture {config.model_type} is not written here ({', '.join(ARCHITECTURES)} are)")
    if kind != "default":
        raise _refused(f"rotary positions of the type {kind} are not written here")
    if config.model_type == "qwen3" and config.head_dim != QWEN3_HEAD_DIM:
        raise _refused(f"transformers would read head_dim {config.head_dim} as {QWEN3_HEAD_DIM}")
    _rule(tokenizer)


def _refused(what: str) -> InputError:
    converter = "python convert_hf_to_gguf.py FOLDER --outfile X.gguf"
    return InputError(f"--gguf: {what}", f"export --merge --output FOLDER, then llama.cpp's converter: {converter}")


def write_gguf(path: Path, model: PreTrainedModel, renderer: PromptRenderer, *, name: str, kind: GgufType) -> None:
    """Write a model; its answers stop at the end token of the renderer's template. Matrices as `kind`, vectors in fp32."""
    config, architecture = model.config, model.config.model_type
    writer = gguf.GGUFWriter(path, architecture)
    _add_shape(writer, config, name)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind.upper()}"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _add_tokenizer(writer, renderer, config.vocab_size)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], config.num_hidden_layers)
    for key, value in model.state_dict().items():
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        short = names.get_name(key, try_suffixes=(".weight", ".bias"))
        if short is None:
            raise _refused(f"{key} has no name in a GGUF of {architecture}")
        array = value.float().cpu().numpy()
        if architecture == "llama":
            array = _neighboring(key, array, config)
        stored = gguf.GGMLQuantizationType[kind.upper()]
        if array.ndim < 2:
            stored = gguf.GGMLQuantizationType.F32
        elif array.shape[-1] % 32:  # blocks do not fit every width
            stored = gguf.GGMLQuantizationType.F16
        writer.add_tensor(short, gguf.quants.quantize(array, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _neighboring(key: str, array: np.ndarray[Any, Any], config: Any) -> np.ndarray[Any, Any]:
    """Return a matrix whose rows that are turned together are neighbors; of q and k alone, any other as it is."""
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


def _add_tokenizer(writer: gguf.GGUFWriter, renderer: PromptRenderer, rows: int) -> None:
    """Write a byte-level BPE; rows of the embedding beyond its tokens are told as unused, as llama.cpp does."""
    tokenizer = renderer.tokenizer
    model = json.loads(tokenizer.backend.to_str())["model"]
    tokens, kinds = [f"[PAD{n}]" for n in range(rows)], [gguf.TokenType.UNUSED] * rows
    for token, number in model["vocab"].items():
        tokens[number], kinds[number] = token, gguf.TokenType.NORMAL
    for number, added in tokenizer.backend.get_added_tokens_decoder().items():
        tokens[number] = added.content
        kinds[number] = gguf.TokenType.CONTROL if added.special else gguf.TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_rule(tokenizer))
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]])
    writer.add_eos_token_id(tokens.index(renderer.template.end_token))
    writer.add_pad_token_id(tokenizer.pad_id)
    bos = tokenizer.hf.bos_token
    if bos in tokens:
        writer.add_bos_token_id(tokens.index(bos))
    writer.add_add_bos_token(tokenizer.backend.encode("a", add_special_tokens=True).tokens[:1] == [bos])
    writer.add_chat_template(renderer.template.jinja)


def _rule(tokenizer: TokenizerInfo) -> str:
    """Return the name of the rule that splits text as this tokenizer does. Raises InputError for one without a name here."""
    splitter = tokenizer.backend.pre_tokenizer
    if splitter is not None and json.loads(tokenizer.backend.to_str())["model"]["type"] == "BPE":
        wanted = splitter.pre_tokenize_str(_PROBE)
        for rule in RULES:
            known = pre_tokenizer(rule)
            if known is not None and known.pre_tokenize_str(_PROBE) == wanted:
                return rule
    raise _refused(f"this tokenizer splits text in a way without a name here ({', '.join(RULES)} have one)")
