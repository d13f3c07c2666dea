"""What a run says of its memory is that of the device it trains on."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from expert_cli.hardware.step_timer import StepTimer
from expert_cli.runs.fit_result import Done
from transformers import TrainerControl, TrainerState, TrainingArguments

from expert_cli.hardware.devices import DEVICES
from expert_cli.model.flops import Flops
from expert_cli.training.health import TrainingState
from expert_cli.training.metrics_callback import MetricsCallback
from expert_cli.utils.reporter import NullBar
from tests.fake_nvml import FakeNvml

MB = 2**20


@pytest.fixture
def gpu_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make torch tell of a GPU on which 5 MB are allocated, and were at most 7."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 5 * MB)
    peak = [9 * MB]  # of a batch that did not fit, before training began
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: peak[0])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: peak.__setitem__(0, 7 * MB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 90 * MB)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (0, 80 * MB))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(is_integrated=0))


def watching(folder: Path, *, on_gpu: bool) -> MetricsCallback:
    timer, metrics = StepTimer(DEVICES["cuda" if on_gpu else "cpu"]), folder / "metrics.jsonl"
    made = MetricsCallback(TrainingState(), timer, metrics, Flops(1.0, 1.0), None)
    made.bar = NullBar()
    return made


@pytest.mark.usefixtures("gpu_beside")
@pytest.mark.parametrize("on_gpu", [False, True], ids=["cpu", "gpu"])
def test_memory_is_that_of_the_device_in_use(tmp_path: Path, *, on_gpu: bool) -> None:
    args = TrainingArguments(output_dir=str(tmp_path / "run"), use_cpu=True, report_to=[])
    metrics_callback = watching(tmp_path, on_gpu=on_gpu)
    state = TrainerState()
    metrics_callback.on_train_begin(args, state, TrainerControl())
    metrics_callback.on_step_end(args, state, TrainerControl())
    metrics_callback.on_log(args, state, TrainerControl(), {"loss": 1.0, "learning_rate": 0.1})
    line = json.loads((tmp_path / "metrics.jsonl").read_text(encoding="utf-8"))
    if on_gpu:
        assert (metrics_callback.peak_memory_mb, line["memory_mb"], line["spilled_mb"]) == (7.0, 5.0, 10.0)
    else:
        resident = psutil.Process().memory_info().rss / MB
        assert metrics_callback.peak_memory_mb == pytest.approx(resident, rel=0.2)
        assert line["memory_mb"] == pytest.approx(resident, rel=0.2)
        assert (line["spilled_mb"], line["gpu"]) == (0.0, None)


@pytest.mark.usefixtures("gpu_beside")
@pytest.mark.parametrize(("chosen", "logged"), [("1", 90.0), ("1,0", 90.0), ("GPU-0a", 10.0), ("7", None)])
def test_the_logged_card_is_the_one_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str, logged: float | None
) -> None:
    nvml = FakeNvml(cards=2, nvmlDeviceGetUtilizationRates=lambda card: SimpleNamespace(gpu=(10, 90)[card]))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    args = TrainingArguments(output_dir=str(tmp_path / "run"), use_cpu=True, report_to=[])
    metrics_callback = watching(tmp_path, on_gpu=True)
    metrics_callback.on_log(args, TrainerState(), TrainerControl(), {"loss": 1.0, "learning_rate": 0.1})
    line = json.loads((tmp_path / "metrics.jsonl").read_text(encoding="utf-8"))
    assert (line["gpu"] and line["gpu"]["utilization"]) == logged


def test_after_a_resume_the_speed_is_that_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50.0]
    monkeypatch.setattr(
        "expert_cli.training.metrics_callback.time", SimpleNamespace(monotonic=lambda: now[0], time=time.time)
    )
    args = TrainingArguments(output_dir=str(tmp_path / "run"), use_cpu=True, report_to=[])
    notes: list[str] = []
    metrics_callback = watching(tmp_path, on_gpu=False)
    metrics_callback.bar = SimpleNamespace(update=lambda _, note="": notes.append(note))  # type: ignore[assignment]
    progress = metrics_callback.progress
    progress.real, progress.trained, progress.seconds = 1000, 100, 400.0
    metrics_callback.on_train_begin(args, TrainerState(), TrainerControl())
    assert metrics_callback.done_here().tokens_per_s == 0.0, "nothing is done yet"
    progress.real, progress.trained, now[0] = 1600, 160, 53.0
    metrics_callback.on_step_end(args, TrainerState(), TrainerControl())
    assert notes[-1].startswith("200 tokens/s")
    assert (progress.seconds, metrics_callback.done_here()) == (403.0, Done(600, 60, 3.0))
    now[0] = 55.0
    metrics_callback.on_log(args, TrainerState(), TrainerControl(), {"eval_loss": 1.0})
    assert progress.seconds == 405.0, "a checkpoint that follows counts the evaluation"
    assert json.loads((tmp_path / "metrics.jsonl").read_text(encoding="utf-8"))["seconds"] == 405.0


def test_what_comes_after_the_last_step_is_in_the_seconds_and_in_the_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 5.0
    clocks = SimpleNamespace(monotonic=lambda: now, perf_counter=lambda: now, time=time.time)
    for module in ("training.metrics_callback", "hardware.step_timer", "hardware.devices"):
        monkeypatch.setattr(f"expert_cli.{module}.time", clocks)
    args = TrainingArguments(output_dir=str(tmp_path / "run"), use_cpu=True, report_to=[])
    metrics_callback = watching(tmp_path, on_gpu=False)
    metrics_callback.timer.lap()
    metrics_callback.on_train_begin(args, TrainerState(), TrainerControl())
    metrics_callback.on_step_end(args, TrainerState(), TrainerControl())
    with metrics_callback.timer.phase("eval"):
        now += 0.05
    metrics_callback.on_train_end(args, TrainerState(), TrainerControl())
    assert metrics_callback.timer.totals["eval"] == pytest.approx(0.05)
    assert metrics_callback.progress.seconds == pytest.approx(sum(metrics_callback.timer.totals.values()))
