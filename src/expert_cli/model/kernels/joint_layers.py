"""Layers that read the same input, computed together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch


class JointLayers(ABC):
    """Layers that read the same input: the first that is called computes for all, the others hand their output out."""

    def __init__(self, layers: list[Any]) -> None:
        """Take the layers, whose `forward` is to be this one's."""
        self.layers = layers
        self.input: torch.Tensor | None = None
        self.outputs: dict[Any, torch.Tensor] = {}

    def forward(self, layer: Any, x: torch.Tensor, *args: Any, **settings: Any) -> torch.Tensor:
        """Return a layer's output; by its own way wherever it is asked for more than the product."""
        if args or settings or not self._takes(x):
            return type(layer).forward(layer, x, *args, **settings)  # type: ignore[no-any-return]
        if x is not self.input or layer not in self.outputs:
            self.input, self.outputs = x, dict(zip(self.layers, self._outputs(x), strict=True))
        output = self.outputs.pop(layer)
        if not self.outputs:
            self.input = None
        return output

    @abstractmethod
    def _takes(self, x: torch.Tensor) -> bool:
        """Whether the layers are computed together for this input."""

    @abstractmethod
    def _outputs(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the output of every layer."""
