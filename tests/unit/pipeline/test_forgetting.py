"""What holds `--max-forget`, and what does not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from expert_cli.inference.forgetting import neutral_texts
from expert_cli.manifest.keys.peft import AdapterConfig
from expert_cli.model.adapter import add_adapter
from expert_cli.model.tokenizer import load_tokenizer
from expert_cli.pipeline.before_after import measure, missed
from expert_cli.runs.run_paths import RunPaths
from tests import tiny
from tests.train.projects import Told

TOLD: dict[str, Any] = {"texts": 9, "loss_before": 3.0, "loss_after": 3.25, "difference": 0.25, "ci95": [-0.5, 1.0]}


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        (None, ""),
        (0.25, ""),
        (0.2499, "the loss on neutral texts rose by 0.2500 nats a token, more than --max-forget 0.2499"),
    ],
)
def test_the_mean_decides_whatever_the_interval_is(allowed: float | None, words: str) -> None:
    assert missed({"forgetting": TOLD}, allowed) == words


@pytest.mark.parametrize("document", [{}, {"forgetting": {**TOLD, "difference": math.nan}}], ids=["none", "nan"])
def test_what_is_not_known_holds_no_gate(document: dict[str, Any]) -> None:
    assert missed(document, 1e9) == "what was forgotten is not known, and --max-forget allows 1e+09 nats a token"
    assert missed(document, None) == ""


def test_a_loss_that_is_not_finite_is_told_and_kept_nowhere(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(tiny.tiny_model_folder(tmp_path / "tiny"))
    base: Any = tiny.tiny_model()
    with torch.no_grad():
        base.model.embed_tokens.weight[tokenizer.backend.token_to_id("e")] = math.nan
    model = add_adapter(base, AdapterConfig("lora", 4, 8.0, 0.0, ("q_proj",)))
    report = Told()
    assert measure(model, tokenizer, neutral_texts(9), RunPaths(tmp_path), report) is None
    assert report.warnings == ["what was forgotten is not known: the loss on neutral texts is not finite"]
