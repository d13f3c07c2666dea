"""NF4 weights with a copy in the compute dtype: the same numbers, without unpacking them at every step.

Linear4bit unpacks its weight in every forward and again in every backward pass. An adapter never changes the frozen
weight, so it can be unpacked once: the products are bitwise the same (bitsandbytes 0.50.2, MatMul4Bit multiplies with the
unpacked weight too), only the memory differs: 2 bytes a weight instead of 0.55.
"""

from __future__ import annotations

from typing import Any

import torch
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit


def copy_bytes(model: torch.nn.Module) -> int:
    """Return the bytes that copies of all 4-bit layers would take."""
    return sum(2 * m.in_features * m.out_features for m in model.modules() if isinstance(m, Linear4bit))


def dequantize_linears(model: torch.nn.Module, dtype: torch.dtype) -> int:
    """Replace every Linear4bit by a frozen Linear that holds its unpacked weight; return how many. `model` in place."""
    replaced = 0
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, Linear4bit):
                setattr(parent, name, _unpacked(layer, dtype))
                replaced += 1
    return replaced


def _unpacked(layer: Any, dtype: torch.dtype) -> torch.nn.Linear:
    weight = dequantize_4bit(layer.weight.data, layer.weight.quant_state).to(dtype)
    plain = torch.nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
    plain.weight = torch.nn.Parameter(weight, requires_grad=False)
    if layer.bias is not None:
        plain.bias = torch.nn.Parameter(layer.bias.data.to(dtype), requires_grad=False)
    plain.train(layer.training)
    return plain
