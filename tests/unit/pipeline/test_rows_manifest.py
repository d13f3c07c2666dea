"""What rows of some number and length come to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from expert_cli.manifest.starter import SMOLLM2
from expert_cli.pipeline.right_size import recommend
from expert_cli.pipeline.rows_manifest import Lengths, settings_for
from expert_cli.utils.length_histogram import LengthHistogram

CASES: dict[str, tuple[int, int, dict[str, Any], int]] = {
    # documents, tokens of each; the settings that they come to, steps in all
    "few and short": (100, 64, {"max_seq_length": 512, "epochs": 5}, 65),
    "many": (10_000, 128, {"max_seq_length": 512, "epochs": 2, "gradient_accumulation_steps": 4}, 1_250),
    "very many": (40_000, 500, {"max_seq_length": 512, "epochs": 1, "gradient_accumulation_steps": 16}, 2_500),
    "too long": (1_000, 9_000, {"max_seq_length": 4096, "epochs": 3, "gradient_accumulation_steps": 16}, 189),
}


def lengths_of(documents: int, tokens: int) -> Lengths:
    lengths = LengthHistogram.of(np.full(documents, tokens, np.int64))
    return Lengths(lengths, recommend(lengths, 1 << 24), "tokenizer")


@pytest.mark.parametrize(("documents", "tokens", "settings", "steps"), CASES.values(), ids=CASES.keys())
def test_what_rows_come_to(documents: int, tokens: int, settings: dict[str, Any], steps: int) -> None:
    lengths = lengths_of(documents, tokens)
    found, size, planned = settings_for(lengths, "org/some-3B", evaluates=False)
    assert (found, planned) == (settings, steps)
    assert size.max_seq_length == settings["max_seq_length"]
    assert size.truncated_rows == (documents if tokens > settings["max_seq_length"] else 0)


def test_a_small_model_learns_faster_and_what_is_held_back_judges() -> None:
    lengths = lengths_of(1_000, 100)
    small = settings_for(lengths, SMOLLM2, evaluates=True)[0]
    assert (small["learning_rate"], small["eval_strategy"], small["load_best_model_at_end"]) == (1e-3, "epoch", True)
    large = settings_for(lengths, "Qwen/Qwen3-0.6B", evaluates=False)[0]
    assert {"learning_rate", "eval_strategy", "load_best_model_at_end"}.isdisjoint(large)
    once = settings_for(lengths_of(50_000, 100), "org/some-3B", evaluates=True)[0]
    assert "load_best_model_at_end" not in once, "one pass has no best one"
