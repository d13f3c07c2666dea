"""Converts a GGUF file into a model folder: dequantized once to bf16 safetensors in the cache, with its tokenizer.

The quantization is undone, not improved: a 4-bit GGUF gives a bf16 model with 4-bit accuracy.

A GGUF has no tokenizer.json: it lists tokens, merges, types and the name of the pre-tokenization. For byte-level vocabularies
(SmolLM2, Qwen, Llama 3) the tokenizer is built here, because transformers 5.17 gives SmolLM2 <|im_start|> as its end token,
and 5.23 splits digits differently from training (4 spaces and a 1 as 3 + 1 spaces). Other vocabularies are left to
transformers.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as hf_logging

from expert_cli._compat import gguf_read_once
from expert_cli.errors import EnvironmentProblem, InputError, IntegrityError
from expert_cli.model.loading.cache import materialize
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import first_line

FORMAT = 1
"""Version of the output of `convert`: a new number rebuilds every folder."""
_CONTROL, _USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
RULES = ("gpt-2", "smollm", "qwen2", "llama-bpe")
"""Names of pre-tokenizations; no two of them are equal."""


def convert(file: Path, sha256: str, cache: Path, report: Reporter) -> Path:
    """Return the folder converted from a GGUF file with the hash `sha256`, built in `cache` if it is missing.

    Raises IntegrityError for a file that is truncated or lacks tensors, InputError for an architecture that transformers
    cannot read, EnvironmentProblem for a full disk or too little memory.
    """
    folder = cache / "gguf" / f"{sha256[:24]}-v{FORMAT}"

    def build(target: Path) -> None:
        report.info(f"Unpacking {file.name} to bf16 safetensors, once, in {folder}")
        with gguf_read_once() as read:
            metadata, tensors = _read(file, read)
            tokenizer = gguf_tokenizer(file, metadata, report)
            model = _load(file, metadata)
        if "rope_freqs.weight" in tensors:
            report.warning(f"{file.name}: its scaled rotary frequencies are not carried over; better use safetensors")
        with quiet():
            model.save_pretrained(target)
            tokenizer.save_pretrained(target)

    materialize(folder, build, report)
    return folder


def gguf_sha256(file: Path, sha256: Callable[[Path], str]) -> str:
    """Return the sha256 of a GGUF file. Raises IntegrityError for any other file."""
    try:
        with file.open("rb") as opened:
            magic = opened.read(4)
        if magic == b"GGUF":
            return sha256(file)
    except OSError as error:
        raise EnvironmentProblem(f"{file}: cannot be read: {error.strerror or error}") from error
    raise IntegrityError(f"{file} is no GGUF file: it begins with {magic!r}", "fetch the file again")


def _read(file: Path, read: Callable[[str], GGUFReader]) -> tuple[dict[str, Any], set[str]]:
    """Return metadata and tensor names of a GGUF file. Raises IntegrityError if it is truncated."""
    try:
        reader = read(str(file))
        metadata = {key: field.contents() for key, field in reader.fields.items()}
        return metadata, {tensor.name for tensor in reader.tensors}
    except (ValueError, KeyError, IndexError, struct.error, OverflowError) as error:
        raise IntegrityError(f"{file} is cut off or damaged: {error}", "fetch the file again") from error


def load_gguf(file: Path, dtype: torch.dtype) -> Any:
    """Return the model of a GGUF file, dequantized, on the CPU. Raises as `convert`."""
    with gguf_read_once() as read:
        return _load(file, _read(file, read)[0], dtype)


def _load(file: Path, metadata: dict[str, Any], dtype: torch.dtype = torch.bfloat16) -> Any:
    try:
        # The loader of older architectures always draws its own progress bar.
        with quiet(), redirect_stderr(io.StringIO()):
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                file.parent,
                gguf_file=file.name,
                quantization_config=GgufConfig(dequantize=True),
                dtype=dtype,
                trust_remote_code=False,
                output_loading_info=True,
            )
            model, info = loaded
    except (ValueError, KeyError, NotImplementedError) as error:
        architecture = metadata.get("general.architecture")
        told = f"{file}: transformers cannot read this GGUF of architecture {architecture}: {first_line(error)}"
        raise InputError(told, "use the model as safetensors") from error
    except (MemoryError, RuntimeError) as error:
        told = f"{file} cannot be unpacked: {first_line(error)}"
        raise EnvironmentProblem(told, "it needs a little more than 2 bytes of memory for each weight") from error
    missing = sorted(info["missing_keys"])
    if missing:  # they would be random
        told = f"{file} lacks {len(missing)} weights of the model: {', '.join(missing[:3])}"
        raise IntegrityError(told, "use another GGUF file")
    return model


@contextmanager
def quiet() -> Iterator[None]:
    """Hide transformers' progress bars and messages, except errors, inside the context."""
    bars, level = hf_logging.is_progress_bar_enabled(), hf_logging.get_verbosity()
    hf_logging.disable_progress_bar()
    hf_logging.set_verbosity_error()
    try:
        yield
    finally:
        hf_logging.set_verbosity(level)
        if bars:
            hf_logging.enable_progress_bar()


def pre_tokenizer(rule: str) -> pre_tokenizers.PreTokenizer | None:
    """Return the pre-tokenizer for a value of tokenizer.ggml.pre (llama.cpp, src/llama-vocab.cpp), None for an unknown one."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if rule in {"default", "gpt-2"}:
        return byte_level
    if rule == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    patterns = dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _QWEN2)
    patterns |= dict.fromkeys(("llama3", "llama-v3", "llama-bpe"), _LLAMA3)
    if rule not in patterns:
        return None
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(patterns[rule]), behavior="isolated"), byte_level])


def gguf_tokenizer(file: Path, metadata: dict[str, Any], report: Reporter) -> PreTrainedTokenizerBase:
    """Return the tokenizer from a GGUF file's `metadata` (key -> value). Raises IntegrityError if it has none."""
    tokens: Sequence[str] | None = metadata.get("tokenizer.ggml.tokens")
    if not tokens:
        raise IntegrityError(f"{file} holds no tokenizer", "use another GGUF file, or the model as safetensors")
    special = _special_tokens(file, metadata, tokens)
    rule = metadata.get("tokenizer.ggml.pre", "default")
    splitter = pre_tokenizer(rule) if metadata.get("tokenizer.ggml.model") == "gpt2" else None
    if splitter is not None:
        tokenizer: PreTrainedTokenizerBase = PreTrainedTokenizerFast(
            tokenizer_object=_byte_level(metadata, tokens, splitter), **special
        )
    else:
        report.warning(f'{file.name}: its tokenizer (rule "{rule}") is read by transformers: it may split otherwise')
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, trust_remote_code=False, **special)
    tokenizer.chat_template = metadata.get("tokenizer.chat_template")
    tokenizer.model_max_length = metadata.get(f"{metadata.get('general.architecture')}.context_length", 2048)
    return tokenizer


def _special_tokens(file: Path, metadata: dict[str, Any], tokens: Sequence[str]) -> dict[str, Any]:
    """Return the special tokens as arguments for a transformers tokenizer; the file names the end token."""
    named: dict[str, Any] = {}
    for name, key in _SPECIAL.items():
        number = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if number is None:
            continue
        if not 0 <= number < len(tokens):
            told = f"{file}: {key}_token_id is {number}, but there are {len(tokens)} tokens"
            raise IntegrityError(told, "use another GGUF file")
        named[name] = tokens[number]
    if metadata.get("tokenizer.ggml.add_bos_token", False) and "bos_token" in named:
        named["add_bos_token"] = True
    return named


def _byte_level(metadata: dict[str, Any], tokens: Sequence[str], splitter: pre_tokenizers.PreTokenizer) -> Tokenizer:
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    rule = metadata.get("tokenizer.ggml.pre", "default")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    # Llama 3 was trained so that a word in the vocabulary becomes one token, without merges.
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
