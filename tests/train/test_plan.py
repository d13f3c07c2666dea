"""`train --plan` on a tiny model: what it says is what a run then does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.estimate.run_estimate import estimate_run, parse_price
from expert_cli.hardware import machine
from expert_cli.utils.reporter import NullReporter
from tests.train.projects import project, train, valid


def told(manifest: Path, overrides: Overrides = Overrides(), **how: Any) -> dict[str, Any]:
    facts = machine.inspect()
    return estimate_run(make_plan(manifest, facts, overrides), facts, overrides, NullReporter(), **how).as_json()


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


def test_the_document_is_what_the_schema_promises(tmp_path: Path) -> None:
    document = {"schema_version": 1, "command": "train", **told(project(tmp_path), hourly=parse_price("2/h"))}
    valid(json.loads(json.dumps(document)), "train-plan")
    assert document["cost"] == pytest.approx(document["seconds"] / 1800)


@pytest.mark.slow
def test_a_probe_measures_real_steps(tmp_path: Path) -> None:
    manifest = project(tmp_path, eval_steps=2, load_best_model_at_end=True, save_steps=2)
    found = told(manifest, probing=True)
    assert found["seconds_source"].startswith("probe")
    assert 200 < found["vram_mb"]["total"] < 4000
    assert not (tmp_path / "weights").exists()
    assert found["store"]["status"] == "built"
    assert len(list((tmp_path / "datasets_optimized").rglob("fingerprint.json"))) == 1
