"""Which rows of an embedding or a head were never trained: told by where they lie among the others.

No text of the pretraining holds the token, and its row is what it began as, or what it was pushed to together with all others
of its kind: it lies on another such row, on the mean of all (where transformers puts rows that are added to a model), or at
zero. A trained row lies apart from every other. So Land and Bartolo find such tokens (arXiv:2405.05417), by the distance to
rows that are known to be unused; here the nearest row will do, which need not be known. Distances of SmolLM2-135M-Instruct,
in parts of the median distance to the mean: below 0.01 for rows of tokens that it never saw (<gh_stars>, <jupyter_code>),
0.17 and 0.20 for <|im_start|> and <|im_end|>, which began there and were fine-tuned, 0.45 and more for 99.9 % of all.

Random rows that were added one by one and never trained lie apart, too: they are not told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

NEAR = 0.05
"""Nearer than this part of the median distance to the mean is the same place: beyond the rounding of bf16 and of 8 bits."""
CHUNK = 8192
"""Rows that are widened to fp32 at once."""


def token_matrices(model: Any) -> dict[str, torch.nn.Module]:
    """Return the modules that hold a row a token, by name: the embedding and, where it has weights of its own, the head."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    is_tied = head is None or head.weight is embedding.weight
    wanted = (embedding,) if is_tied else (embedding, head)
    names = {module: name for name, module in model.named_modules()}
    return {names[module]: module for module in wanted}


def untrained_rows(weight: torch.Tensor, rows: Collection[int]) -> list[int]:
    """Return which of these rows of a matrix [V, H] were never trained, in ascending order; none where it holds NaN."""
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
    """Return the weights of modules, by name."""
    return {name: module.weight for name, module in modules.items()}


def stored_weights(folder: Path, modules: Collection[str]) -> Mapping[str, torch.Tensor]:
    """Return the weights of these modules as a model's folder holds them; those that it has under other names are left out."""
    found: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            keys = set(opened.keys())
            found |= {name: opened.get_tensor(f"{name}.weight") for name in modules if f"{name}.weight" in keys}
    return {name: found[name] for name in modules if name in found}
