"""Keeps the adapter in two flat buffers, so that one kernel zeroes, reduces, scales or updates all of its tensors."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from expert_cli._compat import norms

WATCHED_STEPS = 3
_MOMENTS = {"adamw": 2, "lion": 1, "rmsprop": 1, "adagrad": 1, "sgd": 0}
"""Number of tensors of the parameter's size in an optimizer's state; Adafactor keeps only a row and a column."""


class FlatParameters:
    """The trained tensors of a model, fp32, and their gradients, as views of two flat buffers.

    flat: the parameter [numbers] for the optimizer; gradient: its gradient. Both buffers are modified in place, never
    replaced, because CUDA graphs hold their addresses.
    """

    def __init__(self, named: Iterable[tuple[str, torch.nn.Parameter]]) -> None:
        """Take the trained parameters; their values become views."""
        pairs = [(name, parameter) for name, parameter in named if parameter.requires_grad]
        self.parameters = [parameter for _, parameter in pairs]
        self._layer_of = [name.split(".lora_")[0] for name, _ in pairs]
        values = torch.cat([parameter.detach().flatten() for parameter in self.parameters])
        self.flat = torch.nn.Parameter(values)
        self.gradient = self.flat.grad = torch.zeros_like(values)
        sizes = [parameter.numel() for parameter in self.parameters]
        parts = zip(torch.split(values, sizes), torch.split(self.gradient, sizes), strict=True)
        for parameter, (value, gradient) in zip(self.parameters, parts, strict=True):
            parameter.data, parameter.grad = value.view_as(parameter), gradient.view_as(parameter)
        self._moved: torch.Tensor | None = None
        self._steps = 0

    def clip(self, largest: float) -> torch.Tensor:
        """Scale gradients to a total norm of at most `largest` (0: no scaling); return the norms before, [1 + tensors]."""
        each = norms([parameter.grad for parameter in self.parameters if parameter.grad is not None])
        total = torch.linalg.vector_norm(each)
        if largest > 0:
            self.gradient.mul_(torch.clamp(largest / (total + 1e-6), max=1.0))
        return torch.cat([total.unsqueeze(0), each])

    def dead_layers(self, norms: torch.Tensor) -> list[str]:
        """Take a step's gradient norms, on the CPU, [tensors]; at every third step return the layers without gradients.

        LoRA's A has none in the first step, because B is zero; a layer without gradients in A and B is disconnected from the
        loss. Rows of an embedding (`trainable_tokens_delta`) are not checked: their tokens may not occur in these steps.
        """
        moved = norms != 0
        self._moved = moved if self._moved is None else self._moved | moved
        self._steps += 1
        if self._steps < WATCHED_STEPS:
            return []
        alive = {layer for layer, moved in zip(self._layer_of, self._moved.tolist(), strict=True) if moved}
        self._moved, self._steps = None, 0
        dead = dict.fromkeys(layer for layer in self._layer_of if layer not in alive)
        return [layer for layer in dead if "trainable_tokens_delta" not in layer]


def optimizer_bytes(parameter: torch.Tensor, optimizer: str) -> int:
    """Return the bytes of an optimizer's state for a parameter."""
    moments = next((count for name, count in _MOMENTS.items() if name in optimizer), 0)
    if "8bit" in optimizer:
        return moments * (parameter.numel() + 4 * parameter.numel() // 256)
    return moments * parameter.numel() * 4
