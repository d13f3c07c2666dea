"""Measures how a run spends its time, by phase, without waiting for the GPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from expert_cli.hardware.devices import Device
from expert_cli.runs.metrics import SHARES


class StepTimer:
    """Adds up the time of every phase.

    A phase is measured between two events of the device, which are read later, so that a GPU's own time counts. "other" is the
    rest of the wall-clock time, spent in the tool itself.
    """

    def __init__(self, device: Device) -> None:
        """Start the wall clock."""
        self.device = device
        self.totals: dict[str, float] = dict.fromkeys(SHARES, 0.0)
        self._pending: list[tuple[str, Any, Any]] = []
        self._since = time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time of the block for phase `name`; phases do not nest."""
        self.begin(name)
        yield
        self.end()

    def begin(self, name: str) -> None:
        """Begin phase `name`, until `end`."""
        self._open = name, self.device.event(), self.device.event()
        self._open[1].record()

    def end(self) -> None:
        """End the current phase."""
        self._open[2].record()
        self._pending.append(self._open)

    def lap(self) -> tuple[float, dict[str, float]]:
        """Return the seconds since the last lap, and each phase's share of them; the shares sum to 1."""
        if self._pending:
            self._pending[-1][2].synchronize()
        spent = dict.fromkeys(SHARES, 0.0)
        for name, begin, end in self._pending:
            spent[name] += begin.elapsed_time(end) / 1000
        self._pending.clear()
        now = time.perf_counter()
        wall, self._since = max(1e-9, now - self._since), now
        spent["other"] = max(0.0, wall - sum(spent.values()))
        for phase, seconds in spent.items():
            self.totals[phase] += seconds
        return wall, _shares(spent)

    def shares(self) -> dict[str, float]:
        """Return each phase's share of all laps so far."""
        return _shares(self.totals)


def _shares(seconds: dict[str, float]) -> dict[str, float]:
    total = sum(seconds.values()) or 1.0
    return {name: seconds[name] / total for name in SHARES}
