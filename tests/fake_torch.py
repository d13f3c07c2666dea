"""Stand-ins of torch's modules for GPUs: there is none where the tests run.

`as_if` replaces functions of the torch that is installed, and fails for one that this torch does not have; `package` writes a
torch of another build, for what is asked before torch is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

MB = 2**20


class FakeEvent:
    """An event that happens two milliseconds after the one before it."""

    clock = count(step=2)

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self.done = False

    def record(self) -> None:
        self.at = next(self.clock)

    def synchronize(self) -> None:
        self.done = True

    def elapsed_time(self, end: FakeEvent) -> float:
        return end.at - self.at


class Clock:
    """torch.cuda's events on a clock that the model moves."""

    now = 0.0

    def __init__(self, *, enable_timing: bool) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = Clock.now

    def synchronize(self) -> None:
        """Nothing waits."""

    def elapsed_time(self, end: Clock) -> float:
        return end.at - self.at


def as_if(patch: pytest.MonkeyPatch, device: str, cards: int = 2) -> list[str]:
    """Make the installed torch tell of GPUs, for "cuda"; return the list of what is called for its effect alone.

    Each card has 80 MB, 20 free; 5 are taken, 7 were.
    """
    calls: list[str] = []
    card = SimpleNamespace(name="a card", total_memory=80 * MB)
    answers: dict[str, Any] = {
        "is_available": lambda: cards > 0,
        "device_count": lambda: cards,
        "current_device": lambda: cards - 1,
        "get_device_properties": lambda index: card if index < cards else None,
        "get_device_name": lambda: card.name,
        "mem_get_info": lambda: (20 * MB, 80 * MB),
        "memory_allocated": lambda: 5 * MB,
        "max_memory_allocated": lambda: 7 * MB,
        "memory_reserved": lambda: 90 * MB,
        "max_memory_reserved": lambda: 95 * MB,
        "reset_peak_memory_stats": lambda: calls.append("reset_peak"),
        "empty_cache": lambda: calls.append("empty_cache"),
        "Event": FakeEvent,
    }
    for name, function in answers.items() if device == "cuda" else ():
        patch.setattr(torch.cuda, name, function)
    return calls


def package(
    patch: pytest.MonkeyPatch, folder: Path, build: str, module: str = "", cards: Callable[[], Any] = list
) -> None:
    """Put a torch in the place of the installed one: `build` is the line of its version file; cards: what it sees."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").touch()
    (folder / "torch" / "version.py").write_text(f"__version__ = '9'\n{build}\n", encoding="utf-8")
    patch.syspath_prepend(str(folder))
    patch.delitem(sys.modules, "torch")
    import torch as other

    if module:
        seen = SimpleNamespace(device_count=lambda: len(cards()), get_device_properties=lambda index: cards()[index])
        other.cuda = seen  # type: ignore[assignment]
