"""DoRA's linear layers with the norms of their weights taken once an optimizer step.

    y = x W^T + bias + ((g - 1) x W^T + s x A^T (g B)^T) [n, out]      g = magnitude / norm [out]
    norm = || W + s B A ||, row by row, a constant to autograd (arXiv:2402.09353, section 4.3)

PEFT unpacks every weight and takes this norm in every forward pass, and adds up in fp32 [n, out]. But W is frozen, and A and B
change with the optimizer alone: `refresh_norms` is called after it. Everything else is in the compute dtype, in which g is 1
for a long while: g - 1 is taken in fp32, and what is small is added up before it is added to what is large.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from peft.tuners.lora.variants import DoraLinearVariant
from torch.nn.functional import linear

from expert_cli.model.kernels.dequantize import frozen_weight


def patch_dora(model: Any) -> int:
    """Let the DoRA layers of `model` compute so; return how many. Each gets a buffer `norm`, fp32 [out]."""
    model.dora_layers = [layer for layer in model.modules() if _is_dora(layer)]
    for layer in model.dora_layers:
        (name,) = layer.lora_A
        magnitude = layer.lora_magnitude_vector[name].weight
        layer.register_buffer("norm", torch.empty_like(magnitude, requires_grad=False), persistent=False)
        layer.forward = partial(_forward, layer, name)
    refresh_norms(model)
    return len(model.dora_layers)


@torch.no_grad()
def refresh_norms(model: Any) -> None:
    """Take the norms of a patched model's weights anew, in place; to be called whenever its factors have changed.

    Of another model nothing is. Nothing asks the host, so it can be recorded in a CUDA graph. A layer at a time: W is
    unpacked in fp32.
    """
    for layer in _layers(model):
        (name,) = layer.lora_A
        a, b = layer.lora_A[name].weight, layer.lora_B[name].weight
        weight = frozen_weight(layer.base_layer, a.dtype)
        torch.linalg.vector_norm(torch.addmm(weight, b, a, alpha=layer.scaling[name]), dim=1, out=layer.norm)


def has_norms(model: Any) -> bool:
    """Whether a model has DoRA layers that compute so."""
    return bool(_layers(model))


def _layers(model: Any) -> list[Any]:
    return getattr(model, "dora_layers", [])


def _is_dora(layer: Any) -> bool:
    is_lora = isinstance(layer, LoraLayer) and isinstance(layer.base_layer, torch.nn.Linear)
    return is_lora and [*map(type, layer.lora_variant.values())] == [DoraLinearVariant] and len(layer.lora_A) == 1


def _forward(layer: Any, name: str, x: torch.Tensor, *args: Any, **settings: Any) -> torch.Tensor:
    """Return a layer's output; by PEFT's own way wherever it is asked for more than that of its one adapter."""
    is_on = layer.active_adapters == [name] and not (layer.disable_adapters or layer.merged)
    if args or settings or not is_on:
        return type(layer).forward(layer, x, *args, **settings)  # type: ignore[no-any-return]
    base = layer.base_layer
    output: torch.Tensor = base(x)
    read = layer.lora_dropout[name](x)  # PEFT drops from what g scales, but not from x W^T
    product = output if read is x else base(read)
    g = layer.lora_magnitude_vector[name].weight / layer.norm
    beyond = (g - 1).to(output.dtype)
    a, b = layer.lora_A[name].weight, g[:, None] * layer.lora_B[name].weight
    inner = linear(read.to(output.dtype), a.to(output.dtype)) * layer.scaling[name]
    scaled = beyond * product if base.bias is None else torch.addcmul(-beyond * base.bias, beyond, product)
    more = torch.addmm(scaled.flatten(0, -2), inner.flatten(0, -2), b.to(output.dtype).t())
    return output + more.view_as(output)
