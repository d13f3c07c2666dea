"""Text to ids in bulk: by `fastokens` where it gives the ids of `tokenizers`, else by `tokenizers`.

fastokens is 20 to 40 times as fast and young, so it is never taken on trust: what `enginecheck` has not found equal is not
used, and what it refuses (a byte that the vocabulary lacks, which `tokenizers` passes over) is encoded by `tokenizers`.
Both spread a batch over threads of their own with the GIL released; no worker process is started.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

_BATCH_CHARACTERS = 1 << 20
_LONG_PIECE = 50  # tokens: from about there on copying slices is faster than an index for every token
_DIGITS = "0123456789"
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}

Pieces = tuple[NDArray[np.int32], NDArray[np.int64]]
"""ids int32 [tokens], all texts end to end; sizes int64 [texts], how many each has."""


class Engine(Protocol):
    """Encodes texts; `name` says with what, version included."""

    name: str

    def encode(self, texts: list[str], *, control: bool) -> Pieces:
        """Encode each text by itself; where `control` is off the spellings of control tokens are plain text."""


def limit_threads(threads: int) -> None:
    """Let both engines use at most `threads` threads, 0 = one a core; works only before the first text is encoded.

    The engines have no other switch than the environment, which they read when they start their threads.
    """
    if threads:
        os.environ["RAYON_NUM_THREADS"] = os.environ["FASTOKENS_BPE_THREADS"] = str(threads)


class ReferenceEngine:
    """`tokenizers`, whose ids are right by definition."""

    def __init__(self, spec: dict[str, Any]) -> None:
        """Take a tokenizer.json; what it says about truncation and padding does not count."""
        self.name = f"tokenizers {version('tokenizers')}"
        self.spec = {**spec, "truncation": None, "padding": None}

    @cached_property
    def text(self) -> str:
        """The tokenizer.json."""
        return json.dumps(self.spec)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer itself, made when it is first needed."""
        return Tokenizer.from_str(self.text)

    def encode(self, texts: list[str], *, control: bool) -> Pieces:
        """Encode each text by itself, a megabyte at a time: an encoding takes 100 times the memory of its ids."""
        self.tokenizer.encode_special_tokens = not control
        ids: list[NDArray[np.int32]] = [np.empty(0, np.int32)]
        for some in _batches(texts):
            encodings = self.tokenizer.encode_batch_fast(some, add_special_tokens=False)
            ids += [np.array(encoding.ids, np.int32) for encoding in encodings]
        return np.concatenate(ids), np.fromiter(map(len, ids[1:]), np.int64, len(texts))


class FastEngine:
    """`fastokens`, and `tokenizers` for the texts that it must not have.

    It splits by GPT-2's pattern with vector instructions, but not if digits are split off before (SmolLM2: 16 instead of
    200 MB/s). Such a tokenizer gets its digits as added tokens, which split a text at the same places; texts with any
    other numeric character are left to `tokenizers`.
    """

    def __init__(self, reference: ReferenceEngine) -> None:
        """Load the tokenizer of `reference`. Raises ImportError, or ValueError if fastokens cannot handle it."""
        import fastokens

        self.name = f"fastokens {version('fastokens')}"
        self._reference = reference
        prepared = _with_digits_added(reference.spec)
        self._digits_added = prepared is not None
        text = json.dumps(_with_plain_merges(prepared or reference.spec))
        self._tokenizer = _asked(fastokens.Tokenizer.from_json_str, text)

    def encode(self, texts: list[str], *, control: bool) -> Pieces:
        """Encode each text by itself."""
        odd = [self._digits_added and _has_other_numeric(text) for text in texts]
        if not any(odd):
            return self._encode(texts, control)
        fast = self._encode([text for text, is_odd in zip(texts, odd, strict=True) if not is_odd], control)
        slow = self._reference.encode(
            [text for text, is_odd in zip(texts, odd, strict=True) if is_odd], control=control
        )
        sizes = np.concatenate([fast[1], slow[1]])
        starts = np.cumsum(sizes) - sizes
        places = np.argsort(np.argsort(odd, kind="stable"))
        return gather(np.concatenate([fast[0], slow[0]]), starts[places], sizes[places]), sizes[places]

    def _encode(self, texts: list[str], control: bool) -> Pieces:
        try:
            ids, ends = _asked(self._tokenizer.encode_batch_flat, texts, split_special_tokens=not control)
        except ValueError:
            # It does not say which text it refuses.
            if len(texts) == 1:
                return self._reference.encode(texts, control=control)
            half = len(texts) // 2
            first, second = self._encode(texts[:half], control), self._encode(texts[half:], control)
            return np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]])
        bounds = np.frombuffer(ends, np.int64)
        return np.frombuffer(ids, np.int32), bounds[1:] - bounds[:-1]


def _asked(function: Callable[..., Any], *values: object, **named: object) -> Any:
    """Call fastokens; whatever goes wrong inside it, a panic too, becomes a ValueError."""
    try:
        return function(*values, **named)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic is no Exception
        raise ValueError(str(error)) from error


def gather(ids: NDArray[np.int32], starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the stretches ids[starts[i]:starts[i] + sizes[i]] end to end."""
    if len(ids) > _LONG_PIECE * len(sizes):
        stops = (starts + sizes).tolist()
        return np.concatenate([ids[:0], *(ids[a:b] for a, b in zip(starts.tolist(), stops, strict=True))])
    ends = np.cumsum(sizes)
    places = np.repeat(starts - (ends - sizes), sizes)
    places += np.arange(len(places))
    stretches: NDArray[np.int32] = ids[places]
    return stretches


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _with_digits_added(spec: dict[str, Any]) -> dict[str, Any] | None:
    """Return a tokenizer.json that splits by GPT-2's pattern alone and has the digits as added tokens; None if not equal.

    Equal are they where digits are split off one by one, nothing else has touched the text before, and no added token
    holds a digit.
    """
    steps = (spec.get("pre_tokenizer") or {}).get("pretokenizers", [])
    model, added = spec["model"], spec["added_tokens"]
    splits_digits = (
        len(steps) == 2
        and steps[0] == {"type": "Digits", "individual_digits": True}
        and all(steps[1].get(key) == value for key, value in _BYTE_LEVEL.items())
    )
    vocabulary = model.get("vocab", {})
    if (
        not splits_digits
        or spec.get("normalizer")
        or model["type"] != "BPE"
        or not all(digit in vocabulary for digit in _DIGITS)
        or any(not set(_DIGITS).isdisjoint(token["content"]) for token in added)
    ):
        return None
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    digits = [{"id": vocabulary[digit], "content": digit, **flags} for digit in _DIGITS]
    return {**spec, "pre_tokenizer": steps[1], "added_tokens": [*added, *digits]}


def _with_plain_merges(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the same tokenizer.json with merges as "a b" instead of ["a", "b"], which loads a quarter faster."""
    model = spec["model"]
    merges = model.get("merges") or []
    if not all(isinstance(merge, list) for merge in merges) or any(" " in token for token in model.get("vocab", {})):
        return spec
    return {**spec, "model": {**model, "merges": [" ".join(merge) for merge in merges]}}


def _has_other_numeric(text: str) -> bool:
    """Whether a text holds a numeric character that is not one of the ten digits."""
    if text.isascii():
        return False
    return _numerics().search(text) is not None or any(map(_is_numeric, set(_ASTRAL.findall(text))))


def _is_numeric(character: str) -> bool:
    """Whether it is, or may be: what this Python does not know may be numeric for a newer program."""
    category = unicodedata.category(character)
    return category == "Cn" or category[0] == "N"


@cache
def _numerics() -> re.Pattern[str]:
    found = [chr(code) for codes in _SCRIPTS for code in codes if _is_numeric(chr(code))]
    return re.compile(f"[{''.join(found)}]")


_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
# The others are ideographs, Hangul, surrogates and private use, none of which is numeric.
_SCRIPTS = (
    range(0x80, 0x3400),
    range(0x4DC0, 0x4E00),
    range(0xA000, 0xAC00),
    range(0xD7A4, 0xD800),
    range(0xF900, 0x10000),
)
