"""Rounds of learning from answers that were run, on tiny models."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from transformers import LlamaForCausalLM, TrainerCallback

from expert_cli.config.plan import trained_adapter
from expert_cli.errors import IntegrityError
from expert_cli.inference.expert import open_expert
from expert_cli.pipeline.options import RunOptions
from expert_cli.runs.paths import RunPaths
from expert_cli.utils.files import sha256_of
from expert_cli.utils.reporter import NullReporter
from tests.train.projects import Told, train
from tests.train.rft_project import prompt, sharp_model, unsure_expert, write_rows


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sharp_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A run of one round; its folder. No model is in memory any more when the next one is."""
    manifest = unsure_expert(tmp_path_factory.mktemp("learned"), model)
    alive, folder = Alive(), manifest.parent
    seen: list[set[str]] = []

    def written() -> None:
        seen.append({path.relative_to(folder).as_posix().rpartition("round-1/")[2] for path in folder.rglob("*")})

    output = train(manifest, RunOptions(callbacks=(alive,), written=written)).output
    assert alive.models == [1, 1]
    for there, not_yet in {
        "samples/block-0001.jsonl": "samples/block-0002.jsonl",
        "run/checkpoints": "run/COMPLETE",
    }.items():
        assert any(there in files and not_yet not in files for files in seen), "what is kept elsewhere is kept in time"
    return output


class Alive(TrainerCallback):
    """Counts the models in memory when a training begins."""

    def __init__(self) -> None:
        self.models: list[int] = []

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self.models.append(sum(isinstance(one, LlamaForCausalLM) for one in gc.get_objects()))


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_round_learns_what_was_right_and_proves_it_on_what_was_held_back(learned: Path) -> None:
    told = read(learned / "report.json")["rft"]
    assert told["held_back"] == {"prompts": 16, "parts": 2, "of": 8, "by": "categories of prompts"}
    assert told["before"]["correct"] == 0
    (record,) = told["rounds"]
    assert (record["prompts"], record["samples"], record["asked"]) == (48, 4, 192)
    assert 0 < record["right"] < 192
    assert record["correct"] == 16
    assert record["gain"]["ci95"][0] > 0
    assert told["best_round"] == 1
    rows = lines(learned / "round-1" / "rows.jsonl")
    assert len(rows) == record["kept"]
    assert all(row["output"] == "7" and row["round"] == 1 and row["sample"] in range(1, 5) for row in rows)
    held_back = {row["id"] for row in read(learned / "round-0" / "evaluation.json")["answers"]}
    assert len(held_back) == 16
    assert not held_back & {row["case"] for row in rows}


def test_the_folder_is_that_of_a_run_with_the_best_adapter(learned: Path) -> None:
    paths = RunPaths(learned)
    weights = sha256_of(paths.adapter / "adapter_model.safetensors")
    assert weights == sha256_of(learned / "round-1" / "run" / "adapter" / "adapter_model.safetensors")
    for name, file in (("train", paths.report_json), ("status", paths.status)):
        schema = read(Path(__file__).parents[2] / "docs" / "schemas" / f"{name}.schema.json")
        command = {"schema_version": 1, "command": "train"} if name == "train" else {}
        jsonschema_rs.validator_for(schema).validate(read(file) | command)
    trained = trained_adapter(learned, None, None, offline=True)
    assert open_expert(trained.plan.run, trained.origin, NullReporter()).renderer.template.name


def test_a_run_that_is_complete_is_not_made_again_and_another_is_refused(learned: Path, model: Path) -> None:
    folder = learned.parents[1]
    manifest = folder / "manifest.json"
    blocks = {path: path.stat().st_mtime_ns for path in learned.rglob("block-*.jsonl")}
    assert train(manifest, RunOptions(resume="auto")).document["rft"]["best_round"] == 1
    assert {path: path.stat().st_mtime_ns for path in learned.rglob("block-*.jsonl")} == blocks
    with pytest.raises(IntegrityError, match=r"rft\.samples: .*4.*5"):
        train(manifest_with(manifest, samples=5), RunOptions(resume="auto"))


def manifest_with(manifest: Path, **rft: Any) -> Path:
    written = read(manifest)
    written["training"]["rft"] |= rft
    path = manifest.with_name("other.json")
    path.write_text(json.dumps(written), encoding="utf-8")
    return path


LOSING = [prompt(n, 8) for n in range(16)]
"""The first adapter says 8, and answers that are drawn are right where they say 7."""


def test_rounds_that_lose_leave_the_adapter_that_was_there(tmp_path: Path, learned: Path, model: Path) -> None:
    write_rows(tmp_path / "held.jsonl", LOSING)
    going_on = {"rounds": 2, "stop_without_gain": False, "from": "last", "gold": "always"}
    manifest = unsure_expert(tmp_path, model, held_back="held.jsonl", **going_on)
    told = Told()
    done = train(manifest, report=told, init_adapter=learned / "sft")
    assert [line for line in told.warnings if "8 of 16 held-back prompts stand in the training rows" in line]
    rft = done.document["rft"]
    assert rft["before"]["correct"] == 16
    first, second = rft["rounds"]
    assert (first["correct"], first["is_kept"], second["is_kept"]) == (0, True, True), "kept to go on with"
    assert (first["gain"]["lost"], first["gain"]["against"], second["gain"]["against"]) == (16, 0, 1)
    assert second["gain"]["lost"] == 0, "of what the round before had right"
    assert len(first["forgotten"]) == 5
    assert rft["best_round"] == 0
    assert done.document["adapter_sha256"] == read(learned / "sft" / "report.json")["adapter_sha256"]
    begun = [read(RunPaths(done.output / f"round-{number}" / "run").run_json)["init_adapter"] for number in (1, 2)]
    drew = [learned / "sft" / "adapter", done.output / "round-1" / "run" / "adapter"]
    assert [one and Path(one["path"]) for one in begun] == drew


def test_a_round_without_a_gain_ends_the_run(tmp_path: Path, learned: Path, model: Path) -> None:
    write_rows(tmp_path / "held.jsonl", LOSING)
    manifest = unsure_expert(tmp_path, model, held_back="held.jsonl", rounds=2)
    done = train(manifest, init_adapter=learned / "sft")
    (record,) = done.document["rft"]["rounds"]
    assert not record["is_kept"]
    assert done.document["rft"]["best_round"] == 0
    assert "round 1: a gain of -100.0% (" in done.document["stop_reason"]
