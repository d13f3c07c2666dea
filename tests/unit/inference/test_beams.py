"""Beginnings of an answer that go on side by side: what becomes of those that say one thing over and over."""

from __future__ import annotations

import torch

from expert_cli.inference.answer import Answer
from expert_cli.inference.beams import Beams
from expert_cli.inference.generation_config import GenerationConfig
from expert_cli.inference.request import Request
from tests import tiny

END, OVER_AND_OVER = 0, 3


def test_what_says_one_thing_over_and_over_is_not_taken_however_likely_it_is() -> None:
    answer = Answer(Request([1]), 0, GenerationConfig(200, 1, num_beams=2), tiny.IdsAsText(frozenset({END})))
    beams = Beams(answer, 2)
    scores = torch.full((10,), -50.0)
    scores[OVER_AND_OVER], scores[END] = 0.0, -9.0
    while beams.live:
        beams.step(scores.expand(len(beams.live), -1))
    assert answer.stop == "end"
    assert len(answer.ending.ids) < 32
