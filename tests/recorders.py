"""What records a step, as `captured_step.CudaGraphs` does, where there is no CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Work = Callable[[], Any]


class Recorder:
    """A replay is the work itself, over the same buffers. recorded: how much was recorded."""

    def __init__(self) -> None:
        self.recorded = 0

    def warm_up(self, work: Work) -> Any:
        return work()

    def __call__(self, work: Work) -> Work:
        self.recorded += 1
        return work


class BrokenRecorder(Recorder):
    """A card or a driver that records something else: `how` makes the replay, of the work and all gradients."""

    gradient: torch.Tensor

    def __init__(self, how: Callable[[Work, torch.Tensor], Work]) -> None:
        super().__init__()
        self.how = how

    def __call__(self, work: Work) -> Work:
        self.recorded += 1
        return self.how(work, self.gradient)


def raising(error: Exception) -> BrokenRecorder:
    """Return what cannot record."""

    def how(_work: Work, _gradient: torch.Tensor) -> Work:
        raise error

    return BrokenRecorder(how)


def _refuses(work: Work, gradient: torch.Tensor) -> Work:
    raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore of it")


def _doubles(work: Work, gradient: torch.Tensor) -> Work:
    def replay() -> Any:
        before, loss = gradient.clone(), work()
        gradient.add_(gradient - before)
        return loss

    return replay


def _overwrites(work: Work, gradient: torch.Tensor) -> Work:
    def replay() -> Any:
        gradient.zero_()
        return work()

    return replay


def _reads_copies(work: Work, gradient: torch.Tensor) -> Work:
    """Answer for ever what the buffers gave when it was recorded."""
    before, loss = gradient.clone(), work()
    added = gradient - before
    gradient.copy_(before)

    def replay() -> Any:
        gradient.add_(added)
        return loss

    return replay


BROKEN = {
    "refuses": (_refuses, "CUDA error: operation not permitted when stream is capturing"),
    "reads copies": (_reads_copies, "loss: 47."),
    "doubles": (_doubles, "gradient norm: "),
    "overwrites": (_overwrites, "gradient norm of two replays: "),
}
"""Ways in which a recorded step may be another one, and how what is said of each begins."""
