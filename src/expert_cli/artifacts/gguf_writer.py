"""Writes a model as one GGUF file, with its tokenizer and chat template, and a Modelfile for Ollama.

Supports architectures whose tensors only need new names, from the gguf package's map. For Llama the rows of q and k are
permuted: llama.cpp rotates neighboring pairs, transformers halves (LlamaModel.permute of its converter).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
from transformers import PreTrainedModel

from expert_cli.data.templates.chat import Template
from expert_cli.errors import ExpertError, InputError
from expert_cli.inference.expert_config import GenerationConfig
from expert_cli.inference.prompts import PromptRenderer
from expert_cli.model.loading.gguf import RULES, pre_tokenizer
from expert_cli.model.tokenizer import TokenizerInfo

GgufType = Literal["q8_0", "f16"]
ARCHITECTURES = ("llama", "qwen2", "qwen3")  # model_type in transformers, general.architecture in GGUF
_PROBE = "The 2nd   answer:\n\n  it's 12345.67 for Müller-Lüdenscheidt (SELECT a FROM b) \t{x_1: [1, 22, 333]}  \r\n 東京 don't"


def require_writable(config: Any, rope: Mapping[str, Any], tokenizer: TokenizerInfo) -> None:
    """Raise InputError for a model that cannot be written as GGUF. rope: overrides the configuration's rotary settings."""
    rope = {**(getattr(config, "rope_parameters", None) or {}), **rope}
    if config.model_type not in ARCHITECTURES:
        raise _refused(f"the architecture {config.model_type} is not written here ({', '.join(ARCHITECTURES)} are)")
    if rope.get("rope_type", "default") != "default":
        raise _refused(f"rotary positions of the type {rope['rope_type']} are not written here")
    if config.model_type == "qwen3" and config.head_dim != 128:  # transformers 5.23 ignores attention.key_length there
        raise _refused(f"transformers would read head_dim {config.head_dim} as 128")
    if (most := max(tokenizer.backend.get_vocab(with_added_tokens=True).values())) >= config.vocab_size:
        raise _refused(f"the tokenizer has ids up to {most}, but the embedding has {config.vocab_size} rows")
    _rule(tokenizer)


def _refused(what: str) -> InputError:
    converter = "python convert_hf_to_gguf.py FOLDER --outfile X.gguf"
    return InputError(f"--gguf: {what}", f"export --merge --output FOLDER, then llama.cpp's converter: {converter}")


def write_gguf(path: Path, model: PreTrainedModel, renderer: PromptRenderer, *, name: str, kind: GgufType) -> None:
    """Write a model with the end token of the renderer's template. Matrices as `kind`, vectors in fp32."""
    config, architecture = model.config, model.config.model_type
    writer = gguf.GGUFWriter(path, architecture)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    shape = {"name": name, "context_length": config.max_position_embeddings, "embedding_length": config.hidden_size}
    shape |= {"block_count": config.num_hidden_layers, "feed_forward_length": config.intermediate_size}
    shape |= {"head_count": config.num_attention_heads, "head_count_kv": config.num_key_value_heads}
    shape |= {"key_length": head_dim, "value_length": head_dim, "layer_norm_rms_eps": config.rms_norm_eps}
    theta = float((config.rope_parameters or {}).get("rope_theta", 1e4))
    shape |= {"vocab_size": config.vocab_size, "rope_freq_base": theta}
    shape |= {"rope_dimension_count": head_dim} if config.model_type == "llama" else {}
    for key, value in shape.items():
        getattr(writer, f"add_{key}")(value)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind.upper()}"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _add_tokenizer(writer, renderer, config.vocab_size)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], config.num_hidden_layers)
    tied = ("lm_head.weight",) if config.tie_word_embeddings else ()
    for key, value in [pair for pair in model.state_dict().items() if pair[0] not in tied]:
        short = names.get_name(key, try_suffixes=(".weight", ".bias"))
        if short is None:
            raise _refused(f"{key} has no name in a GGUF of {architecture}")
        array = value.float().cpu().numpy()
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(key.split(".")[-2])
        if architecture == "llama" and heads:
            array = array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
        fitting = kind if array.shape[-1] % 32 == 0 else "f16"  # blocks need a multiple of 32 columns
        stored = gguf.GGMLQuantizationType["F32" if array.ndim < 2 else fitting.upper()]
        writer.add_tensor(short, gguf.quants.quantize(np.ascontiguousarray(array), stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter, renderer: PromptRenderer, rows: int) -> None:
    """Write a byte-level BPE; embedding rows beyond its tokens are marked as unused, as llama.cpp does."""
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
    """Return llama.cpp's name for this tokenizer's pre-tokenization. Raises InputError if it is not known here."""
    splitter = tokenizer.backend.pre_tokenizer
    if splitter is not None and json.loads(tokenizer.backend.to_str())["model"]["type"] == "BPE":
        known = {rule: found.pre_tokenize_str(_PROBE) for rule in RULES if (found := pre_tokenizer(rule)) is not None}
        wanted = splitter.pre_tokenize_str(_PROBE)
        if rule := next((rule for rule, found in known.items() if found == wanted), ""):
            return rule
    raise _refused(f"this tokenizer splits text in a way without a name here ({', '.join(RULES)} have one)")


def modelfile(gguf_name: str, template: Template, decoding: GenerationConfig, ends: Iterable[str]) -> str:
    """Return the Modelfile; without a temperature, decoding is greedy. ends: tokens that end an answer."""
    place = "\ue000"
    text = template.prompt([{"role": "user", "content": place}]).removeprefix(template.bos_token)
    if text.count(place) != 1 or '"""' in text:
        raise ExpertError(f"the template {template.name} cannot be written into a Modelfile")
    # braces would start an action of Go's template language
    text = re.sub(r"\{\{|\}\}", lambda braces: f'{{{{ "{braces[0]}" }}}}', text).replace(place, "{{ .Prompt }}")
    values = {"temperature": 0, **decoding.sampling()}
    lines = [
        f"FROM ./{gguf_name}",
        f'TEMPLATE """{text}"""',
        *(f"PARAMETER {name} {value:g}" for name, value in values.items()),
        # Ollama (parser/parser.go, unquote) strips the quotes but has no escapes: line feeds and quotes are written as they are
        *(f'PARAMETER stop """{stop}"""' for stop in dict.fromkeys((*ends, *decoding.stops))),
    ]
    return "\n".join(lines) + "\n"
