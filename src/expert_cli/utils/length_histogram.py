"""How many of something have which length: what is told of all packs and documents without a list of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class LengthHistogram:
    """counts: int64 [longest + 1], how many have n tokens; [1] where there are none."""

    counts: NDArray[np.int64]

    @classmethod
    def of(cls, lengths: NDArray[np.integer[Any]]) -> LengthHistogram:
        """Count lengths."""
        return cls(np.bincount(lengths, minlength=1))

    def __add__(self, other: LengthHistogram) -> LengthHistogram:
        """Return the histogram of both together."""
        counts = np.zeros(max(len(self.counts), len(other.counts)), np.int64)
        counts[: len(self.counts)] += self.counts
        counts[: len(other.counts)] += other.counts
        return LengthHistogram(counts)

    @property
    def tokens(self) -> int:
        """Tokens of all."""
        return int((self.counts * np.arange(len(self.counts))).sum())

    @property
    def squares(self) -> int:
        """The sum of the squares of all lengths."""
        return int((self.counts * np.arange(len(self.counts)) ** 2).sum())

    @property
    def longest(self) -> int:
        """The largest length; 0 where there are none."""
        return len(self.counts) - 1

    @property
    def mean(self) -> float:
        """Tokens of one, on average; 0 where there are none."""
        return self.tokens / max(1, int(self.counts.sum()))

    def largest(self, count: int) -> list[int]:
        """Return the `count` largest lengths, or all, descending."""
        found: list[int] = []
        for length in np.flatnonzero(self.counts)[::-1].tolist():
            found += [length] * min(int(self.counts[length]), count - len(found))
        return found
