"""What a run tells while it runs: the progress line, metrics.jsonl, and the end of a run that has gone wrong."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from expert_cli.console import Bar
from expert_cli.errors import TrainingFailed
from expert_cli.training.trainer import StepRecord


def memory_mb() -> float:
    """Return the memory in use: allocated on the GPU where there is one, else this process's resident set."""
    if torch.cuda.is_available():
        return torch.cuda.memory_allocated() / 2**20
    return float(psutil.Process().memory_info().rss) / 2**20


class Watcher(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """Writes one line of metrics.jsonl a logged step and moves the progress bar; stops a run whose loss is not finite."""

    def __init__(self, record: StepRecord, metrics: Path, bar: Bar) -> None:
        """Take the trainer's record, the file to append to, and the bar to move."""
        self.record = record
        self.metrics = metrics
        self.bar = bar
        self.started = time.monotonic()
        self.peak_memory_mb = 0.0
        self._mark = (self.started, 0)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Start the clock: what came before is not training."""
        self.started = time.monotonic()
        self._mark = (self.started, 0)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Move the bar; reading the loss waits for the device, so only a CPU shows it at every step."""
        self.peak_memory_mb = max(self.peak_memory_mb, memory_mb())
        if not self.record.losses[-1].is_cuda:
            self._require_finite(state.global_step, float(self.record.losses[-1]))
            self.bar.update(state.global_step, self._note(float(self.record.losses[-1])))

    def on_log(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        logs: Mapping[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Append a line to metrics.jsonl."""
        known = {"loss", "grad_norm", "learning_rate", "eval_loss", "epoch"}
        line: dict[str, Any] = {"step": state.global_step}
        line |= {key: value for key, value in (logs or {}).items() if key in known}
        if "loss" in line:
            self._require_finite(state.global_step, line["loss"])
            real = int(self.record.real)
            now, (then, before) = time.monotonic(), self._mark
            line["tokens_per_s"] = round((real - before) / max(1e-9, now - then), 1)
            line |= {
                "tokens_real": real,
                "tokens_trained": int(self.record.trained),
                "tokens_padded": self.record.padded - real,
            }
            self._mark = (now, real)
            self.bar.update(state.global_step, self._note(line["loss"], line["learning_rate"]))
        line |= {"seconds": round(time.monotonic() - self.started, 3), "memory_mb": round(memory_mb(), 1)}
        if "loss" in line or "eval_loss" in line:
            with self.metrics.open("a", encoding="utf-8", newline="\n") as file:
                file.write(json.dumps(line) + "\n")

    def _note(self, loss: float, learning_rate: float | None = None) -> str:
        seconds = max(1e-9, time.monotonic() - self.started)
        rate = f"  lr {learning_rate:.1e}" if learning_rate is not None else ""
        return f"loss {loss:.3f}  {int(self.record.real) / seconds:,.0f} tokens/s{rate}  {memory_mb() / 1024:.1f} GB"

    @staticmethod
    def _require_finite(step: int, loss: float) -> None:
        if not math.isfinite(loss):
            hint = "lower learning_rate, keep max_grad_norm at 1.0, or train in bf16 instead of fp16"
            raise TrainingFailed(f"the loss of step {step} is {loss}", hint)
