"""Encodes many documents at once, as token ids with a mask of the trained tokens.

Each piece is encoded separately, as in generation, so that no token crosses a border. If the tokenizer adds a blank before the
first word (SentencePiece), the whole text is encoded, and a border is where its ids begin to differ from those of the text
up to the border. fastokens, 20 to 40 times faster, is used if it gives the same ids for a sample of these rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import version
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
import regex
from numpy.typing import NDArray

from expert_cli._compat import is_marked
from expert_cli.data.templates.chat import Template
from expert_cli.data.templates.mask import Rendered, common
from expert_cli.errors import ExpertError

Ids = tuple[NDArray[np.int32], NDArray[np.int64]]
"""Concatenated ids, int32 [tokens], and the number of ids of each text, int64 [texts]."""
_MAY_BE_NUMERIC = regex.compile(r"[[\p{N}\p{Cn}]--[0-9]]", regex.V1)


@dataclass(frozen=True)
class Encoded:
    """Concatenated documents.

    ids: int32 [tokens]. offsets: int64 [documents + 1], document i is ids[offsets[i]:offsets[i + 1]]. trained: bool [tokens].
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    trained: NDArray[np.bool_]

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.offsets) - 1

    def trained_only(self) -> tuple[Encoded, NDArray[np.bool_]]:
        """Return the documents with at least one trained token, and a mask of them."""
        sizes = np.diff(self.offsets)
        good = np.diff(np.append(0, self.trained.cumsum())[self.offsets]) > 0
        kept = np.repeat(good, sizes)
        return Encoded(self.ids[kept], np.append(0, sizes[good].cumsum()), self.trained[kept]), good


EMPTY = Encoded(np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.bool_))


class OtherIds(ExpertError):
    """Raised if fastokens and tokenizers give different ids for a sample of the rows."""


class Encoder:
    """Encodes documents. fast: use fastokens if it supports the tokenizer, and check its ids on samples of the rows."""

    def __init__(self, template: Template, *, fast: bool = False) -> None:
        """Take the template's tokenizer."""
        self.template, self.fast = template, fast
        self._backend: Any = template.tokenizer.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        texts = [text for text, _ in template.probe]
        self.by_pieces = [*chain(*self._lists(texts))] == self._lists(["".join(texts)])[0]
        self._by_tokenizers = Encoder(template) if fast else self
        self._batches, self._seen = 0, set[str]()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments: fastokens' tokenizer cannot be pickled."""
        return partial(Encoder, fast=self.fast), (self.template,)

    @cached_property  # created while the first rows are read: it takes half a second
    def _fast(self) -> Fastokens | None:
        with suppress(Exception):  # after any error, tokenizers is used
            return Fastokens(self._backend) if self.fast and self.by_pieces else None
        return None

    @property
    def engine(self) -> str:
        """The encoding library and its version."""
        name = "fastokens" if self._fast else "tokenizers"
        return f"{name} {version(name)}"

    def _compare(self, texts: Sequence[str]) -> None:
        """Compare both libraries' ids of new characters, and of texts in batches 0, 1, 2, 4, 8 and so on. Raises OtherIds."""
        new = set().union(*(text for text in texts if not text.isascii())) - self._seen
        new |= set() if self._batches else {*map(chr, range(1, 256))}
        self._seen |= new
        sample = [f"{c} a{c}b {c}{c}1{c}" for c in sorted(new)]
        if self._batches & (self._batches - 1) == 0:
            sample += [text[:2_000] for text in texts[:: len(texts) // 16 + 1]]
        self._batches += 1
        if sample and self._flat(sample)[0].tolist() != self._by_tokenizers._flat(sample)[0].tolist():
            raise OtherIds("fastokens gives other ids")

    def encode(self, documents: Sequence[Rendered]) -> Encoded:
        """Encode documents. Raises OtherIds if fastokens must not be used."""
        if self.by_pieces:
            texts = [text for document in documents for text, _ in document]
            if self._fast:
                self._compare(texts)
            ids, sizes = self._flat(texts)
        else:
            ids, sizes = _joined([ids for document in documents for ids in self._parted(document)])
        trained = np.array([kept for document in documents for _, kept in document], np.bool_)
        ends = np.cumsum([0, *map(len, documents)])
        return Encoded(ids, np.append(0, sizes.cumsum())[ends], np.repeat(trained, sizes))

    def ids(self, text: str) -> list[int]:
        """Return the ids of one text, as for generation."""
        return list(self._flat([text])[0].tolist())

    def _parted(self, document: Rendered) -> list[list[int]]:
        """Encode a document as one text, and split its ids where they begin to differ from those of the text up to a border."""
        *before, whole = map(self.ids, accumulate(text for text, _ in document))
        ends = accumulate((common(ids, whole) for ids in before), max, initial=0)
        return [whole[start:stop] for start, stop in pairwise([*ends, len(whole)])]

    def _flat(self, texts: list[str]) -> Ids:
        """Return concatenated ids. transformers encodes marked texts, tokenizers those that fastokens refuses."""
        odd, joined = dict[int, list[int]](), "\0".join(texts)
        if joined.isascii():
            return self._plain(texts)
        if is_marked(joined):
            from transformers.utils.chat_template_utils import encode_marked_chat

            marked = ((n, text) for n, text in enumerate(texts) if is_marked(text))
            odd = {n: encode_marked_chat(self.template.tokenizer, text) for n, text in marked}
        if self._fast:
            refused = [n for n, text in enumerate(texts) if not text.isascii() and self._fast.refuses(text)]
            odd = dict(zip(refused, self._lists([texts[n] for n in refused]), strict=True)) | odd
        if not odd:
            return self._plain(texts)
        ids, sizes = self._plain(["" if n in odd else text for n, text in enumerate(texts)])
        return _joined([odd.get(n, part) for n, part in enumerate(np.split(ids, sizes.cumsum()[:-1]))])

    def _plain(self, texts: list[str]) -> Ids:
        if self._fast:
            with suppress(ValueError):  # it refuses one of the texts, without saying which
                return self._fast.encode(texts)
        return _joined(self._lists(texts))

    def _lists(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._backend.encode_batch_fast(texts, add_special_tokens=False)]


class Fastokens:
    """Encodes with fastokens. It is 16 times slower if digits are split before GPT-2's pattern (SmolLM2). Digits are therefore
    turned into added tokens, which split at the same places; texts with other numeric characters ("²") are then refused.
    """

    def __init__(self, tokenizer: Any) -> None:
        """Convert a tokenizer. Raises ImportError, or any error of fastokens for a tokenizer that it does not support."""
        import fastokens

        spec: dict[str, Any] = json.loads(tokenizer.to_str())
        steps = (spec.get("pre_tokenizer") or {}).get("pretokenizers", [])
        vocabulary, added = spec["model"].get("vocab", {}), spec["added_tokens"]
        self.splits_digits = (
            [step["type"] for step in steps] == ["Digits", "ByteLevel"]
            and steps[0]["individual_digits"]
            and not spec.get("normalizer")
            and all(digit in vocabulary for digit in "0123456789")
            and not any(token["single_word"] or any(map(str.isnumeric, token["content"])) for token in added)
        )
        if self.splits_digits:
            flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
            digits = [{"id": vocabulary[digit], "content": digit, **flags} for digit in "0123456789"]
            spec = {**spec, "pre_tokenizer": steps[1], "added_tokens": [*added, *digits]}
        self._tokenizer = fastokens.Tokenizer.from_json_str(json.dumps(spec))

    def refuses(self, text: str) -> bool:
        """Whether fastokens must not encode a text: a character besides 0-9 may be numeric in some version of Unicode."""
        return self.splits_digits and _MAY_BE_NUMERIC.search(text) is not None

    def encode(self, texts: list[str]) -> Ids:
        """Return ids and sizes. Raises ValueError for a text with a byte that the vocabulary lacks."""
        ids, bounds = self._tokenizer.encode_batch_flat(texts)
        return np.frombuffer(ids, np.int32), np.diff(np.frombuffer(bounds, np.int64)).astype(np.int64)


def _joined(parts: Sequence[Sequence[int] | NDArray[np.int32]]) -> Ids:
    arrays = [np.asarray(part, np.int32) for part in parts]
    return np.concatenate([EMPTY.ids, *arrays]), np.fromiter(map(len, arrays), np.int64, len(arrays))


def limit_threads(threads: int) -> None:
    """Limit the threads of both libraries (0: one per core) by environment variables, before the first text is encoded."""
    if threads:
        os.environ["RAYON_NUM_THREADS"] = os.environ["FASTOKENS_BPE_THREADS"] = str(threads)
