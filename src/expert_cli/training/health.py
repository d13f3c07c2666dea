"""Checks loss and gradient norm of every step, and stops a run that has failed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from expert_cli.errors import TrainingFailed
from expert_cli.hardware.devices import device_of
from expert_cli.model.flat_parameters import FlatParameters


@dataclass
class TrainingState:
    """Counts of a run: the loss of each step (mean per trained token), tokens, and seconds in the training loop."""

    losses: list[float] = field(default_factory=list)
    real: int = 0
    trained: int = 0
    padded: int = 0
    seconds: float = 0.0


class TrainingHealth:
    """Checks each step one step later, because reading its values at once would wait for the GPU; on a CPU at once."""

    def __init__(
        self, progress: TrainingState, gradients: FlatParameters, documents: Callable[[int], str], *, scaled: bool
    ) -> None:
        """progress: gets the losses. documents: names those of a step (from 0). scaled: fp16, whose scaler skips bad steps."""
        self.progress, self.gradients, self.documents, self.scaled = progress, gradients, documents, scaled
        self.grad_norm = 0.0
        self._unread: torch.Tensor | None = None
        self._copied: Any = None

    def record(self, figures: torch.Tensor) -> None:
        """Take the current step's loss, gradient norm, and gradient norm of each tensor, fp32 [2 + tensors]."""
        self.flush()
        device = device_of(figures.device)
        if not device.is_gpu:
            self._unread = figures
            self.flush()
            return
        self._unread = torch.empty(len(figures), pin_memory=True)
        self._unread.copy_(figures, non_blocking=True)
        self._copied = device.event()
        self._copied.record()

    def flush(self) -> None:
        """Check the values not read yet. Raises TrainingFailed for a failed run."""
        if self._unread is None:
            return
        if self._copied is not None:
            self._copied.synchronize()
        (loss, self.grad_norm), norms = self._unread[:2].tolist(), self._unread[2:]
        self._unread = None
        self.progress.losses.append(loss)
        self._require_healthy(loss, norms, len(self.progress.losses))

    def _require_healthy(self, loss: float, norms: torch.Tensor, step: int) -> None:
        figures = {"loss": loss} if self.scaled else {"loss": loss, "gradient norm": self.grad_norm}
        for name, figure in figures.items():
            if not math.isfinite(figure):
                hint = "lower learning_rate, keep max_grad_norm at 1.0, or train in bf16 instead of fp16"
                raise TrainingFailed(f"the {name} of step {step} is {figure}; {self.documents(step - 1)}", hint)
        if loss == 0.0:
            hint = "check these rows: they have no trained token, or the model's output is broken"
            raise TrainingFailed(f"the loss of step {step} is exactly 0.0; {self.documents(step - 1)}", hint)
        if dead := self.gradients.dead_layers(norms):
            told = f"{len(dead)} adapter layers get no gradient at all, {dead[0]} among them (step {step})"
            raise TrainingFailed(told, "they would stay untrained; report this with the output of expert-cli doctor")
