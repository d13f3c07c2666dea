"""Documents become token ids: the one place that decides which tokens are trained.

Every piece is encoded by itself, in large batches, so that no merge crosses the border between prompt and answer. In a
piece of the user's, control tokens are plain text.

Tokenizers with a word prefix (SentencePiece's "▁") put it at the start of a text, some after every control token too; a
piece that goes on in the middle of a stretch of text must not get one. So pieces are encoded by where they stand:

    <s>  "[INST] How many?[/INST]"  " 4"  </s>
         after a control token      after text
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from expert_cli.data.segments import Document
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
    with_added = tokenizer.encode("a", add_special_tokens=True)
    marked = zip(with_added.tokens, with_added.special_tokens_mask, strict=True)
    return "".join(token for token, _ in takewhile(lambda pair: pair[1], marked))


class Encoder:
    """Encodes documents with its own copies of a tokenizer; for one thread at a time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Copy the tokenizer (truncation and padding off), once for each treatment of word prefixes that it needs."""
        control = control_tokens(tokenizer)
        spec = json.loads(tokenizer.to_str())
        spec["added_tokens"] = [{**t, "special": t["special"] or t["content"] in control} for t in spec["added_tokens"]]
        self._control = tuple(control)
        self._any_control = re.compile("|".join(map(re.escape, sorted(control, key=len, reverse=True))))
        self._swallowing = tuple(t["content"] for t in spec["added_tokens"] if t["rstrip"] and t["content"] in control)
        variants = (spec, _without_prefix(spec, everywhere=False), _without_prefix(spec, everywhere=True))
        self._copies: list[Tokenizer] = []
        for n, variant in enumerate(variants):
            first = variants.index(variant)
            self._copies.append(self._copies[first] if first < n else _copy(variant))
        self._places_matter = bool(self._swallowing) or variants.index(variants[2]) > 0

    def encode(self, documents: Sequence[Document]) -> Encoded:
        """Encode documents; those without a trained token are left out and counted, be it all of them."""
        starts = range(0, len(documents), _BATCH)
        batches = [self._encode_batch(documents[start : start + _BATCH]) for start in starts]
        ids = np.concatenate([np.empty(0, np.int32), *(b[0] for b in batches)])
        trained = np.concatenate([np.empty(0, np.bool_), *(b[1] for b in batches)])
        lengths = np.concatenate([np.empty(0, np.int64), *(b[2] for b in batches)])
        ends = np.concatenate([[0], np.cumsum(lengths)])
        trained_before = np.concatenate([[0], np.cumsum(trained, dtype=np.int64)])
        good = np.diff(trained_before[ends]) > 0
        if not good.all():
            of_good = np.repeat(good, lengths)
            ids, trained, lengths = ids[of_good], trained[of_good], lengths[good]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return Encoded(ids, offsets, trained, np.flatnonzero(good), int(len(good) - good.sum()))

    def ids(self, document: Document) -> list[int]:
        """Return the ids of one document, trained or not: what generation starts from."""
        return [int(i) for i in self._encode_batch([document])[0]]

    def _encode_batch(
        self, documents: Sequence[Document]
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.int64]]:
        """Return flat ids, which are trained, and the length of each document; equal pieces are encoded once."""
        jobs: dict[tuple[str, bool, int], int] = {}
        order: list[int] = []
        flags: list[bool] = []
        ends = [0]
        for document in documents:
            for text, control, trained, variant in self._placed(document):
                order.append(jobs.setdefault((text, control, variant), len(jobs)))
                flags.append(trained)
            ends.append(len(order))
        pieces = self._run(jobs)
        sizes = np.fromiter((len(pieces[job]) for job in order), np.int64, len(order))
        ids = np.concatenate([np.empty(0, np.int32), *(pieces[job] for job in order)])
        before = np.concatenate([[0], np.cumsum(sizes)])
        return ids, np.repeat(np.array(flags, np.bool_), sizes), np.diff(before[ends])

    def _run(self, jobs: dict[tuple[str, bool, int], int]) -> list[NDArray[np.int32]]:
        """Encode each job's text in as few calls as there are ways to encode."""
        ways: dict[tuple[bool, int], list[tuple[str, int]]] = {}
        for (text, control, variant), job in jobs.items():
            ways.setdefault((control, variant), []).append((text, job))
        pieces = [np.empty(0, np.int32)] * len(jobs)
        for (control, variant), work in ways.items():
            tokenizer = self._copies[variant]
            tokenizer.encode_special_tokens = not control
            encodings = tokenizer.encode_batch_fast([text for text, _ in work], add_special_tokens=False)
            for (_, job), encoding in zip(work, encodings, strict=True):
                pieces[job] = np.array(encoding.ids, np.int32)
        return pieces

    def _placed(self, document: Document) -> Iterator[tuple[str, bool, bool, int]]:
        """Yield text, control, trained and variant (0 start, 1 after a control token, 2 after text) of each piece."""
        if not self._places_matter:
            yield from ((*segment, 0) for segment in document)
            return
        variant, swallow = 0, False
        for text, control, trained in document:
            # A token with rstrip takes the white space after it, except an answer's, which generation writes itself.
            kept = text.lstrip() if swallow and not trained else text
            if not kept:
                continue
            # The stretches after the first control token have their prefixes, as they would in the whole text.
            first = self._any_control.search(kept) if control and variant == 2 else None
            if first:
                yield kept[: first.start()], control, trained, variant
                kept, variant = kept[first.start() :], 1
            yield kept, control, trained, variant
            swallow = control and kept.rstrip().endswith(self._swallowing)
            variant = 1 if control and (swallow or kept.endswith(self._control)) else 2


def _copy(spec: dict[str, Any]) -> Tokenizer:
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _without_prefix(spec: dict[str, Any], *, everywhere: bool) -> dict[str, Any]:
    """Return a tokenizer.json whose encoder adds no word prefix, or none that belongs to the start of a text alone."""
    parts = {key: _part_without_prefix(spec.get(key), everywhere) for key in ("normalizer", "pre_tokenizer")}
    return {**spec, **parts}


def _part_without_prefix(part: Any, everywhere: bool) -> Any:
    """Do so in a normaliser or pre-tokeniser, which may be a sequence of them."""
    if part is None:
        return None
    kind = part["type"]
    if kind == "Sequence":
        key = "normalizers" if "normalizers" in part else "pretokenizers"
        inner = (_part_without_prefix(p, everywhere) for p in part[key])
        return {**part, key: [p for p in inner if p is not None]}
    if kind == "Prepend" and everywhere:
        return None
    if kind == "Metaspace" and (everywhere or part["prepend_scheme"] == "first"):
        return {**part, "prepend_scheme": "never"}
    if kind == "ByteLevel" and everywhere:
        return {**part, "add_prefix_space": False}
    return part
