"""NF4 weights with a copy in the compute dtype: the same numbers, without unpacking them at every step.

An adapter never changes the frozen weight, so it can be unpacked once, for 2 bytes a weight instead of 0.55. The products are
bitwise the same wherever bitsandbytes multiplies with the unpacked weight itself: always on a CPU, on a GPU in the backward
pass and from 1,537 tokens on; fewer go through its own kernels (0.50.2), which multiply in another order.

Whether there is room for the copy is known once a step has been tried. Until then the packed weights may wait on the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit, Linear8bitLt


class DequantizedLinear(torch.nn.Linear):
    """A frozen layer that holds an unpacked weight. packed: the layer that it stands for, on the host; None: not kept."""

    packed: Linear4bit | None = None


def copy_bytes(model: torch.nn.Module) -> int:
    """Return the bytes that copies of all 4-bit layers would take."""
    return sum(2 * m.in_features * m.out_features for m in model.modules() if isinstance(m, Linear4bit))


def dequantize_linears(model: torch.nn.Module, dtype: torch.dtype, *, keep_packed: bool = False) -> None:
    """Replace every Linear4bit by a frozen Linear with its unpacked weight. keep_packed: to restore it."""
    for parent, name, layer in _children(model, Linear4bit):
        weight, has_bias = frozen_weight(layer, dtype), layer.bias is not None
        plain = DequantizedLinear(layer.in_features, layer.out_features, bias=has_bias, device="meta")
        plain.weight = torch.nn.Parameter(weight, requires_grad=False)
        if has_bias:
            plain.bias = torch.nn.Parameter(layer.bias.data.to(dtype), requires_grad=False)
        if keep_packed:
            layer.weight = layer.weight.to("cpu")
            # beside the model: neither moved with it nor counted among its layers
            object.__setattr__(plain, "packed", layer)
        setattr(parent, name, plain.train(layer.training))


def frozen_weight(layer: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return the weight of a linear layer [out, in] in `dtype`, unpacked as bitsandbytes' own backward pass does it."""
    if isinstance(layer, Linear4bit):
        state = getattr(layer.weight, "quant_state", None) or layer.quant_state  # a sharded weight has none of its own
        return dequantize_4bit(layer.weight.data, state).to(dtype)  # type: ignore[no-any-return]
    if isinstance(layer, Linear8bitLt):
        scales = layer.state.SCB.unsqueeze(1).mul(1.0 / 127.0)
        return layer.state.CB.to(dtype, copy=True).mul_(scales)  # type: ignore[no-any-return]
    return layer.weight.to(dtype)  # type: ignore[no-any-return]


def restore_packed(model: torch.nn.Module) -> int:
    """Put the packed layers that were kept back in the copies' place, bit for bit as they were; return how many. In place."""
    restored = 0
    for parent, name, layer in _children(model, DequantizedLinear):
        if layer.packed is not None:
            device = layer.weight.device
            layer.packed.weight = layer.packed.weight.to(device)
            setattr(parent, name, layer.packed.train(layer.training))
            restored += 1
    return restored


def drop_packed(model: torch.nn.Module) -> None:
    """Keep no packed layer any longer: the copies stay."""
    for _, _, layer in _children(model, DequantizedLinear):
        layer.packed = None


def _children(model: torch.nn.Module, kind: type[torch.nn.Module]) -> Iterator[tuple[torch.nn.Module, str, Any]]:
    """Yield every layer of a kind with its parent and its name there; it may be replaced meanwhile."""
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, kind):
                yield parent, name, layer
