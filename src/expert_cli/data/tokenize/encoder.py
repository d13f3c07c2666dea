"""Segments become token ids, and the mask of those that the templates say are trained.

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
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from expert_cli.data.templates.compiled_template import PieceColumn
from expert_cli.data.templates.segment import Document, Segment
from expert_cli.data.templates.text_forms import MARKERS, any_of
from expert_cli.data.tokenize.assemble import Encoded, Pieced, assemble
from expert_cli.data.tokenize.backend_check import BackendChoice, BackendSelector
from expert_cli.data.tokenize.backends import HFTokenizersBackend, Pieces, no_collection


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
    """Encodes documents with its own copies of a tokenizer; for one thread at a time.

    places_matter: whether a piece's ids depend on what stands before it. engine: what encodes, and why. It is chosen by the
    first documents; without a `cache` folder, which remembers how fastokens compares, it stays `tokenizers`.
    """

    def __init__(self, tokenizer: Tokenizer, *, cache: Path | None = None) -> None:
        """Copy the tokenizer (truncation and padding off), once for each treatment of word prefixes that it needs."""
        control = control_tokens(tokenizer)
        written = tokenizer.to_str()
        with no_collection():
            spec = json.loads(written)
        given = spec["added_tokens"]
        spec["added_tokens"] = [{**t, "special": t["special"] or t["content"] in control} for t in given]
        self._control = tuple(sorted(control))
        self._any_control = re.compile(any_of(control))
        self._swallowing = tuple(t["content"] for t in spec["added_tokens"] if t["rstrip"] and t["content"] in control)
        variants = (spec, _without_prefix(spec, everywhere=False), _without_prefix(spec, everywhere=True))
        as_given = tokenizer if spec["added_tokens"] == given else None
        made = [HFTokenizersBackend(variant, as_given if variant is spec else None) for variant in variants]
        self._references = [made[variants.index(variant)] for variant in variants]
        self.places_matter = bool(self._swallowing) or variants.index(variants[2]) > 0
        folder = None if self.places_matter else cache
        self._chooser = BackendSelector(self._references[0], written, self._control, folder) if folder else None
        why = "its word prefixes depend on where a piece stands" if self.places_matter else "nothing else was tried"
        self.engine = BackendChoice(self._references[0], why)

    def encode(self, documents: Sequence[Document]) -> Encoded:
        """Encode documents; those without a trained token are left out and counted, be it all of them."""
        return assemble([self.pieces(documents)])

    def pieces(self, documents: Sequence[Document]) -> Pieced:
        """Encode documents, in as few calls as there are ways to encode; equal pieces are encoded once."""
        ways: dict[tuple[bool, int], dict[str, int]] = {}
        order: list[tuple[dict[str, int], int]] = []
        flags: list[bool] = []
        counts = np.empty(len(documents), np.int64)
        for number, document in enumerate(documents):
            before = len(order)
            for (text, control, trained, _), variant in self._placed(document):
                way = ways.setdefault((control, variant), {})
                order.append((way, way.setdefault(text, len(way))))
                flags.append(trained)
            counts[number] = len(order) - before
        self._choose([text for (control, _), texts in ways.items() if not control for text in texts])
        parts = [self._encode_texts(list(texts), control=c, variant=v) for (c, v), texts in ways.items()]
        firsts = dict(zip(map(id, ways.values()), np.cumsum([0, *map(len, ways.values())]), strict=False))
        jobs = np.fromiter((firsts[id(way)] + job for way, job in order), np.int64, len(order))
        return Pieced(parts, jobs, np.array(flags, np.bool_), counts)

    def column_pieces(self, columns: Sequence[PieceColumn]) -> Pieced:
        """Encode documents given piece by piece, at least one piece with a text a document; the ids are those of `encode`.

        Not for an encoder whose `places_matter`.
        """
        users = [column.texts for column in columns if isinstance(column.texts, list)]
        # The users' texts in the order of the documents, so that their ids are nearly the documents already.
        texts = [""] * (len(users) * len(users[0]))
        own: list[str] = []
        order = np.empty((len(users[0]), len(columns)), np.int64)
        for place, column in enumerate(columns):
            if isinstance(column.texts, str):
                order[:, place] = len(texts) + len(own)
                own.append(column.texts)
            else:
                nth = place - len(own)
                texts[nth :: len(users)] = column.texts
                order[:, place] = np.arange(nth, len(texts), len(users))
        self._choose(texts)
        parts = [self._encode_texts(texts, control=False), self._encode_texts(own, control=True)]
        flags = np.tile(np.array([piece.trained for piece in columns], np.bool_), len(order))
        return Pieced(parts, order.ravel(), flags, np.full(len(order), len(columns)))

    def ids(self, document: Document) -> list[int]:
        """Return the ids of one document, trained or not: what generation starts from."""
        return [number for _, ids in self.piece_ids(document) for number in ids]

    def piece_ids(self, document: Document) -> Iterator[tuple[Segment, list[int]]]:
        """Yield the pieces of a document as they are encoded, each with its ids."""
        for piece, variant in self._placed(document):
            yield piece, self._encode_texts([piece.text], control=piece.control, variant=variant)[0].tolist()

    def _encode_texts(self, texts: list[str], *, control: bool, variant: int = 0) -> Pieces:
        engine = self._references[variant] if self.places_matter else self.engine.engine
        return engine.encode(texts, control=control)

    def _choose(self, sample: Sequence[str]) -> None:
        """Choose the engine, once."""
        if self._chooser:
            self.engine, self._chooser = self._chooser.choose(sample), None

    def _placed(self, document: Document) -> Iterator[tuple[Segment, int]]:
        """Yield the pieces as they are encoded, each with its variant: 0 start, 1 after a control token, 2 after text."""
        if not self.places_matter:
            yield from ((segment, 0) for segment in document)
            return
        variant, swallow, why = 0, False, ""
        for text, control, trained, reason in document:
            why = reason or why
            # A token with rstrip takes the white space after it, except an answer's, which generation writes itself.
            kept = text.lstrip() if swallow and not trained else text
            if not kept:
                continue
            # The stretches after the first control token have their prefixes, as they would in the whole text.
            first = self._any_control.search(kept) if control and variant == 2 else None
            if first:
                yield Segment(kept[: first.start()], control, trained, why), variant
                kept, variant, why = kept[first.start() :], 1, ""
            yield Segment(kept, control, trained, why), variant
            why = ""
            swallow = control and kept.rstrip().endswith(self._swallowing)
            variant = 1 if control and (swallow or kept.endswith(self._control)) else 2


def _without_prefix(spec: dict[str, Any], *, everywhere: bool) -> dict[str, Any]:
    """Return a tokenizer.json whose encoder adds no word prefix, or none that belongs to the start of a text alone."""
    parts = {key: _part_without_prefix(spec.get(key), everywhere) for key in ("normalizer", "pre_tokenizer")}
    return {**spec, **parts}


def _part_without_prefix(part: Any, everywhere: bool) -> Any:
    """Do so in a normalizer or pre-tokenizer, which may be a sequence of them."""
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
