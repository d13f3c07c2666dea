"""Is what was written the model that was meant? Its logits may differ by what the rounding of its weights makes, no more.

How much that is, the written model tells itself: its weights are moved at random by as much as its type rounds, and its
logits move with them. Everything is computed in fp32, so that nothing else differs.

    bf16   8 bits of significand: steps of 2^(e-8) for a value of m x 2^e, 1/2 <= m < 1
    f16    11 bits: steps of 2^(e-11), of 2^-24 for the smallest
    q8_0   steps of a 127th of the largest value of a block of 32, itself an f16 number; vectors stay fp32
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

StoredType = Literal["bf16", "f16", "q8_0"]
PLACES = 8
"""Of every prompt, its last ones are looked at."""
DRAWS = 8
SLACK = 4.0
"""So many times the effect of a draw is still rounding. Where all logits move along one line, as those of a small model may,
the ratio is Student's t with as many degrees of freedom as draws: beyond 4 in one of 250; a wrong matrix is beyond 15."""
SEED = 0


@dataclass(frozen=True)
class Difference:
    """Root mean square of a difference in logits over that of the logits: found, and what rounding makes."""

    found: float
    rounding: float

    @property
    def is_rounding(self) -> bool:
        """Whether nothing but rounding need be at work. Not, where a number is not finite."""
        return self.found <= SLACK * self.rounding


@torch.no_grad()
def last_logits(model: Any, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return the logits [places, vocabulary] after the last tokens of every prompt, in fp32, on the CPU."""
    model.eval()
    found = [
        model(input_ids=torch.tensor([list(ids)], device=model.device), logits_to_keep=PLACES).logits[0]
        for ids in prompts
    ]
    return torch.cat(found).float().cpu()


def compare_logits(meant: torch.Tensor, written: Any, prompts: Sequence[Sequence[int]], kind: StoredType) -> Difference:
    """Hold a written model, loaded in fp32, against the logits that are meant. Its weights are moved: use it no more."""
    found = before = last_logits(written, prompts)
    generator, squares = torch.Generator().manual_seed(SEED), 0.0
    for _ in range(DRAWS):
        _move(written, kind, generator)
        moved = last_logits(written, prompts)
        squares += float((moved - before).square().mean())
        before = moved
    scale = float(meant.square().mean().sqrt())
    return Difference(float((found - meant).square().mean().sqrt()) / scale, (squares / DRAWS) ** 0.5 / scale)


@torch.no_grad()
def _move(model: torch.nn.Module, kind: StoredType, generator: torch.Generator) -> None:
    """Move every weight that was rounded by half a step at most, at random."""
    for value in model.parameters():
        if value.ndim > 1 or kind == "bf16":
            shares = torch.rand(value.shape, generator=generator) - 0.5
            value.add_(shares.to(value.device) * step(value, kind))


def step(value: torch.Tensor, kind: StoredType) -> torch.Tensor:
    """Return the distance of neighboring numbers of a type around each weight."""
    if kind == "q8_0" and value.shape[-1] % 32 == 0:
        blocks = value.reshape(*value.shape[:-1], -1, 32)
        scale = blocks.abs().amax(-1, keepdim=True) / 127
        return (scale + 127 * step(scale, "f16")).expand_as(blocks).reshape(value.shape)
    exponent = torch.frexp(value.float()).exponent
    bits = 8 if kind == "bf16" else 11
    return torch.ldexp(torch.ones_like(value), exponent - bits).clamp(min=0.0 if kind == "bf16" else 2.0**-24)
