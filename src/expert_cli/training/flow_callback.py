"""When a run logs, evaluates, saves and stops: what transformers' DefaultFlowCallback decides, by the manifest's keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from transformers import DefaultFlowCallback, TrainerControl, TrainerState, TrainingArguments

from expert_cli.data.packing.batches import PackedBatchSampler
from expert_cli.manifest.keys.log_save_eval import LogSaveEvalConfig
from expert_cli.training.state import TrainingState
from expert_cli.utils.distributed import all_reduce_any

LARGEST_SHARE = 0.01
"""Of the time, at most this much is spent on saving by the clock."""


class SaveSchedule:
    """When a checkpoint is due by the clock: counts the time since the last one."""

    def __init__(self, every_s: float) -> None:
        """every_s: seconds between two checkpoints; 0: never by the clock."""
        self.every_s = every_s
        self._last_s = 0.0
        self._since = time.monotonic()

    def due(self) -> bool:
        """Whether it is time: not before the last one has cost less than 1 % of the time since then."""
        return bool(self.every_s) and time.monotonic() - self._since >= max(self.every_s, self._last_s / LARGEST_SHARE)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Wrap the writing of a checkpoint."""
        started = time.monotonic()
        yield
        self._since = time.monotonic()
        self._last_s = self._since - started


class FlowCallback(DefaultFlowCallback):
    """Sets the switches of `TrainerControl`; it stands first, so that every other callback may change them.

    Other than in DefaultFlowCallback: the last step is logged, and is evaluated only where it is due; checkpoints are due
    by the clock too, after a better evaluation, and before a stop. In the step that ends an epoch and is evaluated for
    that (`eval_strategy: epoch`), what else evaluates or saves waits for `on_epoch_end`: a checkpoint holds the evaluation
    of its step, so that a run that goes on from it ends as an unbroken one. A run that is stopped within an epoch is
    neither evaluated nor saved as if the epoch had ended.
    """

    def __init__(
        self,
        watch: LogSaveEvalConfig,
        progress: TrainingState,
        batches: PackedBatchSampler,
        stop_asked: Callable[[], bool],
        *,
        evaluates: bool,
    ) -> None:
        """Take what is asked for, how far the run is, and its schedule.

        stop_asked: whether the run shall stop. evaluates: there are validation rows.
        """
        self.eval_strategy = watch.eval_strategy if evaluates else "no"
        self.watch = watch
        self.progress = progress
        self.batches = batches
        self.saves = SaveSchedule(watch.save_every_s)
        self.stop_asked = stop_asked
        self.answers_due = False
        self._epoch_evaluates = self._save_waits = self._answers_wait = self._interrupted = False

    @property
    def stop_reason(self) -> str:
        """Why training ended where it did, in words."""
        progress, steps = self.progress, self.batches.schedule.steps
        if progress.step == steps:
            return f"all {steps} steps of the schedule are done"
        if progress.is_stale(self.watch.early_stopping_patience):
            metric = self.watch.metric_for_best_model
            return (
                f"early stopping after step {progress.step} of {steps}: {metric} was best at step {progress.best_step} "
                f"({progress.best:.4g}), and early_stopping_patience is {self.watch.early_stopping_patience}"
            )
        if progress.schedule_step == steps:
            return f"all epochs are done in {progress.step} of {steps} steps: a callback ended epochs early"
        return f"a callback stopped training after step {progress.step} of {steps}"

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Say what is due after this step."""
        watch, step = self.watch, self.progress.step
        last = self.progress.schedule_step == self.batches.schedule.steps
        self._epoch_evaluates = self.eval_strategy == "epoch" and self._epoch_ends()
        if last or step == 1 or step % watch.logging_steps == 0:
            control.should_log = True
        if self.eval_strategy == "steps" and step % watch.eval_steps == 0:
            control.should_evaluate = True
        answers = watch.execution_eval_steps > 0 and (last or step % watch.execution_eval_steps == 0)
        self.answers_due, self._answers_wait = answers and not self._epoch_evaluates, answers and self._epoch_evaluates
        if self._writes() and (last or (watch.save_strategy == "steps" and step % watch.save_steps == 0)):
            self._save(control)
        if step == self.batches.schedule.steps:
            control.should_training_stop = True
        self._stop_or_save_if_asked(control)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Save what is better than all before, and stop a run that gets no better; an evaluation may have taken minutes."""
        if self.watch.load_best_model_at_end and self.progress.best_step == self.progress.step:
            self._save(control)
        if self.progress.is_stale(self.watch.early_stopping_patience):
            control.should_training_stop = self._interrupted = True
            if self._writes():
                self._save(control)
        self._stop_or_save_if_asked(control)

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Say what is due after this epoch, and what waited for its end."""
        self._epoch_evaluates = False
        if self._epoch_ends() or not self._interrupted:
            if self.eval_strategy == "epoch":
                control.should_evaluate = True
            if self.watch.save_strategy == "epoch":
                control.should_save = True
        self.answers_due, self._answers_wait = self._answers_wait, False
        if self._save_waits:
            control.should_save, self._save_waits = True, False

    def _epoch_ends(self) -> bool:
        """Whether the step just done is the last one of its epoch, or of the run."""
        schedule, step = self.batches.schedule, self.progress.schedule_step
        return step == schedule.steps or schedule.position(step)[1] == 0

    def _writes(self) -> bool:
        return self.watch.save_strategy != "no" or self.watch.save_every_s > 0

    def _save(self, control: TrainerControl) -> None:
        if self._epoch_evaluates:
            self._save_waits = True
        else:
            control.should_save = True

    def _stop_or_save_if_asked(self, control: TrainerControl) -> None:
        stop, in_time = all_reduce_any(self.stop_asked(), self.saves.due())
        if stop or in_time:
            self._save(control)
        if stop:
            control.should_training_stop = self._interrupted = True
