"""Ctrl-C, SIGTERM and a STOP file: the step is finished, saved, and the exact command that goes on is told."""

from __future__ import annotations

import os
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
from expert_cli.errors import EnvironmentProblem
from tests.forked_cli import Forked
from tests.train.projects import project

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
