"""What is drawn from is what transformers' warpers leave; a grammar takes the next best, or what is drawn next."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from transformers.generation import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from expert_cli.inference.generation_config import GenerationConfig
from expert_cli.inference.sampling import LIKELIEST, PROPOSED, Sampler, candidates, next_tokens, pick

VOCABULARY = 10 * LIKELIEST
LIMITS: list[dict[str, Any]] = [
    {},
    {"top_k": 5},
    {"top_k": 2 * VOCABULARY},
    {"top_p": 0.9},
    {"min_p": 0.05},
    {"top_k": 40, "top_p": 0.5},
    {"top_p": 0.95, "min_p": 0.001},
    {"top_k": 50, "top_p": 0.95, "min_p": 0.001},
]


def scores_of(spread: float) -> torch.Tensor:
    return torch.randn(4, VOCABULARY, generator=torch.Generator().manual_seed(0)) * spread


@pytest.mark.parametrize("spread", [0.01, 1.0, 5.0])  # 0.01: a share of 0.9 takes nearly all tokens, 5: a few
@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_what_is_drawn_from_is_what_transformers_leaves(limits: dict[str, Any], spread: float) -> None:
    settings, scores = GenerationConfig(1, 1, temperature=0.7, **limits), scores_of(spread)
    warpers = LogitsProcessorList([TemperatureLogitsWarper(0.7)])
    if settings.top_k:
        warpers.append(TopKLogitsWarper(settings.top_k))
    if settings.top_p < 1:
        warpers.append(TopPLogitsWarper(settings.top_p))
    if settings.min_p:
        warpers.append(MinPLogitsWarper(settings.min_p))
    unread: Any = torch.empty(0, dtype=torch.int64)
    expected = warpers(unread, scores).softmax(-1)
    ids, shares = candidates(scores, settings)
    found = torch.zeros_like(scores).scatter(1, ids, shares / shares.sum(-1, keepdim=True))
    assert (ids.diff() > 0).all()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-9)


def test_a_number_picks_where_the_sum_of_the_shares_passes_it() -> None:
    shares = torch.tensor([[0.0, 0.5, 0.0, 0.25, 0.25, 0.0]] * 5)
    assert pick(shares, [0.0, 0.4999, 0.5, 0.75, 0.999999]).tolist() == [1, 1, 3, 4, 4]
    assert pick(3 * shares, [0.0, 0.4999, 0.5, 0.75, 0.999999]).tolist() == [1, 1, 3, 4, 4]


def test_tokens_are_drawn_as_often_as_their_shares_say() -> None:
    settings = GenerationConfig(1, 1, temperature=1.0, top_p=0.9)
    scores = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    samplers = [Sampler(seed, None) for seed in range(4000)]
    drawn = Counter(next_tokens(scores.expand(len(samplers), -1), samplers, settings))
    assert drawn[3] == 0
    assert drawn[0] / 4000 == pytest.approx(0.5 / 0.95, abs=0.025)
    assert drawn[2] / 4000 == pytest.approx(0.15 / 0.95, abs=0.025)


class Only:
    """Takes these tokens, and remembers what it was told."""

    def __init__(self, *tokens: int) -> None:
        self.tokens, self.taken = tokens, list[int]()

    def accepts(self, token: int) -> bool:
        return token in self.tokens

    def advance(self, token: int) -> None:
        self.taken.append(token)

    def fork(self) -> Only:
        raise NotImplementedError


def test_the_likeliest_that_a_grammar_accepts_is_taken() -> None:
    scores = scores_of(1.0)
    order = scores.argsort(descending=True)
    last = int(order[2, PROPOSED + 700])
    holds = [Only(int(order[0, 0])), Only(int(order[1, 9]), int(order[1, 3])), Only(last), Only()]
    found = next_tokens(scores, [Sampler(0, hold) for hold in holds], GenerationConfig(1, 1))
    assert found == [int(order[0, 0]), int(order[1, 3]), last, None]
    assert [hold.taken for hold in holds] == [[token] if token is not None else [] for token in found]


def test_what_a_grammar_rejects_is_drawn_again_without_it() -> None:
    settings = GenerationConfig(1, 1, temperature=1.0, top_k=4)
    scores = torch.tensor([0.4, 0.3, 0.2, 0.1, 1e-6]).log()
    drawn = Counter(next_tokens(scores[None], [Sampler(seed, Only(1, 3, 4))], settings)[0] for seed in range(2000))
    assert set(drawn) == {1, 3}
    # 1 and 3 keep their odds: what comes first of the two in draws without putting back
    assert drawn[1] / 2000 == pytest.approx(0.75, abs=0.04)
    assert next_tokens(scores[None], [Sampler(0, Only(4))], settings) == [4], (
        "none of those drawn from: the next likeliest"
    )
