"""Dequantizes NF4 weights once into the compute dtype, instead of at every step; the numbers are the same.

Frozen weights do not change, so a copy with 2 bytes per weight instead of 0.55 saves that work. Products are bitwise equal if
bitsandbytes, too, multiplies with the dequantized weight: always on a CPU, and on a GPU in the backward pass and from 1,537
tokens on. For fewer tokens, its kernels (0.50.2) multiply in another order.

Whether the copy fits is known only after a trial step. Until then the packed weights may be kept in host memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit, Linear8bitLt


class DequantizedLinear(torch.nn.Linear):
    """A frozen layer with a dequantized weight. packed: the original layer, in host memory; None: not kept."""

    packed: Linear4bit | None = None


def copy_bytes(model: torch.nn.Module) -> int:
    """Return the bytes of dequantized copies of all 4-bit layers."""
    return sum(2 * m.in_features * m.out_features for m in model.modules() if isinstance(m, Linear4bit))


def dequantize_linears(model: torch.nn.Module, dtype: torch.dtype, *, keep_packed: bool = False) -> None:
    """Replace every Linear4bit by a frozen Linear with its dequantized weight. keep_packed: for `restore_packed`."""
    for parent, name, layer in _children(model, Linear4bit):
        weight, has_bias = frozen_weight(layer, dtype), layer.bias is not None
        plain = DequantizedLinear(layer.in_features, layer.out_features, bias=has_bias, device="meta")
        plain.weight = torch.nn.Parameter(weight, requires_grad=False)
        if has_bias:
            plain.bias = torch.nn.Parameter(layer.bias.data.to(dtype), requires_grad=False)
        if keep_packed:
            layer.weight = layer.weight.to("cpu")
            # not a submodule: neither moved with the model nor counted among its layers
            object.__setattr__(plain, "packed", layer)
        setattr(parent, name, plain.train(layer.training))


def frozen_weight(layer: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return the weight of a linear layer [out, in] in `dtype`, dequantized as in bitsandbytes' own backward pass."""
    if isinstance(layer, Linear4bit):
        state = getattr(layer.weight, "quant_state", None) or layer.quant_state  # a sharded weight has no quant_state
        return dequantize_4bit(layer.weight.data, state).to(dtype)  # type: ignore[no-any-return]
    if isinstance(layer, Linear8bitLt):
        scales = layer.state.SCB.unsqueeze(1).mul(1.0 / 127.0)
        return layer.state.CB.to(dtype, copy=True).mul_(scales)  # type: ignore[no-any-return]
    return layer.weight.to(dtype)  # type: ignore[no-any-return]


def restore_packed(model: torch.nn.Module) -> int:
    """Put the kept packed layers back into `model`, unchanged; return how many."""
    restored = 0
    for parent, name, layer in _children(model, DequantizedLinear):
        if layer.packed is not None:
            device = layer.weight.device
            layer.packed.weight = layer.packed.weight.to(device)
            setattr(parent, name, layer.packed.train(layer.training))
            restored += 1
    return restored


def drop_packed(model: torch.nn.Module) -> None:
    """Discard the packed layers and keep the copies."""
    for _, _, layer in _children(model, DequantizedLinear):
        layer.packed = None


def _children(model: torch.nn.Module, kind: type[torch.nn.Module]) -> Iterator[tuple[torch.nn.Module, str, Any]]:
    """Yield every layer of a kind with its parent and its name there; it may be replaced during iteration."""
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, kind):
                yield parent, name, layer
