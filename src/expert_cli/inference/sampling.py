"""From a model's scores to the next token of every answer: the likeliest, or drawn; held to a grammar where there is one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import TypeAlias

import torch

from expert_cli.inference.generation_config import GenerationConfig
from expert_cli.inference.grammar.constraint import Constraint

Drawn: TypeAlias = tuple[torch.Tensor, torch.Tensor]
"""Ids of tokens, and the share of each."""
LIKELIEST = 256
"""Tokens that are looked at first for those that `top_p` and `min_p` leave: to put all in order takes as long as a step."""
PROPOSED = 64
"""Tokens that are proposed to a grammar before all are put in order."""


class Sampler:
    """Chooses one answer's tokens. Its random numbers depend on the seed alone, not on other answers beside it."""

    def __init__(self, seed: int, constraint: Constraint | None) -> None:
        """Take the seed, and what holds the answer to a grammar."""
        self.constraint = constraint
        self._generator = torch.Generator().manual_seed(seed)

    def fork(self) -> Sampler:
        """Return one for another answer that begins with the same."""
        other = copy(self)
        other.constraint = self.constraint.fork() if self.constraint else None
        return other

    def number(self) -> float:
        """Return the next random number, 0 to 1."""
        return float(torch.rand((), generator=self._generator, dtype=torch.float64))

    def held(self, token: int, scores: torch.Tensor, drawn: Drawn | None) -> int | None:
        """Return the token where the grammar accepts it, else the next that it accepts; None where it accepts none.

        scores [vocabulary]; drawn: what the token is from, None where the likeliest is taken.
        """
        if self.constraint is None:
            return token
        proposals = by_score(scores) if drawn is None else self._drawn(*drawn, scores)
        accepted = token if self.constraint.accepts(token) else None
        if accepted is None:
            accepted = next((one for one in proposals if self.constraint.accepts(one)), None)
        if accepted is not None:
            self.constraint.advance(accepted)
        return accepted

    def _drawn(self, ids: torch.Tensor, shares: torch.Tensor, scores: torch.Tensor) -> Iterator[int]:
        """Yield tokens as they are drawn, each once, then all by their scores."""
        left = shares.clone()
        for _ in range(PROPOSED):
            if not bool(left.any()):
                break
            one = int(pick(left[None], [self.number()])[0])
            left[one] = 0
            yield int(ids[one])
        yield from by_score(scores)


def next_tokens(scores: torch.Tensor, samplers: Sequence[Sampler], settings: GenerationConfig) -> list[int | None]:
    """Return a token for every row of scores [rows, vocabulary]; None where a grammar accepts none."""
    drawn: list[Drawn | None] = [None] * len(samplers)
    if settings.temperature:
        ids, shares = candidates(scores, settings)
        drawn = list(zip(ids, shares, strict=True))
        tokens = ids.gather(1, pick(shares, [one.number() for one in samplers])[:, None])[:, 0].tolist()
    else:
        tokens = scores.argmax(-1).tolist()
    return [one.held(*rest) for one, *rest in zip(samplers, tokens, scores, drawn, strict=True)]


def candidates(scores: torch.Tensor, settings: GenerationConfig) -> Drawn:
    """Return what is drawn from: ids [rows, candidates] in rising order, and each one's share, 0 for those left out.

    As transformers' warpers do it one after the other: `temperature`, the `top_k` likeliest, of these the fewest with a share
    of `top_p`, and what has at least `min_p` of the likeliest one's share. Shares of a row need not sum to 1.
    """
    scores = scores / settings.temperature
    vocabulary = scores.shape[-1]
    if not (settings.top_k or settings.top_p < 1 or settings.min_p):
        return torch.arange(vocabulary, device=scores.device).expand_as(scores), scores.softmax(-1)
    count = min(settings.top_k or LIKELIEST, vocabulary)
    while True:
        best, ids = scores.topk(count)
        shares = (best - (best if settings.top_k else scores).logsumexp(-1, keepdim=True)).exp()
        left_out = shares < settings.min_p * shares[:, :1]
        if settings.top_p < 1:
            left_out |= shares.cumsum(-1) - shares >= settings.top_p
        if settings.top_k or count == vocabulary or bool(left_out[:, -1].all()):
            ids, order = ids.sort()
            return ids, shares.masked_fill(left_out, 0).gather(1, order)
        count = min(8 * count, vocabulary)


def pick(shares: torch.Tensor, numbers: Sequence[float]) -> torch.Tensor:
    """Return the place in each row [rows, places] at which the sum of the shares passes the number's part of all."""
    sums = shares.cumsum(-1, dtype=torch.float64)
    marks = torch.tensor(numbers, dtype=torch.float64, device=shares.device)[:, None] * sums[:, -1:]
    return torch.searchsorted(sums, marks, right=True)[:, 0].clamp(max=shares.shape[-1] - 1)


def by_score(scores: torch.Tensor) -> Iterator[int]:
    """Yield the tokens, the likeliest first."""
    yield from scores.topk(min(PROPOSED, len(scores))).indices.tolist()
    yield from scores.argsort(descending=True)[PROPOSED:].tolist()
