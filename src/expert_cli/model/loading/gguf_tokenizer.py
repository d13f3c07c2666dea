"""The tokenizer that a GGUF file describes, built the same way under every version of transformers.

A GGUF has no tokenizer.json: it lists tokens, merges, types and the name of the rule that splits text before the merges.
For byte-level vocabularies (SmolLM2, Qwen, Llama 3) the tokenizer is built here, because transformers 5.17 gives SmolLM2
<|im_start|> as its end token and 5.23 splits digits otherwise than the model was trained ("    1": 3 + 1 spaces instead
of 4). Other vocabularies are left to transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from expert_cli.errors import IntegrityError
from expert_cli.utils.reporter import Reporter

_CONTROL, _USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
RULES = ("gpt-2", "smollm", "qwen2", "llama-bpe")
"""Names of rules that split text as no other name here does."""
_LLAMA3 = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def pre_tokenizer(rule: str) -> pre_tokenizers.PreTokenizer | None:
    """Return the splitter for a value of tokenizer.ggml.pre (llama.cpp, src/llama-vocab.cpp), None for one not known here."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if rule in {"default", "gpt-2"}:
        return byte_level
    if rule == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    if rule in {"qwen2", "deepseek-r1-qwen"}:
        return _split(_QWEN2)
    return _split(_LLAMA3) if rule in {"llama3", "llama-v3", "llama-bpe"} else None


def gguf_tokenizer(file: Path, metadata: dict[str, Any], report: Reporter) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a GGUF file whose `metadata` (key -> value) is read already.

    Raises IntegrityError where the file has no tokenizer.
    """
    tokens: Sequence[str] | None = metadata.get("tokenizer.ggml.tokens")
    if not tokens:
        raise IntegrityError(f"{file} holds no tokenizer", "Use another GGUF file, or the model as safetensors")
    special = _special_tokens(file, metadata, tokens)
    rule = metadata.get("tokenizer.ggml.pre", "default")
    splitter = pre_tokenizer(rule) if metadata.get("tokenizer.ggml.model") == "gpt2" else None
    if splitter is not None:
        tokenizer: PreTrainedTokenizerBase = PreTrainedTokenizerFast(
            tokenizer_object=_byte_level(metadata, tokens, splitter), **special
        )
    else:
        report.warning(
            f'{file.name}: its tokenizer (rule "{rule}") is read by transformers and may split text otherwise'
        )
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, trust_remote_code=False, **special)
    tokenizer.chat_template = metadata.get("tokenizer.chat_template")
    tokenizer.model_max_length = metadata.get(f"{metadata.get('general.architecture')}.context_length", 2048)
    return tokenizer


def _special_tokens(file: Path, metadata: dict[str, Any], tokens: Sequence[str]) -> dict[str, Any]:
    """The arguments for a transformers tokenizer; the end token is the one the file names."""
    named: dict[str, Any] = {}
    for name, key in _SPECIAL.items():
        number = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if number is None:
            continue
        if not 0 <= number < len(tokens):
            raise IntegrityError(
                f"{file}: {key}_token_id is {number}, but there are {len(tokens)} tokens", "Use another GGUF file"
            )
        named[name] = tokens[number]
    if metadata.get("tokenizer.ggml.add_bos_token", False) and "bos_token" in named:
        named["add_bos_token"] = True
    return named


def _byte_level(metadata: dict[str, Any], tokens: Sequence[str], splitter: pre_tokenizers.PreTokenizer) -> Tokenizer:
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    rule = metadata.get("tokenizer.ggml.pre", "default")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    # Llama 3 was trained with whole words of the vocabulary taken before any merge.
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=rule.startswith("llama")))
    if rule in {"qwen2", "deepseek-r1-qwen"}:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = splitter
    backend.decoder = decoders.ByteLevel()
    types = metadata.get("tokenizer.ggml.token_type", ())
    added = [
        AddedToken(token, normalized=False, special=kind == _CONTROL)
        for token, kind in zip(tokens, types, strict=False)
        if kind in (_CONTROL, _USER_DEFINED)
    ]
    backend.add_tokens(added)
    return backend
