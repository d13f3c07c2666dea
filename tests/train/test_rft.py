"""Rounds of learning from answers that were run, on tiny models: what they find, and how they begin and stop."""

from __future__ import annotations

import gc
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaForCausalLM, TrainerCallback, TrainerState

from expert_cli.config.plan import trained_adapter
from expert_cli.errors import EnvironmentProblem, InputError, IntegrityError, Interrupted
from expert_cli.evaluation.verifiers import requirements
from expert_cli.inference.expert import open_expert
from expert_cli.pipeline.options import RunOptions
from expert_cli.runs.metrics import read_json
from expert_cli.runs.paths import RunPaths
from expert_cli.utils.files import sha256_of
from expert_cli.utils.reporter import NullReporter
from tests.train.projects import Told, train, valid
from tests.train.rft_project import AsksToStop, prompt, sharp_model, unsure_expert, write_rows


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sharp_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A run of one round; its folder. No model is in memory any more when the next one is."""
    manifest = unsure_expert(tmp_path_factory.mktemp("learned"), model)
    alive = Alive()
    output = train(manifest, RunOptions(callbacks=(alive,))).output
    assert alive.models == [1, 1]
    return output


class Alive(TrainerCallback):
    """Counts the models in memory when a training begins."""

    def __init__(self) -> None:
        self.models: list[int] = []

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self.models.append(sum(isinstance(one, LlamaForCausalLM) for one in gc.get_objects()))


def test_a_round_learns_what_was_right_and_proves_it_on_what_was_held_back(learned: Path) -> None:
    told = read_json(learned / "report.json")["rft"]
    assert told["held_back"] == {"prompts": 16, "parts": 2, "of": 8, "by": "categories of prompts"}
    assert told["before"]["correct"] == 0
    (record,) = told["rounds"]
    assert (record["prompts"], record["samples"], record["asked"]) == (48, 4, 192)
    assert 0 < record["right"] < 192
    assert record["correct"] == 16
    assert record["gain"]["ci95"][0] > 0
    assert told["best_round"] == 1
    rows = [json.loads(row) for row in (learned / "round-1" / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == record["kept"]
    assert all(row["output"] == "7" and row["round"] == 1 and row["sample"] in range(1, 5) for row in rows)
    held_back = {row["id"] for row in read_json(learned / "round-0" / "evaluation.json")["answers"]}
    assert len(held_back) == 16
    assert not held_back & {row["case"] for row in rows}


def test_the_folder_is_that_of_a_run_with_the_best_adapter(learned: Path) -> None:
    paths = RunPaths(learned)
    weights = sha256_of(paths.adapter / "adapter_model.safetensors")
    assert weights == sha256_of(learned / "round-1" / "run" / "adapter" / "adapter_model.safetensors")
    valid({"schema_version": 1, "command": "train", **read_json(paths.report_json)}, "train")
    valid(read_json(paths.status), "status")
    trained = trained_adapter(learned, None, None, offline=True)
    assert open_expert(trained.plan.run, trained.origin, NullReporter()).renderer.template.name


def test_a_run_that_is_complete_is_not_made_again_and_another_is_refused(learned: Path, model: Path) -> None:
    folder = learned.parents[1]
    manifest = folder / "manifest.json"
    blocks = {path: path.stat().st_mtime_ns for path in learned.rglob("block-*.jsonl")}
    assert train(manifest, RunOptions(resume="auto")).document["rft"]["best_round"] == 1
    assert {path: path.stat().st_mtime_ns for path in learned.rglob("block-*.jsonl")} == blocks
    with pytest.raises(IntegrityError, match=r"rft\.samples: .*4.*5"):
        train(unsure_expert(folder, model, samples=5), RunOptions(resume="auto"))


LOSING = [prompt(n, 8) for n in range(16)]
"""The first adapter says 8, and answers that are drawn are right where they say 7."""


def test_rounds_that_lose_leave_the_adapter_that_was_there(tmp_path: Path, first: Path, model: Path) -> None:
    write_rows(tmp_path / "held.jsonl", LOSING)
    going_on = {"rounds": 2, "stop_without_gain": False, "from": "last", "gold": "always"}
    manifest = unsure_expert(tmp_path, model, held_back="held.jsonl", **going_on)
    told = Told()
    done = train(manifest, report=told, init_adapter=first)
    assert [line for line in told.warnings if "8 of 16 held-back prompts stand in the training rows" in line]
    rft = done.document["rft"]
    assert rft["before"]["correct"] == 16
    lost, same = rft["rounds"]
    assert (lost["correct"], lost["is_kept"], same["is_kept"]) == (0, True, True), "kept to go on with"
    assert (lost["gain"]["lost"], lost["gain"]["against"], same["gain"]["against"]) == (16, 0, 1)
    assert same["gain"]["lost"] == 0, "of what the round before had right"
    assert len(lost["forgotten"]) == 5
    assert rft["best_round"] == 0
    assert done.document["adapter_sha256"] == read_json(first / "report.json")["adapter_sha256"]
    begun = [read_json(RunPaths(done.output / f"round-{number}" / "run").run_json)["init_adapter"] for number in (1, 2)]
    drew = [first / "adapter", done.output / "round-1" / "run" / "adapter"]
    assert [one and Path(one["path"]) for one in begun] == drew


def test_a_round_without_a_gain_ends_the_run(tmp_path: Path, first: Path, model: Path) -> None:
    write_rows(tmp_path / "held.jsonl", LOSING)
    manifest = unsure_expert(tmp_path, model, held_back="held.jsonl", rounds=2)
    done = train(manifest, init_adapter=first)
    (record,) = done.document["rft"]["rounds"]
    assert not record["is_kept"]
    assert done.document["rft"]["best_round"] == 0
    assert "round 1: a gain of -100.0% (" in done.document["stop_reason"]


@pytest.fixture
def first(learned: Path) -> Path:
    """The run of a first training, whose adapter is unsure."""
    return learned / "sft"


def test_a_judge_that_is_missing_is_told_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "has_package", lambda package: package != "deno")
    programs = [
        {"verifier": "typescript", "prompt": f"Write {n}.", "tests": "f();", "category": f"c{n % 4}"} for n in range(8)
    ]
    with pytest.raises(EnvironmentProblem, match="the package deno is missing"):
        train(unsure_expert(tmp_path, tmp_path / "no-model-is-here", programs))


def test_the_file_stop_ends_the_run_between_two_blocks_of_which_the_first_is_not_drawn_again(
    tmp_path: Path, first: Path, model: Path
) -> None:
    manifest, output = unsure_expert(tmp_path, model), tmp_path / "out"
    blocks, once_a_block_is_there = output / "round-1" / "samples", AsksToStop(output, "round-1/samples")
    with pytest.raises(Interrupted, match=r"stopped by the file .*STOP in round 1, sampling"):
        train(manifest, RunOptions(written=once_a_block_is_there), output=output, init_adapter=first)
    (block,) = blocks.iterdir()
    changed = block.stat().st_mtime_ns
    train(manifest, RunOptions(resume="auto"), output=output, init_adapter=first)
    assert sorted(blocks.iterdir()) == [block, blocks / "block-0002.jsonl"]
    assert block.stat().st_mtime_ns == changed


def test_a_checkpoint_to_begin_from_is_refused_before_anything_is_loaded(tmp_path: Path, first: Path) -> None:
    manifest = unsure_expert(tmp_path, tmp_path / "no-model-is-here")
    with pytest.raises(InputError, match="is not the adapter of a complete run"):
        train(manifest, init_adapter=first / "checkpoints" / "checkpoint-16")
    assert not [*tmp_path.rglob("run.json")]


class StopWhenTrainingBegins(TrainerCallback):
    """Puts the file STOP into a folder; steps are slow, since the file is looked for once a second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        (self.folder / "STOP").touch()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        time.sleep(0.3)


class CtrlCInTheLastStep(TrainerCallback):
    """Asks the run to stop when the training has no step left."""

    def on_step_end(self, _: Any, state: TrainerState, *__: Any, **___: Any) -> None:
        if state.global_step == state.max_steps:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_in_the_last_step_of_a_training_is_heard_before_the_next_stage(tmp_path: Path, model: Path) -> None:
    output, manifest = tmp_path / "out", unsure_expert(tmp_path, model, rounds=1)
    with pytest.raises(Interrupted, match="stopped by SIGINT in") as ended:
        train(manifest, RunOptions(callbacks=(CtrlCInTheLastStep(),)), output=output)
    assert (ended.value.by_signal, ended.value.exit_code) == (True, 130)
    assert (output / "sft" / "COMPLETE").is_file(), "its training is done"
    assert not [*output.rglob("STOP"), *output.glob("round-0/evaluation.json"), *output.glob("round-1/*")]


def test_the_file_stop_ends_a_training_within_the_run_which_goes_on_from_there(tmp_path: Path, model: Path) -> None:
    output = tmp_path / "out"
    manifest = unsure_expert(tmp_path, model, rounds=1)
    with pytest.raises(Interrupted, match=r"stopped by the file .*out/sft/STOP"):
        train(manifest, RunOptions(callbacks=(StopWhenTrainingBegins(output),)), output=output)
    assert read_json(output / "status.json")["state"] == "stopped"
    assert 1 <= read_json(output / "sft" / "status.json")["step"] < 16
    assert not [*output.rglob("STOP")]
    assert train(manifest, RunOptions(resume="auto"), output=output).document["rft"]["best_round"] == 1
