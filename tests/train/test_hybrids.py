"""Hybrid base models from manifest to answers: one with gated DeltaNet layers, one with Mamba layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import expert_cli
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.estimate.run_estimate import estimate_run
from expert_cli.hardware import machine
from expert_cli.utils.reporter import NullReporter
from tests.tiny_hybrids import hybrid_folder
from tests.train import projects

WHOLE: dict[str, Any] = {  # every step reads the whole data set
    "batch_size": 32,
    "max_steps": 8,
    "learning_rate": 0.005,
    "dropout": 0.0,
    "logging_steps": 1,
    "target_modules": "all-linear",
    "gradient_checkpointing": True,
    "activation_checkpointing": "attention_only",
}


@pytest.mark.parametrize("name", ["qwen3_5", "granite"])
def test_a_hybrid_trains_packed_as_it_trains_one_by_one_and_answers(tmp_path: Path, name: str) -> None:
    model = hybrid_folder(tmp_path / name, name)
    losses, told = {}, {}
    for packing in (True, False):
        manifest = projects.project(tmp_path / str(packing), model, projects.SEVEN, **WHOLE, packing=packing)
        cases = manifest.parent / "tests" / "cases.jsonl"
        cases.parent.mkdir()
        cases.write_text("".join(json.dumps(projects.case(n, 7)) + "\n" for n in range(3)))
        facts, overrides = machine.inspect(), Overrides()
        plan = make_plan(manifest, facts, overrides)
        told[packing] = estimate_run(plan, facts, overrides, NullReporter()).as_json()
        done = projects.train(manifest)
        assert done.document["kernels"]["recurrence"] == told[packing]["kernels"]["recurrence"]
        metrics = [json.loads(line) for line in (done.output / "metrics.jsonl").read_text().splitlines()]
        losses[packing] = [row["loss"] for row in metrics if "loss" in row]
    assert len(losses[True]) == WHOLE["max_steps"]
    assert losses[True] == pytest.approx(losses[False], rel=1e-4)
    assert losses[True][-1] < losses[True][0]
    assert "what layers with a state keep beside their linear layers is not in it" in told[True]["memory_source"]
    found = expert_cli.evaluate(done.output, max_new_tokens=4, offline=True)
    assert found.evaluation.share.cases == 3
