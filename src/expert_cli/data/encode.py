"""Documents become token ids: the one place that decides which tokens are trained.

Every piece is encoded by itself, so that no merge crosses the border between prompt and answer, and in large batches.
A piece of the user's has control tokens as plain text in it. Tokenizers with a word prefix (SentencePiece's "▁") put it at
the start of a text, or after every control token; a piece in the middle of a stretch of text must not get one:

    <s>  [INST] How many?  [/INST]  |  4</s>          start | section | middle: where a piece stands
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer

from expert_cli.data.segments import Document, Segment
from expert_cli.data.skeleton import RenderChat
from expert_cli.data.templates import Template, make_template
from expert_cli.data.text_templates import MARKERS
from expert_cli.errors import InputError

_BATCH = 1000


@dataclass(frozen=True)
class Encoded:
    """Documents as ids, end to end.

    ids: int32 [tokens]. offsets: int64 [documents + 1], document i is ids[offsets[i]:offsets[i + 1]]. trained: bool
    [tokens]. kept: int64 [documents], the number that each had among those given; `dropped` had no trained token.
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    trained: NDArray[np.bool_]
    kept: NDArray[np.int64]
    dropped: int

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.offsets) - 1


def encode(documents: Sequence[Document], tokenizer: Tokenizer) -> Encoded:
    """Encode a whole data set; documents without a trained token are left out and counted.

    Raises InputError if no document is left.
    """
    encoded = Encoder(tokenizer).encode(documents)
    if not len(encoded):
        raise InputError(
            f"none of the {len(documents)} documents has a trained token",
            "Check that the response column is mapped and not empty.",
        )
    return encoded


def template_for(
    tokenizer: Tokenizer,
    name: str,
    *,
    render_chat: RenderChat | None,
    eos_token: str,
    completion_only: bool = True,
    input_column: str = "",
) -> Template:
    """Make the template `name` for a tokenizer: `make_template` with the control tokens and the BOS it has."""
    return make_template(
        name,
        render_chat=render_chat,
        control_tokens=control_tokens(tokenizer),
        eos_token=eos_token,
        bos_token=leading_token(tokenizer),
        completion_only=completion_only,
        input_column=input_column,
    )


def control_tokens(tokenizer: Tokenizer) -> frozenset[str]:
    """Return the spellings that stand for control ids: the special tokens, and known chat markers among the added ones.

    Other added tokens ("<think>", runs of spaces) are words of the vocabulary, in user text too.
    """
    added = tokenizer.get_added_tokens_decoder().values()
    return frozenset(token.content for token in added if token.content and (token.special or token.content in MARKERS))


def leading_token(tokenizer: Tokenizer) -> str:
    """Return the control tokens that the tokenizer itself puts before a text (BOS), "" if none."""
    text = tokenizer.encode("a", add_special_tokens=True)
    count = len(text.tokens) - len("".join(map(str, text.special_tokens_mask)).lstrip("1"))
    return "".join(text.tokens[:count])


class _At(IntEnum):
    """Where a piece stands: at the start of the text, right after a control token, or after plain text."""

    START = 0
    SECTION = 1
    STRIPPED_SECTION = 2
    MIDDLE = 3


class Encoder:
    """Encodes documents with its own copy of a tokenizer; for one thread at a time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Copy the tokenizer (truncation and padding off), once for each way it must treat word prefixes."""
        added = tokenizer.get_added_tokens_decoder().values()
        self._control = tuple(sorted(control_tokens(tokenizer)))
        self._swallow = tuple(sorted(t.content for t in added if t.rstrip and t.content in self._control))
        spec = json.loads(tokenizer.to_str())
        section = _with_prefix_rules(spec, everywhere=False)
        middle = _with_prefix_rules(spec, everywhere=True)
        copies: list[tuple[dict[str, Any], Tokenizer]] = []
        self._tokenizers: list[Tokenizer] = []
        for rules in (spec, section, section, middle):
            copy = next((made for known, made in copies if known == rules), None) or self._copy(rules)
            copies.append((rules, copy))
            self._tokenizers.append(copy)

    def encode(self, documents: Sequence[Document]) -> Encoded:
        """Encode documents; those without a trained token are left out and counted, be it all of them."""
        parts = [self._encode_batch(documents[i : i + _BATCH]) for i in range(0, len(documents), _BATCH)]
        if not parts:
            return Encoded(*(np.empty(0, t) for t in (np.int32, np.int64, np.bool_, np.int64)), 0)
        return parts[0]

    def ids(self, document: Document) -> list[int]:
        """Return the ids of one document, trained or not: what generation starts from."""
        return []
