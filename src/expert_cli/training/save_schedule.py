"""When a checkpoint is due by the clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

LARGEST_SHARE = 0.01
"""Of the time, at most this much is spent on saving by the clock."""


class SaveSchedule:
    """Counts the time since the last checkpoint, and the checkpoints that were written."""

    def __init__(self, every_s: float) -> None:
        """every_s: seconds between two checkpoints; 0: never by the clock."""
        self.every_s = every_s
        self.written = 0
        self._last_s = 0.0
        self._since = time.monotonic()

    def due(self) -> bool:
        """Whether it is time: not before the last one has cost less than 1 % of the time since then."""
        return bool(self.every_s) and time.monotonic() - self._since >= max(self.every_s, self._last_s / LARGEST_SHARE)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Wrap the writing of a checkpoint."""
        started = time.monotonic()
        yield
        self.written += 1
        self._since = time.monotonic()
        self._last_s = self._since - started
