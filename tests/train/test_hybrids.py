"""A hybrid base model from manifest to answers: one with gated DeltaNet layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import expert_cli
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.estimate.run_estimate import estimate_run
from expert_cli.hardware import machine
from expert_cli.utils.reporter import NullReporter
from tests.tiny_hybrids import hybrid_folder
from tests.train import projects
from tests.words import Words

WHOLE: dict[str, Any] = {"batch_size": 32, "max_steps": 8, "learning_rate": 0.005, "dropout": 0.0, "logging_steps": 1}
"""Every step reads the whole data set."""


def test_a_hybrid_trains_one_document_a_row_and_answers(tmp_path: Path) -> None:
    model = hybrid_folder(tmp_path / "qwen3_5", "qwen3_5")
    manifest = projects.project(
        tmp_path,
        model,
        projects.SEVEN,
        **WHOLE,
        target_modules="all-linear",
        gradient_checkpointing=True,
        packing=True,
        cases=[projects.case(n, 7) for n in range(3)],
    )
    facts, overrides, report = machine.inspect(), Overrides(), Words()
    planned = estimate_run(make_plan(manifest, facts, overrides), facts, overrides, NullReporter()).as_json()
    done = projects.train(manifest, report=report)
    assert any("packing: off instead of random" in line for line in report.lines)
    assert done.document["kernels"]["recurrence"] == planned["kernels"]["recurrence"]
    assert done.document["kernels"]["recurrence"]["used"] == "one document a row"
    assert "what layers with a state keep beside their linear layers is not in it" in planned["memory_source"]
    recorded = json.loads((done.output / "run.json").read_text(encoding="utf-8"))
    for effects in (recorded["effects"], planned["effects"]):
        (row,) = (dict(row) for row in effects if row["key"] == "training.config.packing")
        assert (row["status"], row["effect"]) == ("adjusted", "one document a row, padded to the longest of its batch")
    assert done.document["tokens"]["padded"] > 0
    losses = projects.logged(done.output, "loss")
    assert losses[8] < losses[1]
    found = expert_cli.evaluate(done.output, max_new_tokens=4, offline=True)
    assert found.evaluation.share["cases"] == 3
