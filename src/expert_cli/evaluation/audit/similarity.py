"""How alike texts are, for many at once: Jaccard similarity of their sets of 5 characters in a row.

Candidates come from MinHash signatures (Broder 1997) in bands; what they propose is then measured exactly, so that nothing
is called alike that is not. Two rows of similarity 0.8 become candidates with a probability of 99.98 %; a row is compared
with the first row and the one before it of each of its buckets, which keeps the time linear and can miss a few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from expert_cli.utils.text import normalize

NEAR = 0.8
WIDTH = 5
HASHES = 64
BAND = 4
MARGIN = 0.15
"""How far below `NEAR` a similarity that signatures estimate may be: three standard deviations of 64 hashes."""
_CHUNK_CHARACTERS = 1 << 20
_PAIRS_AT_ONCE = 1 << 16

Signatures = NDArray[np.uint32]


def _characters(texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The hashes of all sets of characters, text after text, and where those of each text begin."""
    padded = [text.ljust(WIDTH) for text in texts]
    lengths = np.array([len(text) - WIDTH + 1 for text in padded], np.int64)
    points = np.frombuffer("".join(padded).encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    begins = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    at = np.arange(int(lengths.sum())) + np.repeat((WIDTH - 1) * np.arange(len(texts)), lengths)
    value = points[at]
    for step in range(1, WIDTH):
        value = value * np.uint64(0x9E3779B97F4A7C15) + points[at + step]
    value ^= value >> np.uint64(29)
    value *= np.uint64(0xBF58476D1CE4E5B9)
    return (value >> np.uint64(32)).astype(np.uint32), begins


def signatures(texts: Sequence[str], progress: Callable[[float], None] = lambda _: None) -> Signatures:
    """Return the MinHash signature of every text, uint32 [texts, HASHES]. The texts are normalized."""
    drawn = np.random.default_rng(0).integers(1, 1 << 32, (HASHES, 2), np.uint32)
    result = np.empty((len(texts), HASHES), np.uint32)
    start = 0
    while start < len(texts):
        stop, size = start, 0
        while stop < len(texts) and (stop == start or size + len(texts[stop]) <= _CHUNK_CHARACTERS):
            size += len(texts[stop]) + WIDTH
            stop += 1
        hashes, begins = _characters(texts[start:stop])
        for number, (salt, factor) in enumerate(drawn):
            mixed = (hashes ^ salt) * (factor | np.uint32(1))
            mixed ^= mixed >> np.uint32(15)
            mixed *= np.uint32(0x2C1B3C6D)
            result[start:stop, number] = np.minimum.reduceat(mixed, begins)
        start = stop
        progress(start)
    return result


@lru_cache(maxsize=1 << 15)
def _set_of(text: str) -> frozenset[str]:
    padded = text.ljust(WIDTH)
    return frozenset(padded[at : at + WIDTH] for at in range(len(padded) - WIDTH + 1))


def similarity(first: Sequence[str], second: Sequence[str]) -> float:
    """Return the Jaccard similarity of two texts, each given in parts whose sets are united."""
    if first == second:
        return 1.0
    one, other = (frozenset().union(*map(_set_of, parts)) for parts in (first, second))
    return len(one & other) / len(one | other)


@dataclass(frozen=True)
class Texts:
    """Many normalized texts with their signatures, equal ones held once. index: of each text, its number in `unique`."""

    unique: list[str]
    index: NDArray[np.int64]
    signatures: Signatures

    @classmethod
    def of(cls, texts: Sequence[str], progress: Callable[[float], None] = lambda _: None) -> Texts:
        """Return texts, not normalized yet, in that form."""
        numbers: dict[str, int] = {}
        index = [numbers.setdefault(normalize(text), len(numbers)) for text in texts]
        unique = list(numbers)
        return cls(unique, np.array(index, np.int64), signatures(unique, progress))

    def __getitem__(self, number: int) -> str:
        """Return one text."""
        return self.unique[int(self.index[number])]


def near_duplicates(
    asked: Texts, inputs: Texts, answers: Texts, rows: Sequence[int], progress: Callable[[float], None] = lambda _: None
) -> dict[int, int]:
    """Return the rows, of those numbered in `rows`, that are nearly an earlier one, each with that one's number.

    progress: takes the number of the row that is looked at.
    """
    numbers = np.array(rows, np.int64)
    # The minimum over a union is the least of the minima.
    signed = np.minimum(asked.signatures[asked.index[numbers]], answers.signatures[answers.index[numbers]])
    first, second = _candidates(signed)
    alike = np.concatenate(
        [np.zeros(0, np.bool_)]
        + [
            (signed[first[at : at + _PAIRS_AT_ONCE]] == signed[second[at : at + _PAIRS_AT_ONCE]]).mean(axis=1)
            >= NEAR - MARGIN
            for at in range(0, len(first), _PAIRS_AT_ONCE)
        ]
    )
    near: dict[int, int] = {}
    for earlier, later in zip(numbers[first[alike]].tolist(), numbers[second[alike]].tolist(), strict=True):
        if later not in near and _is_near(asked, inputs, answers, earlier, later):
            near[later] = earlier
            progress(later)
    return near


def near_in(asked: Texts, inputs: Texts, row_questions: Texts, row_inputs: Texts) -> dict[int, int]:
    """Return the numbers of the texts that a row nearly asks, each with the number of such a row."""
    rows = len(row_questions.index)
    signed = np.concatenate(
        [texts.signatures[texts.index] for texts in (row_questions, asked)], dtype=row_questions.signatures.dtype
    )
    near: dict[int, int] = {}
    for row, later in zip(*map(np.ndarray.tolist, _candidates(signed)), strict=True):
        number = later - rows
        if row < rows and number >= 0 and number not in near and asked[number]:
            both = (
                similarity((asked[number],), (row_questions[row],)),
                similarity((inputs[number],), (row_inputs[row],)),
            )
            if min(both) >= NEAR:
                near[number] = row
    return near


def _is_near(asked: Texts, inputs: Texts, answers: Texts, one: int, other: int) -> bool:
    return (
        similarity((asked[one], answers[one]), (asked[other], answers[other])) >= NEAR
        and similarity((inputs[one],), (inputs[other],)) >= NEAR
    )


def _candidates(signed: Signatures) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs (earlier, later) of rows that share a band: each with the first of its bucket, and with the one before it."""
    count = len(signed)
    pairs = [np.zeros(0, np.int64)]
    for start in range(0, HASHES, BAND):
        bucket = np.zeros(count, np.uint64)
        for column in range(start, start + BAND):  # two buckets of one key would only propose a pair too many
            bucket = (bucket ^ signed[:, column]) * np.uint64(0x9E3779B97F4A7C15)
            bucket ^= bucket >> np.uint64(32)
        order = np.argsort(bucket, kind="stable")
        ordered = bucket[order]
        begins = np.concatenate(([True], ordered[1:] != ordered[:-1]))[:count]
        firsts = order[np.maximum.accumulate(np.where(begins, np.arange(count), 0))] if count else order
        later = np.flatnonzero(~begins)
        pairs += [order[later] * count + firsts[later], order[later] * count + order[later - 1]]
    codes = np.unique(np.concatenate(pairs))
    return codes % max(count, 1), codes // max(count, 1)
