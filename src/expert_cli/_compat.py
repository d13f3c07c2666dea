"""Work-arounds for third parties: what is wrong, in which versions, and when the work-around can go."""

from __future__ import annotations

from typing import Any


def keep_autograd_on_cpu(model: Any) -> None:
    """Stop bitsandbytes from repacking 4-bit weights on CPUs with AVX512-BF16.

    bitsandbytes 0.50.2 (nn/modules.py, Linear4bit.forward): the first forward in evaluation mode repacks the weights for
    inference, and every later forward, in training too, takes a path without autograd: adapters on such layers get
    gradients of exactly 0.0. Remove when Linear4bit undoes the packing in `train()`.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
