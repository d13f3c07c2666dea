"""Tiny real models and tokenizers for tests: made in the process, no network, under a second."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from expert_cli.data.templates.chat import Template
from expert_cli.data.templates.make_template import make_template

Architecture = Literal["llama", "qwen3"]

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Ids 0, 1, 2. The tokenizer's own end token is <|endoftext|>; the template ends a turn with <|im_end|>."""

CHATML = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_CORPUS = (
    "List the names of all customers who live in Berlin and ordered more than three items.",
    "SELECT name FROM customers WHERE city = 'Berlin' AND items > 3 ORDER BY name;",
    "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT, items INTEGER);",
    "MATCH (p:Person)-[:KNOWS]->(q:Person) RETURN p.name, count(q) AS friends ORDER BY friends DESC",
    '{"name": "Ada", "age": 36, "tags": ["math", "engine"], "active": true, "address": null}',
    "export function add(a: number, b: number): number { return a + b; }",
    "What is the capital of France? The capital of France is Paris. Thank you, and good night.",
    "user\nassistant\nsystem\n### Instruction:\n### Input:\n### Response:\n",
)


@cache
def tiny_backend(vocab_size: int = 384) -> Tokenizer:
    """Return a byte-level BPE of at most `vocab_size` tokens (256 bytes, 3 control tokens, merges).

    Any text round-trips. The object is shared: do not change it.
    """
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(CONTROL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_CORPUS, trainer)
    return backend


class IdsAsText(NamedTuple):
    """What tells where answers end, without a tokenizer: an answer's text is its ids, a space behind each."""

    stop_token_ids: frozenset[int]
    hf: Any = None
    pad_id: int = 0

    def decode(self, ids: Sequence[int]) -> str:
        """Return the ids, written down."""
        return "".join(f"{token} " for token in ids)


def template_for(tokenizer: PreTrainedTokenizerFast, name: str = "chatml", **options: Any) -> Template:
    """Return the template `name` for a tokenizer, whose own end token ends an answer where the template puts none."""
    return make_template(name, tokenizer, **{"eos_token": str(tokenizer.eos_token), **options})


class TinyTokenizer(NamedTuple):
    """What a store asks of a tokenizer."""

    sha256: str = "t"
    vocab_size: int = 384


def tiny_tokenizer(vocab_size: int = 384, *, chat_template: str | None = CHATML) -> PreTrainedTokenizerFast:
    """Return a fresh transformers tokenizer around `tiny_backend`; eos is <|endoftext|>, there is no pad token."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(tiny_backend(vocab_size).to_str()),
        eos_token=CONTROL_TOKENS[0],
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        model_max_length=2048,
    )
    tokenizer.chat_template = chat_template
    return tokenizer


SHAPE: dict[str, Any] = {
    "vocab_size": 384,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


def tiny_model(architecture: Architecture = "llama", *, vocab_size: int = 384, **overrides: Any) -> torch.nn.Module:
    """Return a seeded fp32 causal model: 2 layers, hidden 64, 4/2 heads, tied; `overrides` go to the config."""
    shape: dict[str, Any] = {
        **SHAPE,
        "vocab_size": vocab_size,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": 0,
        "pad_token_id": None,
    } | overrides
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: torch.nn.Module = (
            LlamaForCausalLM(LlamaConfig(**shape))
            if architecture == "llama"
            else Qwen3ForCausalLM(Qwen3Config(**shape))
        )
        return model


def tiny_model_folder(
    path: Path,
    architecture: Architecture = "llama",
    *,
    vocab_size: int = 384,
    chat_template: str | None = CHATML,
    dtype: torch.dtype = torch.float32,
    **overrides: Any,
) -> Path:
    """Write `tiny_model` and `tiny_tokenizer` to the folder `path`, as a model from the hub lies on disk; return it."""
    model: Any = tiny_model(architecture, vocab_size=vocab_size, **overrides)
    model.to(dtype).save_pretrained(path)
    tiny_tokenizer(vocab_size, chat_template=chat_template).save_pretrained(path)
    return path


def untrained_tokens(folder: Path, *, rows: slice = slice(1, 3), value: float = 0.02) -> Path:
    """Give the rows of <|im_start|> and <|im_end|> of a model's folder one value, as in a base model that never saw them."""
    weights = load_file(folder / "model.safetensors")
    for name in {"model.embed_tokens.weight", "lm_head.weight"} & weights.keys():
        weights[name][rows] = value
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
