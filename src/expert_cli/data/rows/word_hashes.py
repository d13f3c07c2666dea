"""Hashes of texts and of each three words in a row in them, for many at once: letter case and runs of blanks aside."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

WORDS = 3

Hashes = NDArray[np.uint64]
Numbers = NDArray[np.int64]

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_END = "\x1e"
"""Ends a text: a blank in Python's eyes, and in nobody's texts."""
_IS_BLANK = np.isin(np.arange(256), np.frombuffer(b"\t\n\v\f\r\x1c\x1d\x1e\x1f ", np.uint8))
_WIDE_BLANK = re.compile(r"[^\S\t-\r\x1c-\x20]")
"""What `str.split` takes for a blank beside those: each is more than one byte in UTF-8."""
_KEPT: Hashes = np.array([(1 << 8 * letters) - 1 for letters in range(9)], np.uint64)
"""The bits of a word's first letters in eight bytes."""


class Hashed(NamedTuple):
    """texts: a hash of each text. grams: of each three words in a row, and the number of their text."""

    texts: Hashes
    grams: Hashes
    of: Numbers


def hashed(texts: Sequence[str]) -> Hashed:
    """Return the hashes of texts."""
    joined = "".join(f"{text}{_END}" for text in texts).lower()
    if joined.count(_END) != len(texts):
        return hashed([text.replace(_END, " ") for text in texts])
    encoded = (joined if joined.isascii() else _WIDE_BLANK.sub(" ", joined)).encode("utf-8", "surrogatepass")
    letters = np.frombuffer(encoded, np.uint8)
    edges = np.flatnonzero(np.diff(_IS_BLANK[letters], prepend=True, append=True))
    starts, ends = edges[::2], edges[1::2]
    words = _word_hashes(encoded, starts, ends - starts)
    first = np.searchsorted(starts, np.concatenate(([0], np.flatnonzero(letters == ord(_END)))))
    of = np.repeat(np.arange(len(texts)), np.diff(first))
    whole = np.flatnonzero(of[: 1 - WORDS] == of[WORDS - 1 :])
    grams = words
    for later in range(1, WORDS):
        grams = combined(grams[:-1], words[later:])
    return Hashed(_in_order(words, of, first), grams[whole], of[whole])


def combined(hashes: Hashes, later: Hashes) -> Hashes:
    """Return one hash of two each; which is the later one counts."""
    return _mixed(hashes * _FACTOR + later)


def _mixed(values: Hashes) -> Hashes:
    values = values ^ (values >> np.uint64(29))
    values *= np.uint64(0xBF58476D1CE4E5B9)
    return np.asarray(values ^ (values >> np.uint64(32)), np.uint64)


def _word_hashes(encoded: bytes, starts: Numbers, lengths: Numbers) -> Hashes:
    """The hash of each word, eight letters at a time."""
    eight: Hashes = np.ndarray((len(encoded),), "<u8", encoded + bytes(8), strides=(1,))
    words = lengths.astype(np.uint64)
    longer, start, left = np.arange(len(starts)), starts, lengths
    while len(longer):
        words[longer] = combined(words[longer], eight[start] & _KEPT[np.minimum(left, 8)])
        more = left > 8
        longer, start, left = longer[more], start[more] + 8, left[more] - 8
    return words


def _in_order(words: Hashes, of: Numbers, first: Numbers) -> Hashes:
    """The hash of each text: the sum of its words, each by its place."""
    place = (np.arange(len(words)) - first[of]).astype(np.uint64)
    total = np.concatenate((np.zeros(1, np.uint64), np.cumsum(combined(place, words), dtype=np.uint64)))
    return _mixed(total[first[1:]] - total[first[:-1]])
