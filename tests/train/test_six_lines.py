"""A manifest that names nothing but the expert, its base model and its rows trains, and so does the one that init writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from expert_cli.manifest.key import declared
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.pipeline.rows_manifest import write_manifest_of_rows
from expert_cli.runs.paths import RunPaths
from expert_cli.utils.reporter import NullReporter
from tests import manifests
from tests.train.projects import ROWS, here, tiny_llama, train, write_rows


def test_three_keys_train_by_the_defaults(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", ROWS)
    manifest = {
        "name": "expert-sums",
        "base_models": [{"name": str(tiny_llama())}],
        "training": {"dataset": {"path": "rows.jsonl"}},
    }
    result = train(manifests.write(tmp_path, manifest))
    paths = RunPaths(result.output)
    assert result.document["epochs"] == 1.0
    recorded = json.loads(paths.run_json.read_text(encoding="utf-8"))
    assert [row["key"] for row in recorded["effects"]] == [
        *("name", "base_models[0].name", "training.dataset.path"),
    ]
    told = {row["key"].removeprefix("training.config."): row for row in recorded["defaults"]}
    assert (told["rank"]["value"], told["rank"]["reason"]) == (16, declared(TrainingConfig, "rank").why)


def test_what_init_writes_for_rows_trains_from_the_store_that_it_left(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", ROWS * 4)
    found = write_manifest_of_rows(
        tmp_path / "sums", str(tmp_path / "rows.jsonl"), here(), NullReporter(), base_model=str(tiny_llama())
    )
    result = train(found.manifest)
    assert result.document["store"]["status"] == "hit"
    assert result.document["steps"] == pytest.approx(found.steps, rel=0.1)
    assert result.document["epochs"] == found.config["epochs"] == 5
    assert 0 < result.document["eval_loss"] < result.document["loss"]["first"], "the held-back rows are evaluated"
