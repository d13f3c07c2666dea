"""What a run of method grpo tells while it runs: status.json, the bar, metrics.jsonl."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from expert_cli.hardware.devices import device_of
from expert_cli.runs.status import RunStatus
from expert_cli.utils.reporter import Bar

MB = 2**20
LOGGED = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "epoch": "epoch",
    "reward_std": "reward_std",
    "completions/mean_length": "answer_tokens",
    "completions/clipped_ratio": "cut_off_share",
    "frac_reward_zero_std": "share_without_signal",
    "kl": "kl",
}
"""TRL's names -> those of metrics.jsonl. share_without_signal: of prompts whose answers were all worth the same."""


class GrpoCallback(TrainerCallback):
    """Writes a line of metrics.jsonl a logged step, and keeps what the end of the run tells.

    losses, rewards: of every logged step. tokens: that went through the model, answer_tokens: those of answers.
    """

    def __init__(self, metrics: Path, bar: Bar, status: RunStatus, stop_asked: Callable[[], bool], reward: str) -> None:
        """reward: the name of the reward function. stop_asked: whether the run shall end."""
        self.losses: list[float] = []
        self.rewards: list[float] = []
        self.step = self.steps = self.tokens = self.answer_tokens = 0
        self.epoch = self.seconds = self.peak_memory_mb = 0.0
        self._metrics, self._bar, self._status, self._stop_asked = metrics, bar, status, stop_asked
        self._reward = f"rewards/{reward}/mean"
        self._started = time.monotonic()

    def on_train_begin(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **more: Any,  # noqa: ARG002
    ) -> None:
        """Say how many steps there are."""
        self.steps = state.max_steps
        self._status.reached(0, self.steps)

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **more: Any,  # noqa: ARG002
    ) -> None:
        """Move the bar, and end the run if that is asked for."""
        self.step, self.epoch = state.global_step, float(state.epoch or 0.0)
        self.seconds = time.monotonic() - self._started
        self._status.step = self.step
        self._bar.update(self.step, f"of {self.steps}")
        device = device_of(args.device)
        held = device.held("max_memory_allocated") or device.held("memory_allocated") or 0
        self.peak_memory_mb = max(self.peak_memory_mb, held / MB)
        control.should_training_stop = control.should_training_stop or self._stop_asked()

    def on_log(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **more: Any,
    ) -> None:
        """Append the figures of a step; what TRL tells at the end of training is none."""
        logs: dict[str, Any] = more.get("logs") or {}
        if "loss" not in logs:
            return
        self.losses.append(logs["loss"])
        self.rewards.append(logs.get(self._reward) or 0.0)
        self.tokens = int(logs.get("num_tokens") or 0)
        line = {"step": state.global_step, "reward": self.rewards[-1]}
        line |= {name: logs[key] for key, name in LOGGED.items() if logs.get(key) is not None}
        with self._metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
