"""Computes the arithmetic of a trained token, and the share of the hardware's peak that a run reaches (MFU)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from expert_cli.model.vocabulary_rows import base_layer
from expert_cli.utils.length_histogram import LengthHistogram

PEAK_TFLOPS: Mapping[str, float] = {
    "H200": 989.0,
    "H100": 989.0,
    "H100 PCIe": 756.0,
    "A100": 312.0,
    "L40S": 362.0,
    "RTX 5090": 209.5,
    "RTX 4090": 165.2,
    "RTX 3090": 71.0,
    "T4": 65.0,
}
"""Dense bf16 (T4: fp16) with fp32 sums, from NVIDIA's datasheets, in TFLOP/s. The longest matching name counts."""
_ANOTHER_CARD = re.compile(r"\b(?:Ti|SUPER|D|Laptop|Max-Q|NVL|MIG)\b", re.IGNORECASE)
"""Words that mark another card, or a part of one."""


def peak_flops(gpu: str) -> float | None:
    """Return the peak of a card in FLOP/s, None for an unknown card."""
    found = [known for known in PEAK_TFLOPS if re.search(rf"\b{known}\b", gpu)]
    if not found or _ANOTHER_CARD.search(gpu):
        return None
    return PEAK_TFLOPS[max(found, key=len)] * 1e12


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of a token, and those that a trained token adds in the head."""

    per_token: float
    per_trained_token: float

    def of(self, real: int, trained: int) -> float:
        """Return the operations of some tokens."""
        return real * self.per_token + trained * self.per_trained_token


def flops(model: Any, lengths: LengthHistogram, *, recomputed: bool) -> Flops:
    """Return the cost of training an adapter on a frozen base, forward and backward.

        a token           4 N_linear + 6 N_adapter + 6 S_eff heads head_dim layers
        a trained token   4 V H more

    Frozen weights need no gradients, hence 4, not 6, as in transformers' total_flos. S_eff = sum(length^2) / sum(length) over
    the documents, `lengths`. recomputed: gradient checkpointing adds the forward pass again. State updates and convolutions of
    layers without attention are not counted.
    """
    config = model.config.get_text_config()
    linear = sum(layer.in_features * layer.out_features for layer in frozen_linears(model))
    adapter = sum(p.numel() for p in model.parameters() if p.requires_grad)
    s_eff = lengths.squares / max(1, lengths.tokens)
    attention = s_eff * head_widths(config)[0] * attention_layers(config)
    forward = 2 * linear + 2 * adapter + 2 * attention
    per_token = 4 * linear + 6 * adapter + 6 * attention + (forward if recomputed else 0)
    return Flops(float(per_token), float(4 * base_layer(model.get_output_embeddings()).weight.numel()))


def frozen_linears(model: Any) -> list[torch.nn.Linear]:
    """Return the base model's linear layers without the head. in_features x out_features counts weights, even in 4 bits."""
    head = base_layer(model.get_output_embeddings())
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear) and module is not head]
    return [layer for layer in linear if not any(p.requires_grad for p in layer.parameters())]


def attention_layers(config: Any) -> int:
    """Return the number of layers with attention; hybrid models also have recurrent and pure feed-forward layers."""
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    return sum(kind not in ("linear_attention", "conv", "mlp", "moe") for kind in kinds)


def head_widths(config: Any) -> tuple[int, int]:
    """Return the total widths of query heads and of key heads; (0, 0) without attention."""
    count = getattr(config, "num_attention_heads", 0)
    if not count:
        return 0, 0
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // count
    return count * head_dim, (getattr(config, "num_key_value_heads", None) or count) * head_dim
