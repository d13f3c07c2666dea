"""What a run says of its memory is that of the device it trains on."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from transformers import TrainerState

from expert_cli.hardware.devices import DEVICES
from expert_cli.hardware.step_timer import StepTimer
from expert_cli.model.flops import Flops
from expert_cli.runs.fit_result import Done
from expert_cli.training.callbacks import MetricsCallback
from expert_cli.training.health import TrainingState
from expert_cli.utils.reporter import NullBar
from tests.fake_torch import as_if

MB = 2**20
EVENT: Any = (None, TrainerState(), None)
"""What a callback is handed, of which these read the state alone."""


def line_of(made: MetricsCallback, **logs: float) -> dict[str, Any]:
    """Log, and return the line that was written."""
    made.on_log(*EVENT, logs)
    return json.loads(made.metrics.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def watching(folder: Path, *, on_gpu: bool) -> MetricsCallback:
    timer, metrics = StepTimer(DEVICES["cuda" if on_gpu else "cpu"]), folder / "metrics.jsonl"
    made = MetricsCallback(TrainingState(), timer, metrics, Flops(1.0, 1.0), None)
    made.bar = NullBar()
    return made


@pytest.mark.parametrize("on_gpu", [False, True], ids=["cpu", "gpu"])
def test_memory_is_that_of_the_device_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, on_gpu: bool) -> None:
    as_if(monkeypatch, "cuda")
    peak = [9 * MB]  # of a batch that did not fit, before training began
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: peak[0])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: peak.__setitem__(0, 7 * MB))
    metrics_callback = watching(tmp_path, on_gpu=on_gpu)
    metrics_callback.on_train_begin(*EVENT)
    metrics_callback.on_step_end(*EVENT)
    line = line_of(metrics_callback, loss=1.0, learning_rate=0.1)
    if on_gpu:
        assert (metrics_callback.peak_memory_mb, line["memory_mb"], line["spilled_mb"]) == (7.0, 5.0, 10.0)
    else:
        resident = psutil.Process().memory_info().rss / MB
        assert metrics_callback.peak_memory_mb == pytest.approx(resident, rel=0.2)
        assert line["memory_mb"] == pytest.approx(resident, rel=0.2)
        assert (line["spilled_mb"], line["gpu"]) == (0.0, None)


def test_after_a_resume_the_speed_is_that_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50.0]
    monkeypatch.setattr("expert_cli.training.callbacks.time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    notes: list[str] = []
    metrics_callback = watching(tmp_path, on_gpu=False)
    metrics_callback.bar = SimpleNamespace(update=lambda _, note="": notes.append(note))  # type: ignore[assignment]
    progress = metrics_callback.progress
    progress.real, progress.trained, progress.seconds = 1000, 100, 400.0
    metrics_callback.on_train_begin(*EVENT)
    assert metrics_callback.done_here().tokens_per_s == 0.0, "nothing is done yet"
    progress.real, progress.trained, now[0] = 1600, 160, 53.0
    metrics_callback.on_step_end(*EVENT)
    assert notes[-1].startswith("200 tokens/s")
    assert (progress.seconds, metrics_callback.done_here()) == (403.0, Done(600, 60, 3.0))
    now[0] = 55.0
    assert line_of(metrics_callback, eval_loss=1.0)["seconds"] == 405.0
    assert progress.seconds == 405.0, "a checkpoint that follows counts the evaluation"
    now[0] = 56.0
    metrics_callback.on_train_end(*EVENT)
    assert progress.seconds == 406.0
    assert sum(metrics_callback.timer.totals.values()) > 0, "both clocks stop"
