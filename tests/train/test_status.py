"""Why a run ended: status.json, log.txt, report and last line of real runs that end in every way."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from expert_cli.artifacts.report import write_report
from expert_cli.console.terminal import Console
from expert_cli.errors import TrainingFailed
from expert_cli.pipeline.train import RunOptions
from expert_cli.runs.run_paths import RunPaths
from tests.train.projects import logged, project, sick_project, train, valid
from tests.train.test_stop import STEPS, started, wait_for_steps

forks = pytest.mark.skipif(sys.platform != "linux", reason="forks processes")


def status(output: Path) -> dict[str, Any]:
    found = json.loads(RunPaths(output).status.read_text(encoding="utf-8"))
    valid(found, "status")
    return found  # type: ignore[no-any-return]


def short(output: Path) -> tuple[Any, ...]:
    found = status(output)
    return tuple(found[key] for key in ("state", "reason", "step", "steps", "exit_code"))


def log(output: Path) -> list[str]:
    """The lines of a log without their times."""
    return [line[26:] for line in RunPaths(output).log.read_text(encoding="utf-8").splitlines()]


def page(output: Path) -> str:
    return RunPaths(output).report_html.read_text(encoding="utf-8")


def test_a_run_that_does_its_schedule(tmp_path: Path) -> None:
    result = train(project(tmp_path))
    reason = "all 6 steps of the schedule are done"
    assert short(result.output) == ("complete", reason, 6, 6, 0)
    found = status(result.output)
    assert (found["pid"], found["host"], found["world_size"]) == (os.getpid(), os.uname().nodename, 1)
    assert result.document["stop_reason"] == reason
    valid({"schema_version": 1, "command": "train", **result.document}, "train")
    assert result.summary().splitlines()[-1] == f"ended     {reason}"
    assert log(result.output)[-1] == f"ended     {reason}"
    assert f"<p>finished: {reason}</p>" in page(result.output)
    before = RunPaths(result.output).status.read_bytes(), RunPaths(result.output).log.read_bytes()
    assert train(tmp_path / "manifest.json", RunOptions(resume="auto")).document["stop_reason"] == reason
    assert (RunPaths(result.output).status.read_bytes(), RunPaths(result.output).log.read_bytes()) == before


def test_early_stopping_is_told(tmp_path: Path) -> None:
    config = {"eval_steps": 2, "early_stopping_patience": 2, "learning_rate": 5.0, "max_steps": 40}
    manifest = project(tmp_path, logging_steps=1, **config)
    result = train(manifest)
    losses = logged(result.output, "eval_loss")
    best = min(losses, key=lambda step: losses[step])
    reason = (
        f"early stopping after step {best + 4} of 40: eval_loss was best at step {best} ({losses[best]:.4g}), "
        "and early_stopping_patience is 2"
    )
    assert short(result.output) == ("complete", reason, best + 4, 40, 0)
    assert result.document["stop_reason"] == reason
    RunPaths(result.output).complete.unlink()  # killed before its end, it is not trained on
    resumed = train(manifest, RunOptions(resume="auto"))
    for key in ("steps", "stop_reason", "adapter_sha256"):
        assert resumed.document[key] == result.document[key]


def test_a_failure(tmp_path: Path) -> None:
    output = tmp_path / "weights" / "tiny-llama"
    with pytest.raises(TrainingFailed) as caught:
        train(sick_project(tmp_path, max_steps=9), RunOptions(command="expert-cli train -m M"))
    found = status(output)
    assert (found["state"], found["reason"], found["exit_code"]) == ("failed", caught.value.message, 4)
    assert (found["steps"], found["command"]) == (9, "expert-cli train -m M")
    assert f"error: {caught.value.message}" in log(output)
    (ending,) = write_report([output], RunPaths(output).report_html)
    assert ending.words == f"failed after step {found['step']} of 9: {caught.value.message}"
    assert f"<pre>{ending.go_on}</pre>" in page(output)


class Bug(Console):
    """A console with a fault."""

    def info(self, text: str) -> None:
        if text.startswith("model "):
            raise ZeroDivisionError("no such thing: hf_abcdefghijklmnopqrstuvwxyzABCDEFGH\nmore")


def test_a_bug_is_recorded_with_its_traceback_and_without_secrets(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        train(project(tmp_path), report=Bug("train"))
    output = tmp_path / "weights" / "tiny-llama"
    assert short(output) == ("failed", "ZeroDivisionError: no such thing: ***", 0, None, 1)
    assert "Traceback (most recent call last):" in log(output)
    assert "hf_abc" not in RunPaths(output).log.read_text(encoding="utf-8")


@forks
def test_a_stopped_run(tmp_path: Path) -> None:
    manifest = project(tmp_path, max_steps=STEPS, logging_steps=1, save_strategy="no", batch_size=1)
    output = tmp_path / "run"
    process = started(manifest, output)
    wait_for_steps(process, output, 3)
    (ending,) = write_report([output], tmp_path / "running.html")
    assert (status(output)["state"], ending.state, ending.go_on) == ("running", "running", "")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 130, told
    assert not (output / "COMPLETE").exists()
    step = status(output)["step"]
    saved = [path.name for path in (output / "checkpoints").iterdir() if path.name.startswith("checkpoint-")]
    assert saved == [f"checkpoint-{step}"]
    assert json.loads((output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])["step"] == step
    reason = f"stopped by SIGINT after step {step} of {STEPS}; checkpoint-{step} is written"
    assert short(output) == ("interrupted", reason, step, STEPS, 130)
    said = [line for line in told.splitlines() if not line.startswith("Writing model")]
    assert [line for line in log(output) if line in said] == said
    (ending,) = write_report([output], RunPaths(output).report_html)
    assert f"go on: {ending.go_on}" in told


@forks
def test_a_signal_before_training(tmp_path: Path) -> None:
    output = tmp_path / "run"
    process = started(project(tmp_path, max_steps=STEPS), output)
    while not (output / "status.json").is_file():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=120)
    state, reason, *_, exit_code = short(output)
    assert (process.returncode, state, exit_code) == (130, "interrupted", 130)
    assert re.match(r"(interrupted|stopped) by SIGINT ", reason)
    assert told.rstrip().endswith("--resume auto")
