"""Gradients of the adapter: clipped by their common norm, and watched for layers that get none at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from expert_cli._compat import norms, scale_

WATCHED_STEPS = 3


class Gradients:
    """The adapter's tensors, held once: walking the module tree takes milliseconds at every step."""

    def __init__(self, named: Iterable[tuple[str, torch.nn.Parameter]]) -> None:
        """Take the parameters that are trained."""
        pairs = [(name, parameter) for name, parameter in named if parameter.requires_grad]
        self.parameters = [parameter for _, parameter in pairs]
        self._layer_of = [name.split(".lora_")[0] for name, _ in pairs]
        self._moved: torch.Tensor | None = None
        self._steps = 0

    def clip(self, largest: float) -> torch.Tensor:
        """Scale all gradients so that their common norm is at most `largest` (0: leave them).

        Return the norms before that, [1 + tensors]: the common one, then each tensor's, for `dead_layers` to be told once
        they can be read without waiting.
        """
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters]
        each = norms(gradients)
        total: torch.Tensor = torch.linalg.vector_norm(each)
        if largest > 0:
            scale_(gradients, torch.clamp(largest / (total + 1e-6), max=1.0))
        return torch.cat([total.unsqueeze(0), each])

    def zero_grad(self) -> None:
        """Drop the gradients of the last step."""
        for parameter in self.parameters:
            parameter.grad = None

    def dead_layers(self, norms: torch.Tensor) -> list[str]:
        """Take each tensor's norm of one more step, on the CPU, [tensors]; after 3 steps return the layers without gradients.

        LoRA's A has none in the first step, when B is zero; a layer whose A and B both have none is cut off from the loss.
        Single rows of an embedding (`trainable_tokens_delta`) have none where no document of these steps holds the token.
        """
        moved = norms != 0
        self._moved = moved if self._moved is None else self._moved | moved
        self._steps += 1
        if self._steps < WATCHED_STEPS:
            return []
        alive = {layer for layer, moved in zip(self._layer_of, self._moved.tolist(), strict=True) if moved}
        self._moved, self._steps = None, 0
        return [layer for layer in dict.fromkeys(self._layer_of) if layer not in alive and not _is_token_rows(layer)]

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold."""
        return {"moved": self._moved, "steps": self._steps}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` gave."""
        self._moved = state["moved"]
        self._steps = int(state["steps"])


def _is_token_rows(layer: str) -> bool:
    return "trainable_tokens_delta" in layer
