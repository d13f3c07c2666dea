"""A bf16 weight laid out ahead as oneDNN reads it fastest: what torch.compile makes of a frozen linear layer on a CPU.

An eager layer's weight is laid out anew in every call. torch 2.6 to 2.13 have no public layer that keeps it.
"""

from __future__ import annotations

from functools import cache

import torch


@cache
def packs_weights() -> bool:
    """Whether this CPU has bf16 in hardware, and oneDNN products of packed weights for it.

    Where bf16 is emulated, sums get another order.
    """
    try:
        PackedWeight(torch.zeros(1, 1, dtype=torch.bfloat16))
    except (AttributeError, NotImplementedError, RuntimeError):  # no oneDNN, or one that may not use what there is
        return False
    return bool(torch.cpu._is_avx512_bf16_supported())


class PackedWeight:
    """A copy of a weight [out, in], and of a bias [out], for products."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, 16)
        self._bias = bias

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """Return x W^T + bias [rows, out] of a contiguous x [rows, in]."""
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")  # type: ignore[no-any-return]
