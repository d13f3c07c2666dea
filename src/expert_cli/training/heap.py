"""The C heap of a run on a CPU: glibc keeps the holes that batches of unequal length leave, twice the live memory in time."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import psutil
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

GROWN = 1.4
"""Giving back takes 0.2 s for 2 GB, and the next step asks for most of it again: so only where much is to be got."""


def resident_mb() -> float:
    """Return this process's resident memory."""
    return float(psutil.Process().memory_info().rss) / 2**20


def give_back_free_pages() -> None:
    """Give the pages of the C heap that hold nothing back to the system; without glibc there is nothing to do."""
    if not sys.platform.startswith("linux"):
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
    if trim is not None:
        trim(0)


class HeapKeeper(TrainerCallback):
    """Gives free pages back whenever the process has grown by 40 % over what a step on a tidy heap needs."""

    def __init__(self) -> None:
        """Begin with a tidy heap."""
        self._needed = 0.0
        self._tidy = True

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Look, and give back."""
        now = resident_mb()
        if self._tidy:
            self._needed, self._tidy = max(self._needed, now), False
        elif now > GROWN * self._needed:
            give_back_free_pages()
            self._tidy = True
