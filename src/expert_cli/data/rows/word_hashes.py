"""Hashes of texts and of each three words in a row in them, for many at once: letter case and runs of blanks aside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from expert_cli.data.rows.similarity import normalize

WORDS = 3
FACTOR = 0x9E3779B97F4A7C15
_INVERSE = pow(FACTOR, -1, 1 << 64)


Hashes = NDArray[np.uint64]
Numbers = NDArray[np.int64]


_OF_BYTE: Hashes = np.random.default_rng(0).integers(0, 1 << 64, 256, np.uint64, endpoint=False)
_IS_BLANK = np.isin(np.arange(256), np.frombuffer(b"\t\n\v\f\r\x1c\x1d\x1e\x1f ", np.uint8))


class Hashed(NamedTuple):
    """texts: a hash of each text. grams: of each three words in a row, and the number of their text."""

    texts: Hashes
    grams: Hashes
    of: Numbers


@lru_cache(maxsize=8)
def _powers(count: int) -> tuple[Hashes, Hashes]:
    """The powers of the factor and of its inverse, modulo 2^64."""
    both = (np.full(count, number, np.uint64) for number in (FACTOR, _INVERSE))
    powers, inverse = (np.multiply.accumulate(factors) for factors in both)
    return powers, inverse


def _spans(values: Hashes, starts: Numbers, ends: Numbers) -> Hashes:
    """The hash of each span start <= number < end of some values: the same wherever it stands."""
    powers, inverse = _powers(1 << (len(values) + 1).bit_length())
    total = np.zeros(len(values) + 1, np.uint64)
    np.cumsum(values * powers[: len(values)], out=total[1:])
    hashed = (total[ends] - total[starts]) * inverse[starts]
    hashed ^= hashed >> np.uint64(29)
    hashed *= np.uint64(0xBF58476D1CE4E5B9)
    hashed ^= hashed >> np.uint64(32)
    return np.asarray(hashed, np.uint64)


def hashed(texts: Sequence[str]) -> Hashed:
    """Return the hashes of texts."""
    joined = "\n".join([*texts, ""]) or "\n"
    if joined.isascii():
        encoded, lengths = joined.lower().encode(), list(map(len, texts))
    else:
        each = [normalize(text).encode("utf-8", "surrogatepass") for text in texts]
        encoded, lengths = b"\n".join([*each, b""]), list(map(len, each))
    letters = np.frombuffer(encoded, np.uint8)
    blank = _IS_BLANK[letters]
    before = np.concatenate(([True], blank[:-1]))
    starts, ends = np.flatnonzero(before & ~blank), np.flatnonzero(blank & ~before)
    words = _spans(_OF_BYTE[letters], starts, ends)
    borders = np.concatenate(([0], np.cumsum(np.array(lengths, np.int64) + 1)))
    first = np.searchsorted(starts, borders)
    of = np.repeat(np.arange(len(texts)), np.diff(first))
    whole = np.flatnonzero(of[: 1 - WORDS] == of[WORDS - 1 :]) if len(words) >= WORDS else np.zeros(0, np.int64)
    return Hashed(_spans(words, first[:-1], first[1:]), _spans(words, whole, whole + WORDS), of[whole])
