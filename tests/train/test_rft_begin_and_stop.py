"""Rounds that cannot begin, that say how far they are, and that are asked to stop."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerCallback, TrainerState

from expert_cli.errors import EnvironmentProblem, InputError, Interrupted
from expert_cli.evaluation.verifiers import typescript
from expert_cli.pipeline.options import RunOptions
from expert_cli.runs.metrics import read_json
from tests.train.projects import train
from tests.train.rft_project import AsksToStop, sharp_model, unsure_expert, write_rows


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sharp_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """The run of a first training, whose adapter is unsure."""
    manifest = unsure_expert(tmp_path_factory.mktemp("first"), model)
    return train(manifest, settings=("training.config.method=sft",)).output


def test_a_judge_that_is_missing_is_told_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typescript, "find_node", lambda: None)
    programs = [
        {"verifier": "typescript", "prompt": f"Write {n}.", "tests": "f();", "category": f"c{n % 4}"} for n in range(8)
    ]
    with pytest.raises(EnvironmentProblem, match=r"Node\.js 20"):
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


def test_rounds_train_rows_of_prompt_and_answer(tmp_path: Path, first: Path, model: Path) -> None:
    manifest = unsure_expert(tmp_path, model)
    write_rows(tmp_path / "train.jsonl", [{"text": "whole"}] * 64)
    with pytest.raises(InputError, match=r"rounds train rows of prompt and answer, those of .* are whole documents"):
        train(manifest, init_adapter=first)


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

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
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
