"""Rounds of learning from answers that were run, on tiny models: what they find, and how they go on and stop."""

from __future__ import annotations

import gc
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaForCausalLM, TrainerCallback

from expert_cli.errors import InputError, IntegrityError, Interrupted
from expert_cli.inference.expert import open_expert
from expert_cli.pipeline.options import RunOptions
from expert_cli.runs.metrics import read_json
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.files import sha256_of
from expert_cli.utils.reporter import NullReporter
from tests.schemas import valid
from tests.train.projects import train, trained_in
from tests.train.rft_project import prompt, sharp_model, unsure_expert, write_rows


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sharp_model(tmp_path_factory.mktemp("model"))


class Alive(TrainerCallback):
    """Counts the models in memory when a training begins."""

    def __init__(self) -> None:
        self.models: list[int] = []

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self.models.append(sum(isinstance(one, LlamaForCausalLM) for one in gc.get_objects()))


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A run of one round; its folder. No model is in memory any more when the next one is."""
    alive = Alive()
    output = train(unsure_expert(tmp_path_factory.mktemp("learned"), model), RunOptions(callbacks=(alive,))).output
    assert alive.models == [1, 1]
    return output


@pytest.fixture
def first(learned: Path) -> Path:
    """The run of a first training, whose adapter is unsure."""
    return learned / "sft"


def test_a_round_learns_what_was_right_and_proves_it_on_what_was_held_back(learned: Path, model: Path) -> None:
    paths = RunPaths(learned)
    document = read_json(paths.report_json)
    valid({"schema_version": 1, "command": "train", **document}, "train")
    valid(read_json(paths.status), "status")
    told = document["rft"]
    assert told["held_back"] == {"prompts": 16, "parts": 2, "of": 8, "by": "categories of prompts"}
    (record,) = told["rounds"]
    assert (record["prompts"], record["samples"], record["asked"]) == (48, 4, 192)
    assert 0 < record["right"] < 192
    assert (told["before"]["correct"], record["correct"], told["best_round"]) == (0, 16, 1)
    assert record["gain"]["ci95"][0] > 0
    rows = [json.loads(row) for row in (learned / "round-1" / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == record["kept"]
    assert all(row["output"] == "7" and row["round"] == 1 and row["sample"] in range(1, 5) for row in rows)
    held_back = {row["id"] for row in read_json(learned / "round-0" / "evaluation.json")["answers"]}
    assert len(held_back) == 16
    assert not held_back & {row["case"] for row in rows}
    weights = sha256_of(paths.adapter / "adapter_model.safetensors")
    assert weights == sha256_of(learned / "round-1" / "run" / "adapter" / "adapter_model.safetensors")
    trained = trained_in(learned)
    assert open_expert(trained.plan.run, trained.origin, NullReporter()).renderer.template.name
    folder, drawn = learned.parents[1], (learned / "round-1" / "samples.json").stat().st_mtime_ns
    paths.complete.unlink()
    assert train(folder / "manifest.json", RunOptions(resume="auto")).document["rft"] == told, "no step is done again"
    paths.complete.unlink()
    shutil.rmtree(learned / "round-1" / "run")  # as where it is killed in a training: this alone is done again
    assert train(folder / "manifest.json", RunOptions(resume="auto")).document["adapter_sha256"] == weights
    assert (learned / "round-1" / "samples.json").stat().st_mtime_ns == drawn
    with pytest.raises(IntegrityError, match=r"rft\.samples: .*4.*5"):
        train(unsure_expert(folder, model, samples=5), RunOptions(resume="auto"))


LOSING = [prompt(n, 8) for n in range(16)]
"""The first adapter says 8, and answers that are drawn are right where they say 7."""


def test_rounds_that_lose_leave_the_adapter_that_was_there(tmp_path: Path, first: Path, model: Path) -> None:
    write_rows(tmp_path / "held.jsonl", LOSING)
    going_on = {"rounds": 2, "from": "last", "gold": "always", "held_back": "held.jsonl"}
    ended = train(unsure_expert(tmp_path, model, **going_on), init_adapter=first).document
    (record,) = ended["rft"]["rounds"]
    assert (record["is_kept"], ended["rft"]["best_round"]) == (False, 0)
    assert "round 1: a gain of -100.0% (" in ended["stop_reason"]
    manifest = unsure_expert(tmp_path, model, **going_on, stop_without_gain=False)
    done = train(manifest, RunOptions(overwrite=True), init_adapter=first)
    lost, same = done.document["rft"]["rounds"]
    assert (lost["correct"], lost["is_kept"], same["is_kept"]) == (0, True, True), "kept to go on with"
    assert (lost["gain"]["lost"], lost["gain"]["against"], same["gain"]["against"]) == (16, 0, 1)
    assert same["gain"]["lost"] == 0, "of what the round before had right"
    assert done.document["rft"]["best_round"] == 0
    assert done.document["adapter_sha256"] == read_json(first / "report.json")["adapter_sha256"]
    begun = [read_json(RunPaths(done.output / f"round-{number}" / "run").run_json)["init_adapter"] for number in (1, 2)]
    assert [Path(one["path"]) for one in begun] == [first / "adapter", done.output / "round-1" / "run" / "adapter"]


def test_an_adapter_of_no_complete_run_is_refused_before_anything_is_loaded(tmp_path: Path, first: Path) -> None:
    manifest = unsure_expert(tmp_path, tmp_path / "no-model-is-here")
    with pytest.raises(InputError, match="is not the adapter of a complete run"):
        train(manifest, init_adapter=first / "checkpoints" / "checkpoint-16")
    with pytest.raises(InputError, match="--max-forget does not go with method rft"):
        train(manifest, RunOptions(max_forget=0.1))
    assert not [*tmp_path.rglob("run.json")]


class StopWhenTrainingBegins(TrainerCallback):
    """Puts the file STOP into a folder; steps are slow, since the file is looked for once a second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        (self.folder / "STOP").touch()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        time.sleep(0.3)


def test_a_run_that_is_asked_to_stop_in_a_training_stops_there_and_goes_on(tmp_path: Path, model: Path) -> None:
    output, manifest = tmp_path / "out", unsure_expert(tmp_path, model)
    with pytest.raises(Interrupted, match=r"stopped by the file .*out/sft/STOP"):
        train(manifest, RunOptions(callbacks=(StopWhenTrainingBegins(output / "sft"),)), output=output)
    assert read_json(output / "status.json")["state"] == "stopped"
    began = read_json(output / "run.json")["started"]
    assert 1 <= read_json(output / "sft" / "status.json")["step"] < 16
    (output / "STOP").touch()
    with pytest.raises(Interrupted, match=r"stopped by the file .*out/STOP in first training") as ended:
        train(manifest, RunOptions(resume="auto"), output=output)
    assert ended.value.exit_code == 130
    told = read_json(output / "run.json")
    assert (told["started"], len(told["resumes"])) == (began, 1)
    assert not [*output.rglob("STOP"), *output.glob("round-*")]
