"""Callbacks: seeding of steps, saving by time, stopping, the progress line and metrics.jsonl. transformers'
DefaultFlowCallback does the rest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from expert_cli.data.packing.random_fit import mixed
from expert_cli.manifest.keys.log_save_eval import EVAL_LOSS, EXECUTION_ACCURACY, NEVER, LogSaveEvalConfig
from expert_cli.model.flops import Flops
from expert_cli.training.health import TrainingState
from expert_cli.training.step_timer import StepTimer
from expert_cli.utils.distributed import all_reduce_any
from expert_cli.utils.files import append_text
from expert_cli.utils.reporter import Bar

MB = 2**20
FIRST_CHECKPOINT_S = 60.0
"""A run that saves checkpoints writes the first one after at most this many seconds, so that an early crash loses little."""
EVALUATED = {EVAL_LOSS, f"eval_{EXECUTION_ACCURACY}"}
LOGGED = ("loss", "grad_norm", "learning_rate", *sorted(EVALUATED), "epoch")


class StepCallback(TrainerCallback):
    """Seeds every step, saves by time and at the end, logs the last step, and stops a run on request.

    In the last step of an epoch, saving waits for `on_epoch_end`, so that the checkpoint includes the evaluation of its step.
    """

    def __init__(
        self,
        watch: LogSaveEvalConfig,
        steps_per_epoch: int,
        stop_asked: Callable[[], bool],
        *,
        by_evaluations: bool = False,
    ) -> None:
        """stop_asked: whether to stop; one process is enough to stop all. by_evaluations: evaluations set the learning rate."""
        self.writes = watch.save_strategy != "no" or watch.save_every_s > 0
        self.every_s, self._since = watch.save_every_s, time.monotonic()
        self._wait_s = min(FIRST_CHECKPOINT_S, self.every_s or FIRST_CHECKPOINT_S) if self.writes else 0.0
        self.steps_per_epoch = steps_per_epoch
        self.stop_asked = stop_asked
        self.stopped = self._within = False
        self._judges = by_evaluations or watch.load_best_model_at_end or watch.early_stopping_patience > 0
        self._saved = -1

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Take the intervals from the current arguments, not from a checkpoint."""
        state.compute_steps(args, state.max_steps)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Seed by step and process, so that a resumed run with the same number of processes has the same dropout."""
        torch.manual_seed(seed_of(args.seed, state.global_step, args.process_index))

    def on_substep_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Stop within a step if requested, and drop its gradients so far."""
        if all_reduce_any(self.stop_asked())[0]:
            control.should_training_stop = self.stopped = self._within = True

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Decide whether to log, evaluate, save or stop after this step."""
        last = state.global_step == state.max_steps
        control.should_log |= last
        if last and state.eval_steps >= NEVER:
            control.should_evaluate = False
        if state.global_step % self.steps_per_epoch and not last:
            self._save_or_stop(control)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Check again whether to save or stop: an evaluation may have taken minutes."""
        self._save_or_stop(control)

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Decide whether to evaluate, save or stop after this epoch. A run that stops is saved once, and evaluated only if
        the epoch is complete and evaluations choose the best step, stop training early or set the learning rate.
        """
        if state.global_step == state.max_steps or control.should_training_stop:
            control.should_save |= self.writes
        self._save_or_stop(control)
        is_left = self._judges and not self._within and state.global_step % self.steps_per_epoch == 0
        if self.stopped and not is_left and state.global_step < state.max_steps:
            control.should_evaluate = False
        if self._saved == state.global_step and not control.should_evaluate:
            control.should_save = False

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Remember the step and time of the latest checkpoint."""
        self._saved, self._since, self._wait_s = state.global_step, time.monotonic(), self.every_s

    def _save_or_stop(self, control: TrainerControl) -> None:
        due = 0 < self._wait_s <= time.monotonic() - self._since
        stop, in_time = all_reduce_any(self.stop_asked(), due)
        control.should_save |= stop or in_time
        if stop:
            control.should_training_stop = self.stopped = True


def seed_of(seed: int, step: int, rank: int) -> int:
    """Return a 63-bit number for a seed, a step and a process, unrelated to its neighbors."""
    value = (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + rank * 0x94D049BB133111EB) & (2**64 - 1)
    return int(mixed(np.array([value], np.uint64), 0)[0]) >> 1


class Done(NamedTuple):
    """Counts of training: real tokens, trained tokens, and seconds in the training loop."""

    real: int
    trained: int
    seconds: float

    @property
    def tokens_per_s(self) -> float:
        """Real tokens (without padding) per second; 0 if no time has passed."""
        return self.real / self.seconds if self.seconds else 0.0


class MetricsCallback(TrainerCallback):
    """Writes a line of metrics.jsonl for each logged step, adds its measurements to `logs`, and moves the progress bar."""

    bar: Bar

    def __init__(
        self,
        progress: TrainingState,
        timer: StepTimer,
        metrics: Path,
        flops: Flops,
        peak: float,
        warning: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Take the trainer's counts and the file to append to; `bar` is set before training.

        flops: the operations of a token. peak: FLOP/s of all GPUs together, 0 if unknown. warning: called once, if GPU memory
        has spilled into host memory.
        """
        self.progress, self.timer, self.metrics = progress, timer, metrics
        self.flops, self.peak, self.warning = flops, peak, warning
        self._started, self._peak_mb, self._learning_rate, self._told = time.monotonic(), 0.0, 0.0, False
        self._first = self._before = Done(0, 0, 0.0)
        self._measured: dict[str, Any] = {}

    def done_here(self) -> Done:
        """Return the counts since this process started; after a resume they exclude those in the checkpoint."""
        progress, first = self.progress, self._first
        return Done(progress.real - first.real, progress.trained - first.trained, progress.seconds - first.seconds)

    def mfu(self) -> float | None:
        """Return the model FLOPs utilization of this training; None if the peak is unknown."""
        here = self.done_here()
        return self.flops.of(here.real, here.trained) / max(1e-9, here.seconds) / self.peak if self.peak else None

    @property
    def peak_memory_mb(self) -> float:
        """The largest memory allocated on the GPU in training; on a CPU, the largest resident set at the end of a step."""
        peak = self.timer.device.held("max_memory_allocated")
        return self._peak_mb if peak is None else peak / MB

    @property
    def memory_mb(self) -> float:
        """The memory in use now."""
        return (self.timer.device.held("memory_allocated") or 0) / MB

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Start the clock and reset the peak memory: work before training, such as batches that did not fit, does not count."""
        progress = self.progress
        self._first = self._before = Done(progress.real, progress.trained, progress.seconds)
        self._started = time.monotonic()
        self.timer.device.reset_peak()
        self.timer.lap()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Update the progress bar."""
        self._count_seconds()
        now = self.memory_mb
        self._peak_mb = max(self._peak_mb, now)
        self.bar.update(state.global_step, self._note(now))

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Stop both clocks at once, so that seconds and shares both include the last evaluation and checkpoint."""
        self._count_seconds()
        self.timer.lap()

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Any = None, **_: Any) -> None:
        """Append a line to metrics.jsonl. The seconds in a later checkpoint include evaluations up to now."""
        self._count_seconds()
        logs = {} if logs is None else logs
        logged = {name: value for name, value in logs.items() if name in LOGGED}
        if "loss" in logged:
            self._measured = self._measure()
            self._learning_rate = logged["learning_rate"]
            logs |= {name: value for name, value in self._measured.items() if isinstance(value, int | float)}
            logged |= self._measured
            self.bar.update(state.global_step, self._note(self._measured["memory_mb"]))
        if {"loss", *EVALUATED} & set(logged) and state.is_world_process_zero:
            line = {"step": state.global_step, "time": round(time.time(), 3)}
            line |= {"seconds": round(self.progress.seconds, 3)}
            append_text(self.metrics, json.dumps(line | logged) + "\n")

    def _count_seconds(self) -> None:
        self.progress.seconds = self._first.seconds + time.monotonic() - self._started

    def _measure(self) -> dict[str, Any]:
        """Return the measurements since the last call."""
        wall, shares = self.timer.lap()
        progress, before = self.progress, self._before
        real, trained = progress.real - before.real, progress.trained - before.trained
        self._before = Done(progress.real, progress.trained, progress.seconds)
        spilled = self.timer.device.spilled() / MB
        if spilled and not self._told:
            self._told = True
            self.warning(
                f"{spilled:,.0f} MB of GPU memory were moved to the host's memory, which slows every step: lower "
                "batch_size, or set gradient_checkpointing: true"
            )
        return {
            "interval_s": round(wall, 3),
            "tokens_per_s": round(real / wall, 1),
            "tokens_real": progress.real,
            "tokens_trained": progress.trained,
            "tokens_padded": progress.padded,
            "memory_mb": round(self.memory_mb, 1),
            "spilled_mb": round(spilled, 1),
            "mfu": round(self.flops.of(real, trained) / wall / self.peak, 4) if self.peak else None,
            "step_time_shares": {name: round(share, 4) for name, share in shares.items()},
        }

    def _note(self, memory_mb: float) -> str:
        losses = self.progress.losses
        loss = f"loss {losses[-1]:.3f}  " if losses else ""
        rate = f"  lr {self._learning_rate:.1e}" if self._learning_rate else ""
        data = self._measured.get("step_time_shares", {}).get("data", 0.0)
        rate += f"  waits for data {data:.0%}" if data >= 0.005 else ""
        return f"{loss}{self.done_here().tokens_per_s:,.0f} tokens/s{rate}  {memory_mb / 1024:.1f} GB"
