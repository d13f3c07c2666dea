"""A histogram of lengths, for statistics about packs and documents without a list of all lengths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class LengthHistogram:
    """A histogram of lengths. counts: int64 [longest + 1], how many have n tokens; [1] if there are none."""

    counts: NDArray[np.int64]

    @classmethod
    def of(cls, lengths: NDArray[np.integer[Any]]) -> LengthHistogram:
        """Return the histogram of lengths."""
        return cls(np.bincount(lengths, minlength=1))

    def __len__(self) -> int:
        """Return the number of lengths."""
        return int(self.counts.sum())

    @property
    def tokens(self) -> int:
        """The sum of all lengths."""
        return int((self.counts * np.arange(len(self.counts))).sum())

    @property
    def squares(self) -> int:
        """The sum of all squared lengths."""
        return int((self.counts * np.arange(len(self.counts)) ** 2).sum())

    @property
    def longest(self) -> int:
        """The largest length; 0 if there are none."""
        return len(self.counts) - 1

    @property
    def mean(self) -> float:
        """The mean length; 0 if there are none."""
        return self.tokens / max(1, len(self))

    def beyond(self, length: int) -> tuple[int, int]:
        """Return how many lengths are larger, and by how many tokens in total."""
        longer = self.counts[length + 1 :]
        return int(longer.sum()), int((longer * np.arange(1, len(longer) + 1)).sum())

    def percentile(self, percent: float) -> int:
        """Return a percentile, which is an existing length. Raises IndexError if there are none."""
        # Like numpy's method "higher": of n sorted lengths, number i (from 0) is at i / (n - 1).
        place = np.ceil(percent / 100 * (len(self) - 1))
        return int(np.flatnonzero(np.cumsum(self.counts) > place)[0])

    def largest(self, count: int) -> list[int]:
        """Return the `count` largest lengths, or all if there are fewer, descending."""
        lengths = np.flatnonzero(self.counts)[::-1]
        return np.repeat(lengths, np.minimum(self.counts[lengths], count))[:count].tolist()  # type: ignore[no-any-return]
