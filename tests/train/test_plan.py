"""`train --plan` on tiny models: what it says is what a run then does, of a hybrid too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import expert_cli
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.errors import InputError
from expert_cli.estimate.run_estimate import estimate_run, parse_price
from expert_cli.hardware import machine
from expert_cli.runs.metrics import read_json
from expert_cli.utils.reporter import NullReporter, Reporter
from tests import tiny
from tests.schemas import valid
from tests.tiny_hybrids import hybrid_folder
from tests.train import projects
from tests.train.projects import project, train
from tests.words import Words


def told(
    manifest: Path, overrides: Overrides = Overrides(), report: Reporter = NullReporter(), **how: Any
) -> dict[str, Any]:
    facts = machine.inspect()
    return estimate_run(make_plan(manifest, facts, overrides), facts, overrides, report, **how).as_json()


SCHEDULES: dict[str, dict[str, Any]] = {
    "half an epoch": {"max_steps": None, "epochs": 0.5, "batch_size": 1, "gradient_accumulation_steps": 3},
    "no packing, grouped": {"packing": False, "group_by_length": True, "batch_size": 5, "max_steps": 17},
}


@pytest.mark.parametrize("config", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_steps_and_tokens_are_those_of_the_run(tmp_path: Path, config: dict[str, Any]) -> None:
    manifest = project(tmp_path, **config)
    before, done = told(manifest), train(manifest).document
    assert (before["steps"], before["epochs"]) == (done["steps"], done["epochs"])
    assert before["tokens_total"] == done["tokens"]["real"]
    assert before["tokens_per_step"] == done["tokens"]["real"] / done["steps"]
    kinds = [{name: kernel["used"] for name, kernel in one["kernels"].items()} for one in (before, done)]
    assert kinds[0] == kinds[1]


def test_a_plan_writes_the_store_and_nothing_else(tmp_path: Path) -> None:
    manifest = project(tmp_path)
    before = set(tmp_path.iterdir())
    assert told(manifest)["store"]["status"] == "built"
    assert {path.name for path in set(tmp_path.iterdir()) - before} == {"datasets_optimized"}
    assert told(manifest)["store"]["status"] == "hit"
    document = {"schema_version": 1, "command": "train", **told(manifest, hourly=parse_price("2/h"))}
    valid(json.loads(json.dumps(document)), "train-plan")
    assert document["cost"] == pytest.approx(document["seconds"] / 1800)


def test_a_plan_finds_in_the_data_what_the_run_would_find(tmp_path: Path) -> None:
    short = tiny.tiny_model_folder(tmp_path / "short", max_position_embeddings=32)
    with pytest.raises(InputError, match="but the base model has 32 positions"):
        told(project(tmp_path, short, [{"instruction": "abc " * 20, "input": "", "output": "yes"}] * 8))
    words = Words()
    rows = [{"instruction": "abc " * 90, "input": "", "output": "yes"}] * 8
    told(project(tmp_path / "concat", rows=rows, packing="concat", max_seq_length=16), report=words)
    assert any("packs hold no trained token and are left out" in line for line in words.lines)


@pytest.mark.slow
def test_a_probe_measures_real_steps(tmp_path: Path) -> None:
    manifest = project(tmp_path, eval_steps=2, load_best_model_at_end=True, save_steps=2)
    found = told(manifest, probing=True)
    assert found["seconds_source"].startswith("probe")
    assert 200 < found["vram_mb"]["total"] < 4000
    assert not (tmp_path / "weights").exists()
    assert found["store"]["status"] == "built"
    assert len(list((tmp_path / "datasets_optimized").rglob("fingerprint.json"))) == 1


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
        group_by_length=True,
        cases=[projects.case(n, 7) for n in range(3)],
    )
    facts, overrides, report = machine.inspect(), Overrides(), Words()
    planned = estimate_run(make_plan(manifest, facts, overrides), facts, overrides, NullReporter()).as_json()
    done = projects.train(manifest, report=report)
    assert any("packing: off instead of random" in line for line in report.lines)
    assert done.document["kernels"]["recurrence"] == planned["kernels"]["recurrence"]
    assert done.document["kernels"]["recurrence"]["used"] == "one document in each row"
    assert "without activations" not in planned["memory_source"]
    recorded = read_json(done.output / "run.json")
    for effects in (recorded["effects"], planned["effects"]):
        (row,) = (dict(row) for row in effects if row["key"] == "training.config.packing")
        assert (row["status"], row["effect"]) == (
            "adjusted",
            "one document in each row, padded to the longest of its batch",
        )
    assert recorded["config"]["loader"]["group_by_length"]
    assert done.document["tokens"]["padded"] > 0
    losses = projects.logged(done.output, "loss")
    assert losses[8] < losses[1]
    found = expert_cli.evaluate(done.output, max_new_tokens=4, offline=True)
    assert found.share["cases"] == 3
