"""Trained rows of a frozen embedding or head (PEFT's `trainable_token_indices`), computed without a second matrix.

PEFT puts the trained rows into a copy of the matrix [V, H] at every pass, whose gradient is as large. Here the frozen matrix
gives what it gives, and what the k trained rows give takes its place; the numbers are PEFT's:

    embedding: token i -> row i of W, or its trained row        head: x W^T [n, V], columns i <- x R^T [n, k]
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn.functional import embedding, linear


class TokenRows(NamedTuple):
    """Rows of a matrix that are trained. ids: int64 [k]; values [k, H], fp32 in training."""

    ids: torch.Tensor
    values: torch.Tensor


def base_layer(layer: Any) -> Any:
    """Return the frozen embedding or head itself, without the trained rows around it."""
    from peft.utils.other import TrainableTokensWrapper  # PEFT loads bitsandbytes; reading documents needs neither

    return layer.original_module if isinstance(layer, TrainableTokensWrapper) else layer


def active_rows(layer: Any) -> TokenRows | None:
    """Return the trained rows that an embedding or head computes with; None: it has none, or they are off or merged.

    `spare_copies` comes first: it puts their ids on the device, once.
    """
    from peft.tuners.trainable_tokens.layer import TrainableTokensLayer
    from peft.utils.other import TrainableTokensWrapper

    if isinstance(layer, TrainableTokensWrapper):
        layer = layer.token_adapter
    if not isinstance(layer, TrainableTokensLayer) or layer.disable_adapters or layer.merged:
        return None
    for name in layer.active_adapters:
        if name in layer.trainable_tokens_delta:
            return TokenRows(layer.get_buffer(f"ids_of_{name}"), layer.trainable_tokens_delta[name])
    return None


def spare_copies(model: torch.nn.Module) -> None:
    """Let every embedding and head of `model` with trained rows compute so."""
    from peft.tuners.trainable_tokens.layer import TrainableTokensLayer

    layers: list[Any] = [layer for layer in model.modules() if isinstance(layer, TrainableTokensLayer)]
    for layer in layers:
        for name, values in layer.trainable_tokens_delta.items():
            ids = torch.tensor(layer.token_indices[name], device=values.device)
            layer.register_buffer(f"ids_of_{name}", ids, persistent=False)
        layer.forward = partial(_forward, layer, layer.forward)


def _forward(layer: Any, as_peft_does: Any, x: torch.Tensor) -> torch.Tensor:
    rows = active_rows(layer)
    if rows is None:
        output: torch.Tensor = as_peft_does(x)
        return output
    if isinstance(layer.base_layer, torch.nn.Embedding):
        return _embedded(layer, x, rows)
    output = layer.base_layer(x)
    return output.index_copy_(-1, rows.ids, linear(x, rows.values.to(x.dtype)).to(output.dtype))


def _embedded(layer: Any, x: torch.Tensor, rows: TokenRows) -> torch.Tensor:
    """Return the rows of tokens `x` int64 [...] as [..., H]."""
    output: torch.Tensor = layer.base_layer(x)
    is_row = x[..., None] == rows.ids
    none = len(rows.ids)
    index = torch.where(is_row.any(-1), is_row.int().argmax(-1), none)
    padded = torch.cat([rows.values, rows.values.new_zeros(1, rows.values.shape[1])])
    own = embedding(index, padded, padding_idx=none).to(layer.base_layer.weight.dtype)
    scale = layer._get_embed_scale()  # Gemma's embedding multiplies
    own = own if scale is None else own * scale.to(own.dtype)
    return torch.where((index < none)[..., None], own, output)
