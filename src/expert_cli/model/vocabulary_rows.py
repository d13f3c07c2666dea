"""Finds rows of embedding and head that were never trained, and computes with rows that an adapter trains.

The row of a token that never occurs in pretraining keeps its initial value, or moves together with all other such rows. It is
close to another such row, to the mean of all rows (where transformers puts new rows), or to zero. Land and Bartolo find such
tokens (arXiv:2405.05417) by the distance to rows that are known to be unused; here the nearest row is enough. Distances in
SmolLM2-135M-Instruct, relative to the median distance to the mean: below 0.01 for tokens that it never saw, 0.17 and 0.20 for
<|im_start|> and <|im_end|>, which started there and were fine-tuned, 0.45 and more for 99.9 % of all tokens. Random rows that
were added and never trained are far from other rows, too, and are not found.

PEFT's `trainable_token_indices` copies the trained rows into a copy of the matrix [V, H] in every pass, whose gradient is as
large. Here the frozen matrix is used as it is, and the results of the k trained rows replace its results; the numbers
equal PEFT's:

    embedding: token i -> row i of W, or its trained row        head: x W^T [n, V], columns i <- x R^T [n, k]
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from torch.nn.functional import embedding, linear

NEAR = 0.05
"""Rows closer than this share of the median distance to the mean count as equal; rounding to bf16 or 8 bits is smaller."""
CHUNK = 8192
"""Rows converted to fp32 at once."""


def token_matrices(model: Any) -> dict[str, torch.nn.Module]:
    """Return the modules with a row for each token, by name: the embedding, and the head if it has its own weights."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    is_tied = head is None or head.weight is embedding.weight
    wanted = (embedding,) if is_tied else (embedding, head)
    names = {module: name for name, module in model.named_modules()}
    return {names[module]: module for module in wanted}


def untrained_rows(weight: torch.Tensor, rows: Collection[int]) -> list[int]:
    """Return which of these rows of a matrix [V, H] were never trained, ascending; none if it contains NaN."""
    ids = sorted(row for row in rows if row < len(weight))
    if not ids:
        return []
    parts = torch.split(weight.detach(), CHUNK)
    mean = sum(part.float().sum(0) for part in parts) / len(weight)
    spread = torch.cat([(part.float() - mean).norm(dim=1) for part in parts]).median()
    asked = weight.detach()[ids].float() - mean
    nearest = torch.minimum(asked.norm(dim=1), (asked + mean).norm(dim=1))
    index = torch.tensor(ids, device=weight.device)
    for number, part in enumerate(parts):
        distances = torch.cdist(asked, part.float() - mean)
        itself = index[:, None] == torch.arange(len(part), device=weight.device) + number * CHUNK
        nearest = torch.minimum(nearest, distances.masked_fill(itself, torch.inf).min(1).values)
    return [row for row, near in zip(ids, (nearest < NEAR * spread).tolist(), strict=True) if near]


def held_weights(modules: Mapping[str, Any]) -> Mapping[str, torch.Tensor]:
    """Return the weights of modules by name."""
    return {name: module.weight for name, module in modules.items()}


def stored_weights(folder: Path, modules: Collection[str]) -> Mapping[str, torch.Tensor]:
    """Return the weights of these modules from a model's folder; those stored under other names are left out."""
    found: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            keys = set(opened.keys())
            found |= {name: opened.get_tensor(f"{name}.weight") for name in modules if f"{name}.weight" in keys}
    return {name: found[name] for name in modules if name in found}


class MatrixRows(NamedTuple):
    """Rows of a matrix that are trained. ids: int64 [k]; values [k, H], fp32 in training."""

    ids: torch.Tensor
    values: torch.Tensor


def base_layer(layer: Any) -> Any:
    """Return the frozen embedding or head itself, without the wrapper for trained rows."""
    from peft.utils.other import TrainableTokensWrapper  # PEFT imports bitsandbytes; reading documents needs neither

    return layer.original_module if isinstance(layer, TrainableTokensWrapper) else layer


def active_rows(layer: Any) -> MatrixRows | None:
    """Return the trained rows that an embedding or head uses (after `spare_copies`); None: none, disabled, or merged."""
    from peft.tuners.trainable_tokens.layer import TrainableTokensLayer
    from peft.utils.other import TrainableTokensWrapper

    if isinstance(layer, TrainableTokensWrapper):
        layer = layer.token_adapter
    if not isinstance(layer, TrainableTokensLayer) or layer.disable_adapters or layer.merged:
        return None
    for name in layer.active_adapters:
        if name in layer.trainable_tokens_delta:
            return MatrixRows(layer.get_buffer(f"ids_of_{name}"), layer.trainable_tokens_delta[name])
    return None


def spare_copies(model: torch.nn.Module) -> None:
    """Make every embedding and head of `model` with trained rows compute without a copy of its matrix."""
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


def _embedded(layer: Any, x: torch.Tensor, rows: MatrixRows) -> torch.Tensor:
    """Return the rows of tokens `x` int64 [...] as [..., H]."""
    output: torch.Tensor = layer.base_layer(x)
    is_row = x[..., None] == rows.ids
    none = len(rows.ids)
    index = torch.where(is_row.any(-1), is_row.int().argmax(-1), none)
    padded = torch.cat([rows.values, rows.values.new_zeros(1, rows.values.shape[1])])
    own = embedding(index, padded, padding_idx=none).to(layer.base_layer.weight.dtype)
    scale = layer._get_embed_scale()  # Gemma's embedding multiplies its output
    own = own if scale is None else own * scale.to(own.dtype)
    return torch.where((index < none)[..., None], own, output)
