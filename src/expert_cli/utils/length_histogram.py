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

    def __len__(self) -> int:
        """Return how many have a length."""
        return int(self.counts.sum())

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
        return self.tokens / max(1, len(self))

    def beyond(self, length: int) -> tuple[int, int]:
        """Return how many are longer, and by how many tokens in all."""
        longer = self.counts[length + 1 :]
        return int(longer.sum()), int((longer * np.arange(1, len(longer) + 1)).sum())

    def percentile(self, percent: float) -> int:
        """Return the length that so many percent do not exceed, one that some have. Raises IndexError where none have any."""
        # The place as numpy's method "higher" finds it: number i of n, from 0, is at i / (n - 1).
        place = np.ceil(percent / 100 * (len(self) - 1))
        return int(np.flatnonzero(np.cumsum(self.counts) > place)[0])

    def largest(self, count: int) -> list[int]:
        """Return the `count` largest lengths, or all, descending."""
        lengths = np.flatnonzero(self.counts)[::-1]
        return np.repeat(lengths, np.minimum(self.counts[lengths], count))[:count].tolist()  # type: ignore[no-any-return]
