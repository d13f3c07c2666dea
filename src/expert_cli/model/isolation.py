"""Proof, on the very model and back end of a run, that packed documents do not see each other.

Two short documents are read three times: packed as in training, each alone by transformers' own attention, and joined into
one document, which is what a leak makes of them. The packed logits must be those of the documents alone. How far the
joined ones are off says what a leak would look like in this model and dtype, so no tolerance has to be guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from expert_cli.errors import EnvironmentProblem
from expert_cli.model.attention import borders, plain_attention
from expert_cli.runconfig import Layout

LENGTHS = (7, 9)
ROUNDING = 1e-5
SHARE_OF_A_LEAK = 0.25


@dataclass(frozen=True)
class Isolation:
    """Largest differences of logits: of packed documents to the same ones alone, and what a leak would make of them."""

    difference: float
    leak: float

    @property
    def holds(self) -> bool:
        """Whether the difference is rounding."""
        return self.difference <= max(ROUNDING, SHARE_OF_A_LEAK * self.leak)


def measure(model: PreTrainedModel, layout: Layout, *, autocast: torch.dtype | None = None) -> Isolation:
    """Read the three forms and compare; the model's mode (train or eval) is kept. autocast: the dtype of a training step."""
    was_training = model.training
    model.eval()
    device = model.device
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(model.config.get_text_config().vocab_size, (1, sum(LENGTHS)), generator=random).to(device)
    positions = torch.cat([torch.arange(n) for n in LENGTHS])[None].to(device)
    starts = torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0).tolist()], dtype=torch.int32, device=device)
    packed: dict[str, Any] = borders(starts, max(LENGTHS)) if layout == "flat" else {}

    def logits(begin: int, end: int, **settings: Any) -> torch.Tensor:
        part = slice(begin, end)
        out = model(input_ids=ids[:, part], position_ids=positions[:, part], use_cache=False, **settings)
        read: torch.Tensor = out.logits[0].float()
        return read

    with torch.no_grad(), torch.autocast(device.type, dtype=autocast, enabled=autocast is not None):
        together = logits(0, sum(LENGTHS), **packed)
        with plain_attention(model):
            alone = torch.cat([logits(0, LENGTHS[0]), logits(LENGTHS[0], sum(LENGTHS))])
            joined = logits(0, sum(LENGTHS), attention_mask=torch.ones_like(ids))
    model.train(was_training)
    return Isolation(float((together - alone).abs().max()), float((joined - alone).abs().max()))


def require(found: Isolation, backend: str) -> None:
    """Raise EnvironmentProblem if documents see each other, or anything else changes what they are alone."""
    if found.holds:
        return
    raise EnvironmentProblem(
        f"attention back end {backend}: packed documents are not what they are alone (logits differ by "
        f"{found.difference:.3g}; a leak would make it {found.leak:.3g})",
        'write "use_sdpa": false to attend with transformers\' eager attention, or "packing": false with batch_size 1',
    )
