"""Loads the tokenizer of a base model, with the token that ends an answer and the chat template."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.runs.metrics import read_json
from expert_cli.utils.text import first_line

_PROBE = "Paris 4711"


@dataclass(frozen=True)
class TokenizerInfo:
    """A tokenizer and what training needs to know about it.

    backend: encodes; share it read-only. hf: the same in transformers' class. eos: the token that ends an assistant turn, the
    chat template's (<|im_end|>) if it differs from hf.eos_token. pad: may equal eos, because masking is by position. ends: at
    which the publisher's generation_config.json ends answers. sha256: of tokenizer.json, chat template and end token.
    """

    backend: tokenizers.Tokenizer
    hf: PreTrainedTokenizerFast
    eos_id: int
    eos_token: str
    pad_id: int
    ends: frozenset[int]
    sha256: str

    @property
    def leading_token(self) -> str:
        """The control tokens that the tokenizer itself puts before a text (BOS), "" for none."""
        encoded = self.backend.encode("a", add_special_tokens=True)
        marked = zip(encoded.tokens, encoded.special_tokens_mask, strict=True)
        return "".join(token for token, _ in takewhile(lambda pair: pair[1], marked))


def load_tokenizer(folder: Path) -> TokenizerInfo:
    """Return the tokenizer of a model folder; nothing is downloaded or executed. Raises EnvironmentProblem, InputError."""
    try:
        hf = _loaded(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
        told = f"{folder}: its tokenizer cannot be loaded: {first_line(error)}"
        hint = "put the model's tokenizer.json and tokenizer_config.json there, or use another base model"
        raise EnvironmentProblem(told, hint) from error
    if not isinstance(hf, PreTrainedTokenizerFast):
        told = f"{folder}: its tokenizer ({type(hf).__name__}) has no fast version"
        raise EnvironmentProblem(told, "put a tokenizer.json there")
    backend: tokenizers.Tokenizer = hf.backend_tokenizer
    eos_id = _turn_end(folder, hf) if hf.chat_template else None
    eos_id = hf.eos_token_id if eos_id is None else eos_id
    if eos_id is None:
        told = f"{folder}: no token ends an answer: no eos_token, and the chat template puts none"
        raise EnvironmentProblem(told, 'set "eos_token" in its tokenizer_config.json')
    eos_token, ends = str(backend.id_to_token(eos_id)), read_json(folder / "generation_config.json").get("eos_token_id")
    return TokenizerInfo(
        backend=backend,
        hf=hf,
        eos_id=eos_id,
        eos_token=eos_token,
        pad_id=next(one for one in (hf.pad_token_id, hf.eos_token_id, eos_id) if one is not None),
        ends=frozenset(one for one in (ends if isinstance(ends, list) else [ends]) if isinstance(one, int)),
        sha256=_sha256(folder, hf, eos_token),
    )


def _loaded(folder: Path) -> Any:
    """Return the tokenizer described by tokenizer.json; without that file, the class's own.

    AutoTokenizer replaces the file's pre-tokenization by that of the class named in the config: a model that reads each digit
    alone, named "GPT2Tokenizer", would get other ids than in its training (transformers' issues 45812 and 45920).
    """
    local: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
    if not (folder / "tokenizer.json").is_file():
        return AutoTokenizer.from_pretrained(folder, **local)
    hf = PreTrainedTokenizerFast.from_pretrained(folder, **local)
    if hf.eos_token is None:  # GPT-2's is set only by its class
        hf.eos_token = AutoTokenizer.from_pretrained(folder, **local).eos_token
    return hf


def _turn_end(folder: Path, hf: PreTrainedTokenizerFast) -> int | None:
    """Return the first control token that the template writes after an answer, None for none."""
    conversation = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": _PROBE}]
    try:
        text = str(hf.apply_chat_template(conversation, tokenize=False, enable_thinking=False))
    except Exception as error:  # a template may raise anything
        told = f"{folder}: the chat template refuses a conversation of user, assistant: {first_line(error)}"
        raise InputError(told, "correct its chat template, or use another base model") from error
    tail, backend = text.rpartition(_PROBE)[2], hf.backend_tokenizer
    control = backend.get_added_tokens_decoder()
    return next((token for token in backend.encode(tail, add_special_tokens=False).ids if token in control), None)


def _sha256(folder: Path, hf: PreTrainedTokenizerFast, eos_token: str) -> str:
    """Return the tokenizer's hash, from its file if it has one: other versions of the library may serialize differently."""
    file, backend = folder / "tokenizer.json", json.loads(hf.backend_tokenizer.to_str())
    raw = file.read_bytes() if file.is_file() else json.dumps(backend).encode()
    digest = hashlib.sha256(raw)
    known = {token["id"] for token in json.loads(raw).get("added_tokens") or ()}
    if more := [token for token in backend["added_tokens"] if token["id"] not in known]:  # from tokenizer_config.json
        digest.update(json.dumps(more, sort_keys=True).encode())
    digest.update(json.dumps([hf.chat_template, eos_token], sort_keys=True).encode())
    return digest.hexdigest()
