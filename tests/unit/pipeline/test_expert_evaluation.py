"""What a model card says of an evaluation."""

from __future__ import annotations

import pytest

from expert_cli.inference.expert_config import decoding_of, generation_config
from expert_cli.manifest.schema import Manifest
from expert_cli.pipeline.expert_evaluation import _chosen
from tests import manifests

DECODED: dict[str, tuple[dict[str, float], int, str]] = {
    "greedy": ({}, 0, "greedy"),
    "beams": ({"num_beams": 4}, 0, "by beam search, 4 beams"),
    "samples": ({"num_beams": 4, "temperature": 0.7}, 2, "drawn at temperature 0.7"),
}


@pytest.mark.parametrize(("decoding", "samples", "told"), DECODED.values(), ids=DECODED.keys())
def test_how_answers_were_chosen(decoding: dict[str, float], samples: int, told: str) -> None:
    written = manifests.small()
    written["training"]["decoding"] = decoding
    settings = generation_config(decoding_of(Manifest.model_validate(written)), 8, 1, samples=samples)
    assert _chosen(settings.as_json()) == told
