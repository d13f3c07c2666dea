"""Text to ids in bulk: by `fastokens` where it gives the ids of `tokenizers`, else by `tokenizers`.

fastokens is 20 to 40 times as fast and young, so it is never taken on trust: what `backend_check` has not found equal is not
used, and what it refuses (a byte that the vocabulary lacks, which `tokenizers` passes over) is encoded by `tokenizers`.
Both spread a batch over threads of their own with the GIL released; no worker process is started. fastokens remembers
the words it has met: the first megabytes go at a tenth of its later speed.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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


class TokenizerBackend(Protocol):
    """Encodes texts; `name` says with what, version included."""

    name: str

    def encode(self, texts: list[str], *, control: bool) -> Pieces:
        """Encode each text by itself; where `control` is off the spellings of control tokens are plain text."""


@contextmanager
def no_collection() -> Iterator[None]:
    """Hold the garbage collector: 100,000 new lists set off passes over all that torch has loaded, 0.25 s for nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def limit_threads(threads: int) -> None:
    """Let both engines use at most `threads` threads, 0 = one a core; works only before the first text is encoded.

    The engines have no other switch than the environment, which they read when they start their threads.
    """
    if threads:
        os.environ["RAYON_NUM_THREADS"] = os.environ["FASTOKENS_BPE_THREADS"] = str(threads)


class HFTokenizersBackend:
    """`tokenizers`, whose ids are right by definition."""

    def __init__(self, spec: dict[str, Any], given: Tokenizer | None = None) -> None:
        """Take a tokenizer.json, and the tokenizer where it is at hand; its truncation and padding do not count."""
        self.name = f"tokenizers {version('tokenizers')}"
        self.spec = {**spec, "truncation": None, "padding": None}
        self._given = given

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer itself, made when it is first needed."""
        return _with_the_same_model(self._given) if self._given else Tokenizer.from_str(json.dumps(self.spec))

    def encode(self, texts: list[str], *, control: bool) -> Pieces:
        """Encode each text by itself, a megabyte at a time: an encoding takes 100 times the memory of its ids."""
        self.tokenizer.encode_special_tokens = not control
        ids: list[NDArray[np.int32]] = [np.empty(0, np.int32)]
        for some in _batches(texts):
            encodings = self.tokenizer.encode_batch_fast(some, add_special_tokens=False)
            ids += [np.array(encoding.ids, np.int32) for encoding in encodings]
        return np.concatenate(ids), np.fromiter(map(len, ids[1:]), np.int64, len(texts))


def _with_the_same_model(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer of its own around another one's model, which would take 0.1 s to load; no truncation, no padding."""
    copy = Tokenizer(tokenizer.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if (value := getattr(tokenizer, part)) is not None:
            setattr(copy, part, value)
    added = tokenizer.get_added_tokens_decoder()
    copy.add_tokens([added[number] for number in sorted(added)])
    return copy


class FastokensBackend:
    """`fastokens`, and `tokenizers` for the texts that it must not have.

    It splits by GPT-2's pattern with vector instructions, but not if digits are split off before (SmolLM2: 16 instead of
    200 MB/s). Such a tokenizer gets its digits as added tokens, which split a text at the same places; at other numeric
    characters ("²") the text is cut here, and a text with one that Unicode may yet call numeric is left to `tokenizers`.
    """

    def __init__(self, reference: HFTokenizersBackend) -> None:
        """Load the tokenizer of `reference`. Raises ImportError, or ValueError if fastokens cannot handle it."""
        import fastokens

        self.name = f"fastokens {version('fastokens')}"
        self._reference = reference
        with no_collection():
            prepared = _with_digits_added(reference.spec)
            self._digits_added = prepared is not None
            text = json.dumps(_with_plain_merges(prepared or reference.spec))
        self._tokenizer = _asked(fastokens.Tokenizer.from_json_str, text)

    def encode(self, texts: list[str], *, control: bool) -> Pieces:
        """Encode each text by itself."""
        odd = {} if not self._digits_added else _with_other_numerics(texts)
        left = [number for number, kinds in odd.items() if not kinds]
        if not left:
            return self._encode_cut(texts, odd, control)
        slow = self._reference.encode([texts[number] for number in left], control=control)
        # The others keep their numbers: nothing stands where a text was left out.
        fast = self._encode_cut(["" if odd.get(n) == "" else text for n, text in enumerate(texts)], odd, control)
        order = np.arange(len(texts))
        order[left] = len(texts) + np.arange(len(left))
        ids = np.empty(len(fast[0]) + len(slow[0]), np.int32)
        gather((fast, slow), order, ids)
        return ids, np.concatenate([fast[1], slow[1]])[order]

    def _encode_cut(self, texts: list[str], odd: Mapping[int, str], control: bool) -> Pieces:
        """Encode texts, each cut before and after the characters that `odd` has for it."""
        if not odd:
            return self._encode(texts, control)
        pieces: list[str] = []
        counts = np.ones(len(texts), np.int64)
        done = 0
        for number, characters in odd.items():
            cut = re.split(f"([{characters}])", texts[number]) if characters else [texts[number]]
            counts[number] = len(cut)
            pieces += [*texts[done:number], *cut]
            done = number + 1
        ids, sizes = self._encode(pieces + texts[done:], control)
        return ids, np.add.reduceat(sizes, np.cumsum(counts) - counts)

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


def gather(parts: Sequence[Pieces], order: NDArray[np.int64], out: NDArray[np.int32]) -> None:
    """Write the texts numbered `order` (texts of all parts, counted on) end to end into `out`, which they fill."""
    sizes = np.concatenate([part[1] for part in parts])
    if len(out) > _LONG_PIECE * len(order):
        texts = [text for part in parts for text in by_text(*part)]
        np.concatenate([texts[number] for number in order.tolist()], out=out)
        return
    ids = np.concatenate([part[0] for part in parts])
    starts, wanted = np.cumsum(sizes) - sizes, sizes[order]
    places = np.repeat(starts[order] - (np.cumsum(wanted) - wanted), wanted)
    places += np.arange(len(places))
    np.take(ids, places, out=out, mode="clip")  # any other mode fills a buffer first


def by_text(ids: NDArray[np.int32], sizes: NDArray[np.int64]) -> list[NDArray[np.int32]]:
    """Return the ids of each text."""
    ends = np.cumsum(sizes)
    return [ids[start:end] for start, end in zip((ends - sizes).tolist(), ends.tolist(), strict=True)]


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
    holds a numeric character or asks what stands beside it.
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
        or any(token["single_word"] or any(map(str.isnumeric, token["content"])) for token in added)
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


def _with_other_numerics(texts: Sequence[str]) -> dict[int, str]:
    """The texts (by number) that hold numeric characters beside the ten digits: which; "" if one may be numeric or not."""
    some = [number for number, text in enumerate(texts) if not text.isascii()]
    codes = np.frombuffer("".join([texts[number] for number in some]).encode("utf-32-le"), np.uint32)
    odd = np.zeros(sys.maxunicode + 1, np.bool_)
    odd[codes] = True
    for code in np.flatnonzero(odd).tolist():
        odd[code] = _numeric(chr(code)) is not False
    places = np.flatnonzero(odd[codes])
    owners = np.searchsorted(np.cumsum([len(texts[number]) for number in some]), places, side="right")
    found: dict[int, set[str]] = {}
    for owner, code in zip(owners.tolist(), codes[places].tolist(), strict=True):
        found.setdefault(some[owner], set()).add(chr(code))
    return {n: "".join(sorted(kinds)) if all(map(_numeric, kinds)) else "" for n, kinds in found.items()}


@cache
def _numeric(character: str) -> bool | None:
    """Whether a character is numeric and no digit; None if that depends on the version of Unicode that a program knows."""
    if character in _DIGITS:
        return False
    now, once = unicodedata.category(character), unicodedata.ucd_3_2_0.category(character)
    if now[0] == "N" and once[0] == "N":
        return True
    return None if now[0] == "N" or now == "Cn" else False
