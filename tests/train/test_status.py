"""Why a run ended: status.json, log.txt, report and last line of real runs that end in every way."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from transformers import TrainerCallback

import expert_cli
from expert_cli.artifacts.report import write_report
from expert_cli.console.terminal import Console
from expert_cli.errors import EnvironmentProblem, Interrupted, TrainingFailed
from expert_cli.pipeline.run_directory import recorded
from expert_cli.pipeline.train import RunOptions
from expert_cli.runs.log import RunLog
from expert_cli.runs.metrics import read_json
from expert_cli.runs.run_paths import RunPaths
from expert_cli.runs.status import RunStatus
from tests import tiny
from tests.command_line import run_command
from tests.forked_cli import Forked
from tests.schemas import valid
from tests.train.projects import SEVEN, logged, project, sick_project, train

forks = pytest.mark.skipif(sys.platform != "linux", reason="forks processes")


def status(output: Path) -> dict[str, Any]:
    found = read_json(RunPaths(output).status)
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
    said = [
        line
        for line in told.splitlines()
        if not line.startswith(("Writing model", "reading rows", "writing train", "training  "))
    ]
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


def test_an_interruption_tells_what_is_lost() -> None:
    run = RunStatus()
    some, none = (
        "after step 4 of 6; what came after the last checkpoint is lost",
        "after step 0 of 6; no checkpoint was written",
    )
    for run.step, run.steps, told in ((0, None, "before the first step"), (0, 6, none), (4, 6, some)):
        with pytest.raises(Interrupted, match=f"^interrupted by SIGINT {told}$"), recorded(run, RunLog()):
            raise KeyboardInterrupt


STEPS = 2000
Run = subprocess.Popen[str] | Forked


def started(manifest: Path, output: Path, *options: str) -> Forked:
    words = ["train", "--manifest", str(manifest), "--output", str(output), "--offline", *options]
    return Forked(words, output.parent, env={**os.environ, "NO_COLOR": "1"})


def wait_for_steps(process: Run, output: Path, lines: int) -> None:
    metrics = output / "metrics.jsonl"
    for _ in range(12_000):
        if metrics.is_file() and len(metrics.read_text(encoding="utf-8").splitlines()) >= lines:
            return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    process.kill()
    raise AssertionError(process.communicate()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="torchrun and SLURM signal all processes of a run there")
def test_a_signal_to_its_data_workers_too_stops_a_run_that_saves(tmp_path: Path) -> None:
    manifest = project(tmp_path, max_steps=STEPS, logging_steps=1, batch_size=1, dataloader_num_workers=2)
    process = started(manifest, tmp_path / "run")
    wait_for_steps(process, tmp_path / "run", 3)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert len(workers) >= 2
    for one in (*workers, process):
        one.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=600)
    assert process.returncode == 143, told
    assert list((tmp_path / "run" / "checkpoints").glob("checkpoint-*"))
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert alive == []


class TerminatedAtTheEnd(TrainerCallback):
    """Is sent SIGTERM when all steps are done, while the run still has its answers to give and its adapter to write."""

    def on_train_end(self, *_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_after_the_last_step_keeps_the_result(tmp_path: Path) -> None:
    manifest = project(tmp_path, max_steps=2)
    done = expert_cli.train(manifest, output=tmp_path / "run", callbacks=[TerminatedAtTheEnd()])
    assert (done.document["steps"], done.document["samples"]) == (2, [])
    assert (tmp_path / "run" / "COMPLETE").is_file()
    assert done.document["stop_reason"] == "all 2 steps of the schedule are done"


class DiskFullAtTheEnd(TrainerCallback):
    """Lets no file grow beyond 20 kB when all steps are done: the adapter is larger."""

    def on_train_end(self, *_: Any, **__: Any) -> None:
        resource = pytest.importorskip("resource")
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def test_a_disk_that_fills_after_the_last_step_is_told_with_the_run(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    manifest = project(tmp_path, max_steps=2, save_strategy="no")
    try:
        with pytest.raises(EnvironmentProblem) as caught:
            expert_cli.train(manifest, output=tmp_path / "run", callbacks=[DiskFullAtTheEnd()])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.message == f"cannot write the run in {tmp_path / 'run'}: File too large"
    assert not (tmp_path / "run" / "COMPLETE").exists()


BREAKS: dict[str, Any] = {"learning_rate": 1.0, "max_steps": 6}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose logits are far from even, so that there is something to forget."""
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama", initializer_range=0.3)


def test_a_run_that_broke_its_model_says_so_everywhere(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, SEVEN, seed=2, **BREAKS)
    result = train(manifest, options=RunOptions(max_forget=0.5))
    told, paths = result.document["forgetting"], RunPaths(result.output)
    assert told["texts"] == 200
    assert told["difference"] == pytest.approx(told["loss_after"] - told["loss_before"])
    low, high = told["ci95"]
    assert low < told["difference"] < high
    line = f"{told['difference']:+.3f} nats a token (95 % interval {low:+.3f} to {high:+.3f}) on 200 neutral texts: "
    line += f"loss {told['loss_before']:.3f} -> {told['loss_after']:.3f}"
    assert f"\nforgotten {line}\n" in result.summary()
    assert f"Forgotten: {line.replace('->', '-&gt;')}</p>" in paths.report_html.read_text(encoding="utf-8")
    assert f"## What was forgotten\n\n{line}.\n" in (paths.adapter / "README.md").read_text(encoding="utf-8")
    missed = f"the loss on neutral texts rose by {told['difference']:.4f} nats a token, more than --max-forget 0.5"
    assert result.missed == log(result.output)[-1] == missed
    assert short(result.output) == ("complete", missed, 6, 6, 5)
    assert (paths.adapter / "adapter_model.safetensors").is_file()
    for allowed, is_missed in ((told["difference"], False), (told["difference"] - 0.001, True)):
        again = train(manifest, options=RunOptions(resume="auto", max_forget=allowed))
        assert again.document == result.document
        assert bool(again.missed) == is_missed


def test_where_nothing_is_asked_for_nothing_is_said(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, SEVEN, max_steps=1)
    result = train(manifest)
    assert "forgetting" not in result.document
    assert "forgotten" not in result.summary() + (result.output / "adapter" / "README.md").read_text(encoding="utf-8")
    unknown = train(manifest, options=RunOptions(resume="auto", max_forget=1.0)).missed
    assert unknown == "what was forgotten is not known, and --max-forget allows 1 nats a token"


def test_the_command_ends_with_exit_code_5(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, SEVEN, **BREAKS)
    done = run_command(["train", "-m", manifest, "--max-forget", "0.5"], tmp_path)
    assert (done.code, "more than --max-forget 0.5" in done.err) == (5, True)
