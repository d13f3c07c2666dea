"""Beam search: the likeliest beginnings of one answer go on side by side, and of those that end the likeliest is taken.

    scores [beams, vocabulary]   -> of all continuations the best `num_beams` that do not end go on,
                                    each in the cache's row of the beginning that it continues

Scores are sums of log-probabilities, of ended answers divided by their tokens, the end token among them; when to stop is what
transformers' beam search does with its defaults (length_penalty 1, early_stopping false). A continuation that the grammar
refuses is none, and a beginning that says one thing over and over goes on no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import torch

from expert_cli.inference.answer import Answer
from expert_cli.inference.sampling import by_score

PROPOSED = 4
"""Times `num_beams`: so many tokens are proposed to a grammar for each beginning before it is taken to have no others."""


class Beam(NamedTuple):
    """A beginning of an answer, and the sum of its tokens' log-probabilities."""

    answer: Answer
    score: float


class Continuation(NamedTuple):
    """One more token behind the beginning in row `row`, with the score that it has then."""

    score: float
    row: int
    token: int


class Beams:
    """One answer being searched for. `live`: the beginnings that go on, a row each, the best first; none: it is found."""

    def __init__(self, answer: Answer, num_beams: int) -> None:
        """Take an answer of which nothing is written, and how many beginnings go on."""
        self._num_beams = num_beams
        self._count = max(2, 1 + len(answer.ending.stop_token_ids)) * num_beams
        self.answer = answer
        self._ended: list[Beam] = []
        self._looping: list[Beam] = []
        self.live = [Beam(answer, 0.0)]

    def step(self, scores: torch.Tensor) -> list[int]:
        """Write one more token; return of which row each of `live` is the continuation. scores [rows of `live`, vocabulary]."""
        found = sorted(self._continuations(scores.log_softmax(-1).cpu()), key=lambda one: -one.score)
        rows, before, self.live = [], self.live, []
        for rank, (score, row, token) in enumerate(found[: self._count]):
            grown = before[row].answer.fork()
            if grown.sampler.constraint is not None:
                grown.sampler.constraint.advance(token)
            grown.take(token)
            if grown.stop is None and len(self.live) < self._num_beams:
                self.live.append(Beam(grown, score))
                rows.append(row)
            elif grown.stop == "looping":
                self._looping.append(Beam(grown, score))
            elif grown.stop is not None and rank < self._num_beams:
                self._ended.append(Beam(grown, score / (len(before[row].answer.ending.ids) + 1)))
        self._ended = sorted(self._ended, key=lambda beam: -beam.score)[: self._num_beams]
        if self._can_improve():
            return rows
        self.live = []
        self.answer.become((self._ended or self._looping or [Beam(self.answer, 0.0)])[0].answer)
        return []

    def _can_improve(self) -> bool:
        if not self.live or len(self._ended) < self._num_beams:
            return bool(self.live)
        best = self.live[0]
        return best.score / len(best.answer.ending.ids) > self._ended[-1].score

    def _continuations(self, scores: torch.Tensor) -> Iterator[Continuation]:
        for row, beam in enumerate(self.live):
            tokens = self._accepted(beam.answer, scores[row])
            for token, score in zip(tokens, scores[row, tokens].tolist(), strict=True):
                yield Continuation(beam.score + score, row, token)

    def _accepted(self, answer: Answer, scores: torch.Tensor) -> list[int]:
        """Return the likeliest tokens that the grammar accepts; where it accepts none of those proposed, the first it does."""
        constraint = answer.sampler.constraint
        if constraint is None:
            return list(scores.topk(min(self._count, len(scores))).indices.tolist())
        proposed = list(islice(by_score(scores), PROPOSED * self._num_beams))
        accepted = [token for token in proposed if constraint.accepts(token)]
        return accepted or list(islice(filter(constraint.accepts, by_score(scores)), 1))
