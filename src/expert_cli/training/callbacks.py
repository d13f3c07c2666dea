"""When a run saves by the clock and stops, and what every step begins with; the rest is transformers' DefaultFlowCallback."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from expert_cli.data.packing.random_fit import mixed
from expert_cli.manifest.keys.log_save_eval import LogSaveEvalConfig
from expert_cli.utils.distributed import all_reduce_any

LARGEST_SHARE = 0.01  # of the time, spent on saving by the clock
FIRST_CHECKPOINT_S = 60
"""A run that saves by steps or epochs has its first checkpoint after so many seconds of training, if none came before."""


class SaveSchedule:
    """When a checkpoint is due by the clock."""

    def __init__(self, watch: LogSaveEvalConfig) -> None:
        """Begin to count."""
        self.every_s = watch.save_every_s
        self.first_s = FIRST_CHECKPOINT_S if watch.save_strategy in ("steps", "epoch") else 0
        self._last_s = 0.0
        self._since = time.monotonic()

    def due(self) -> bool:
        """Whether it is time: not before the last one has cost less than 1 % of the time since then."""
        waited = time.monotonic() - self._since
        by_time = self.every_s > 0 and waited >= max(self.every_s, self._last_s / LARGEST_SHARE)
        return by_time or 0 < self.first_s <= waited

    def written(self, seconds: float) -> None:
        """Count from a checkpoint that has just been written in so many seconds."""
        self._since, self._last_s, self.first_s = time.monotonic(), seconds, 0


class StepCallback(TrainerCallback):
    """Seeds every step, saves by the clock and at the end, logs the last step, and stops a run that is asked to stop.

    In the step that ends an epoch, saving waits for `on_epoch_end`: the checkpoint then holds the evaluation of its step.
    """

    def __init__(self, watch: LogSaveEvalConfig, steps_per_epoch: int, stop_asked: Callable[[], bool]) -> None:
        """stop_asked: whether the run shall stop; any of several processes may be asked."""
        self.saves = SaveSchedule(watch)
        self.writes = watch.save_strategy != "no" or watch.save_every_s > 0
        self.answers_every = watch.execution_eval_steps
        self.steps_per_epoch = steps_per_epoch
        self.stop_asked = stop_asked
        self.stopped = False
        self._saved, self._asked = -1, time.monotonic()

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Take the intervals that are asked for now, not those that a checkpoint remembers."""
        state.compute_steps(args, state.max_steps)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Seed by step and process: dropout is the same whether a run was resumed or not, by as many processes."""
        torch.manual_seed(seed_of(args.seed, state.global_step, args.process_index))

    def on_substep_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Stop within a step: what it has of gradients is dropped."""
        if all_reduce_any(self.stop_asked())[0]:
            control.should_training_stop = self.stopped = True

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Say what is due after this step."""
        last = state.global_step == state.max_steps
        control.should_log |= last
        if self.answers_every:
            control.should_evaluate |= last or state.global_step % self.answers_every == 0
        if state.global_step % self.steps_per_epoch and not last:
            self._save_or_stop(control)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Look again: an evaluation may have taken minutes."""
        self._save_or_stop(control)

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Say what is due after this epoch; a run that stops within one is neither evaluated nor written twice."""
        if state.global_step == state.max_steps or control.should_training_stop:
            control.should_save |= self.writes
        self._save_or_stop(control)
        if self.stopped and state.global_step < state.max_steps:
            control.should_evaluate = False
        if self._saved == state.global_step and not control.should_evaluate:
            control.should_save = False

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Remember of which step there is a checkpoint, and what it took."""
        self._saved = state.global_step
        self.saves.written(time.monotonic() - self._asked)

    def _save_or_stop(self, control: TrainerControl) -> None:
        self._asked = time.monotonic()
        stop, in_time = all_reduce_any(self.stop_asked(), self.saves.due())
        control.should_save |= stop or in_time
        if stop:
            control.should_training_stop = self.stopped = True


def seed_of(seed: int, step: int, rank: int) -> int:
    """Return a 63-bit number for a seed, a step and a process; neighbors have nothing in common."""
    value = (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + rank * 0x94D049BB133111EB) & (2**64 - 1)
    return int(mixed(np.array([value], np.uint64), 0)[0]) >> 1
