"""LoRA's product added to a frozen layer's output in one autograd step, for CPUs.

PEFT turns the input to fp32, autocast turns it back, the product is scaled and added at its full width, and every one of
these steps has its own backward pass. Here the input stays in the compute dtype, and the product is added in place:

    result [.., out] += scaling x (x [.., in] A^T [in, r]) B^T [r, out]
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer


def fuse(model: PeftModel) -> int:
    """Let the plain LoRA layers of `model` add their product so; return how many. Others, DoRA's say, are left alone."""
    fused = 0
    for layer in model.modules():
        if isinstance(layer, LoraLayer) and _is_plain(layer):
            layer.forward = partial(_forward, layer)
            fused += 1
    return fused


def _is_plain(layer: Any) -> bool:
    base = getattr(layer, "base_layer", None)
    return isinstance(base, torch.nn.Linear) and not layer.lora_variant and len(layer.lora_A) == 1


def _forward(layer: Any, x: torch.Tensor, *args: Any, **settings: Any) -> torch.Tensor:
    names = layer.active_adapters
    as_usual = layer.disable_adapters or layer.merged or args or settings
    if as_usual or not _in_autocast(x) or len(names) != 1 or names[0] not in layer.lora_A:
        return type(layer).forward(layer, x, *args, **settings)  # type: ignore[no-any-return]
    a, b = layer.lora_A[names[0]].weight, layer.lora_B[names[0]].weight
    added: torch.Tensor = _AddProduct.apply(  # type: ignore[no-untyped-call]
        layer.base_layer(x), layer.lora_dropout[names[0]](x), a, b, layer.scaling[names[0]]
    )
    return added


def _in_autocast(x: torch.Tensor) -> bool:
    device = x.device.type
    return torch.is_autocast_enabled(device) and x.dtype == torch.get_autocast_dtype(device)


class _AddProduct(torch.autograd.Function):
    """result + scaling x (x A^T) B^T, in place; A [r, in] and B [out, r] are fp32, everything else has x's dtype."""

    @staticmethod
    def forward(
        ctx: Any, result: torch.Tensor, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, scaling: float
    ) -> torch.Tensor:
        rows, a, b = x.reshape(-1, x.shape[-1]), a.to(x.dtype), b.to(x.dtype)
        inner = rows @ a.t()
        result.view(-1, result.shape[-1]).addmm_(inner, b.t(), alpha=scaling)
        ctx.mark_dirty(result)
        ctx.save_for_backward(rows, inner, a, b)
        ctx.scaling, ctx.shape = scaling, x.shape
        return result

    @staticmethod
    def backward(ctx: Any, *outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        rows, inner, a, b = ctx.saved_tensors
        gradient = outputs[0].reshape(-1, outputs[0].shape[-1])
        of_inner = (gradient @ b).mul_(ctx.scaling)
        of_a = of_inner.t() @ rows
        of_b = (gradient.t() @ inner).mul_(ctx.scaling)
        return outputs[0], (of_inner @ a).view(ctx.shape), of_a.float(), of_b.float(), None
