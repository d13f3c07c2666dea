"""Loss and gradient norm of every step, and the end of a run that has gone wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from expert_cli.errors import TrainingFailed
from expert_cli.hardware.devices import device_of
from expert_cli.model.flat_parameters import FlatParameters
from expert_cli.training.state import TrainingState


class TrainingHealth:
    """Reads what a step came to one step late: asking at once would wait for the GPU, once in every step.

    On a CPU there is nothing to wait for, and without pinned memory no copy that does not wait: there a step's figures are
    read when it is done.
    """

    def __init__(
        self,
        progress: TrainingState,
        gradients: FlatParameters,
        documents: Callable[[int], str],
        *,
        scaled: bool,
    ) -> None:
        """Losses go to `progress`; `documents` names those of a step (from 0). scaled: fp16, whose scaler skips bad steps."""
        self.progress = progress
        self.gradients = gradients
        self.documents = documents
        self.scaled = scaled
        self.grad_norm = 0.0
        self._unread: torch.Tensor | None = None
        self._copied: Any = None

    def record(self, figures: torch.Tensor) -> None:
        """Take loss, gradient norm and each tensor's norm of the step just done, fp32 [2 + tensors]."""
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
        """Read the figures that were not read yet, and stop a run that has gone wrong.

        Raises TrainingFailed: loss or gradient norm not finite, a loss of exactly 0, layers without any gradient.
        """
        if self._unread is None:
            return
        if self._copied is not None:
            self._copied.synchronize()
        (loss, self.grad_norm), norms = self._unread[:2].tolist(), self._unread[2:]
        self._unread = None
        self.progress.losses.append(loss)
        self._require_healthy(loss, norms, len(self.progress.losses))

    def _require_healthy(self, loss: float, norms: torch.Tensor, step: int) -> None:
        where = f"step {step}"
        if not math.isfinite(loss) or not (math.isfinite(self.grad_norm) or self.scaled):
            sick = (
                f"loss of {where} is {loss}"
                if not math.isfinite(loss)
                else f"gradient norm of {where} is {self.grad_norm}"
            )
            hint = "lower learning_rate, keep max_grad_norm at 1.0, or train in bf16 instead of fp16"
            raise TrainingFailed(f"the {sick}; {self.documents(step - 1)}", hint)
        if loss == 0.0:
            raise TrainingFailed(
                f"the loss of {where} is exactly 0.0; {self.documents(step - 1)}",
                "look at these rows: nothing in them is trained, or the model's output is broken",
            )
        dead = self.gradients.dead_layers(norms)
        if dead:
            raise TrainingFailed(
                f"{len(dead)} adapter layers get no gradient at all, {dead[0]} among them ({where})",
                "they would stay untrained; report this with the output of expert-cli doctor",
            )
