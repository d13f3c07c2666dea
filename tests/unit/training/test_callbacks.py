"""What a run says of its memory is that of the device it trains on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import TrainerControl, TrainerState, TrainingArguments

from expert_cli.console import SilentBar
from expert_cli.training.callbacks import Watcher
from expert_cli.training.clock import PhaseClock
from expert_cli.training.flops import Flops
from expert_cli.training.heap import resident_mb
from expert_cli.training.progress import Progress

MB = 2**20


@pytest.fixture
def gpu_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make torch tell of a GPU on which 5 MB are allocated, and were at most 7."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 5 * MB)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 7 * MB)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 90 * MB)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (0, 80 * MB))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)


@pytest.mark.usefixtures("gpu_beside")
@pytest.mark.parametrize("on_gpu", [False, True], ids=["cpu", "gpu"])
def test_memory_is_that_of_the_device_in_use(tmp_path: Path, *, on_gpu: bool) -> None:
    args = TrainingArguments(output_dir=str(tmp_path / "run"), use_cpu=True, report_to=[])
    clock = PhaseClock(on_gpu=on_gpu)
    watcher = Watcher(
        Progress(), clock, tmp_path / "metrics.jsonl", SilentBar(), flops=Flops(1.0, 1.0), peak_flops=None
    )
    state = TrainerState()
    watcher.on_step_end(args, state, TrainerControl())
    watcher.on_log(args, state, TrainerControl(), {"loss": 1.0, "learning_rate": 0.1})
    line = json.loads((tmp_path / "metrics.jsonl").read_text(encoding="utf-8"))
    if on_gpu:
        assert (watcher.peak_memory_mb, line["memory_mb"], line["spilled_mb"]) == (7.0, 5.0, 10.0)
    else:
        assert watcher.peak_memory_mb == pytest.approx(resident_mb(), rel=0.2)
        assert line["memory_mb"] == pytest.approx(resident_mb(), rel=0.2)
        assert (line["spilled_mb"], line["gpu"]) == (0.0, None)
