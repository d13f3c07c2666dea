"""The Trainer's loop as a whole, with every event of its callbacks, around steps of our own (trainer.py).

The Trainer's loop is replaced as a whole (`_inner_training_loop`), because what it costs is spread over it: at every
micro-step it walks the module tree (`model.train()`, `zero_grad`, 10 ms on Qwen3-0.6B), counts all parameters for its FLOPs,
and adds to the loss where a NaN is turned into 0.0; on resuming it reads its order anew from the start and restores
silently whatever it finds.

Callbacks are called as the Trainer calls them: every event, in its order, with its state and its arguments, and what they
switch on in `control` is done. `FlowCallback` stands in for DefaultFlowCallback; what is due when is its. Three things differ:

    `state.epoch` counts optimizer steps: the last one of an epoch may be short, and counts as a whole one
    a stop asked for in `on_substep_end` waits until the optimizer step is whole: the Trainer leaves half of its gradients
    an epoch that a callback ends early is over in a checkpoint too: the Trainer would go on within it
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset
from transformers import DefaultFlowCallback, Trainer, TrainerState
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import TrainOutput, speed_metrics

from expert_cli.data.packing.batches import Batch, PackedBatchSampler
from expert_cli.hardware.devices import device_of
from expert_cli.manifest.keys.log_save_eval import EXECUTION_ACCURACY, LogSaveEvalConfig
from expert_cli.training.flow_callback import FlowCallback
from expert_cli.training.health import TrainingHealth
from expert_cli.training.state import TrainingState
from expert_cli.training.step_timer import StepTimer
from expert_cli.utils.distributed import broadcast_rank0


class TrainingLoop(Trainer, ABC):
    """Walks the epochs and steps of a schedule, calls the callbacks, and does what they ask for."""

    model: Any
    train_dataset: Any
    eval_dataset: Any
    health: TrainingHealth

    def __init__(
        self,
        *,
        watch: LogSaveEvalConfig,
        batches: PackedBatchSampler,
        save: Callable[[Any], None] = lambda _: None,
        stop_asked: Callable[[], bool] = lambda: False,
        run_answers: Callable[[], float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Take what the Trainer's own arguments have no place for; the rest is theirs.

        batches: yields the packs of every micro-step. save: writes a checkpoint of the trainer that it is given; called in the
        first process alone. stop_asked: whether the run shall stop, asked after every step. run_answers: lets the model as it
        is answer cases, and returns the share that is right; None: not asked for.
        """
        super().__init__(**kwargs)
        self.watch = watch
        self.batches = batches
        self.progress = TrainingState()
        self.timer = StepTimer(device_of(self.args.device))
        self.run_answers = run_answers
        self._write_checkpoint = save
        self.flow = FlowCallback(watch, self.progress, batches, stop_asked, evaluates=self.eval_dataset is not None)
        self.remove_callback(DefaultFlowCallback)
        self.callback_handler.callbacks.insert(0, self.flow)
        self._last_logged = 0

    @abstractmethod
    def loader(self, dataset: Dataset[Any], batches: Any) -> DataLoader[Batch]:
        """Return a loader with the manifest's settings."""

    @abstractmethod
    def train_step(self, batches: Iterator[Batch]) -> None:
        """Do one optimizer step."""

    @abstractmethod
    def log_steps(self) -> None:
        """Log the steps since the last time."""

    def _inner_training_loop(self, *_: Any, **__: Any) -> TrainOutput:
        """Train from the schedule's next step on to its end, or until `control` says so."""
        schedule, progress, first, started = self.batches.schedule, self.progress, self.progress.step, time.time()
        self._begin_training()
        loader: Any = self.callback_handler.train_dataloader
        batches = iter(loader)
        while progress.schedule_step < schedule.steps and not progress.is_stale(self.watch.early_stopping_patience):
            skipped = progress.skipped
            self._train_epoch(batches)
            if self.control.should_training_stop:
                break
            if progress.skipped > skipped:
                loader = self.callback_handler.train_dataloader = self.get_train_dataloader()
                batches = iter(loader)
        self.health.flush()
        here = progress.losses[first:]
        done = {"num_samples": len(here) * schedule.packs_per_step, "num_steps": len(here)}
        metrics = {**speed_metrics("train", started, **done), "train_loss": sum(here) / max(1, len(here))}
        self.log(metrics)
        self.control = self.callback_handler.on_train_end(self.args, self.state, self.control)
        self.is_in_train = False
        return TrainOutput(progress.step, metrics["train_loss"], metrics)

    def _begin_training(self) -> None:
        """Fill the state and what callbacks are handed."""
        schedule, progress, handler = self.batches.schedule, self.progress, self.callback_handler
        exportable: list[Any] = [
            each for each in (*handler.callbacks, self.control) if isinstance(each, ExportableState)
        ]
        self.state = TrainerState(stateful_callbacks=exportable)
        self.state.train_batch_size = schedule.batch_size
        self.state.compute_steps(self.args, schedule.steps)
        self.state.max_steps, self.state.num_train_epochs = schedule.steps, schedule.position(schedule.steps - 1)[0] + 1
        self.state.is_local_process_zero = self.is_local_process_zero()
        self.state.is_world_process_zero = self.is_world_process_zero()
        self.state.global_step, self.state.epoch = progress.step, schedule.epoch_of(progress.schedule_step)
        self.state.best_metric, self.state.best_global_step = progress.best, progress.best_step or None
        # The model that people's callbacks know, not the one that returns its loss alone.
        handler.model, handler.optimizer, handler.lr_scheduler = self.model.model, self.optimizer, self.lr_scheduler
        handler.train_dataloader = self.get_train_dataloader()
        self._last_logged = progress.step
        self.control = handler.on_train_begin(self.args, self.state, self.control)
        self.timer.lap()

    def get_train_dataloader(self) -> DataLoader[Batch]:
        """Return the batches from the schedule's next step on."""
        self.batches.first_step = self.progress.schedule_step
        return self.loader(self.train_dataset, self.batches)

    def _train_epoch(self, batches: Iterator[Batch]) -> None:
        """Train to the end of the present epoch, or until `control` ends it."""
        schedule, progress, handler = self.batches.schedule, self.progress, self.callback_handler
        self.control = handler.on_epoch_begin(self.args, self.state, self.control)
        over = False
        while not over:
            self.train_step(batches)
            over = progress.schedule_step == schedule.steps or schedule.position(progress.schedule_step)[1] == 0
            self.state.global_step, self.state.epoch = progress.step, schedule.epoch_of(progress.schedule_step)
            self.control = handler.on_step_end(self.args, self.state, self.control)
            self._skip_rest_of_epoch()
            self._log_evaluate_save()
            self._skip_rest_of_epoch()
            over = over or self.control.should_epoch_stop or self.control.should_training_stop
        self.control = handler.on_epoch_end(self.args, self.state, self.control)
        self._log_evaluate_save()

    def _skip_rest_of_epoch(self) -> None:
        """Leave out what remains of an epoch that a callback ended."""
        schedule, progress = self.batches.schedule, self.progress
        epoch, within = schedule.position(progress.schedule_step)
        if self.control.should_epoch_stop and within and progress.schedule_step < schedule.steps:
            self.health.flush()
            rest = schedule.steps_of(epoch) - within
            progress.skipped += min(rest, schedule.steps - progress.schedule_step)

    def _log_evaluate_save(self) -> None:
        """Do what `control` asks for; without validation rows, an evaluation runs answers."""
        if self.control.should_log and self.progress.step > self._last_logged:
            self.log_steps()
        evaluates, answers = self.control.should_evaluate, self.flow.answers_due
        self.flow.answers_due = False
        if evaluates and self.eval_dataset is not None:
            with self.timer.phase("eval"):
                self.evaluate()
        if self.run_answers is not None and (answers or (evaluates and self.eval_dataset is None)):
            with self.timer.phase("eval"):
                self.log_evaluation({EXECUTION_ACCURACY: broadcast_rank0(self.run_answers)})
        if self.control.should_save:
            self.health.flush()
            with self.timer.phase("checkpoint"), self.flow.saves.measured():
                if self.args.process_index == 0:
                    self._write_checkpoint(self)
            if self.watch.load_best_model_at_end and self.progress.best_step:
                self.state.best_model_checkpoint = f"{self.args.output_dir}/checkpoint-{self.progress.best_step}"
            self.control = self.callback_handler.on_save(self.args, self.state, self.control)

    def log_evaluation(self, metrics: dict[str, float]) -> dict[str, float]:
        """Log an evaluation, and judge by the metric that chooses the best step, where it has it."""
        self.log(metrics)
        if self.watch.metric_for_best_model in metrics:
            value = metrics[self.watch.metric_for_best_model]
            self.progress.judge(value, greater_is_better=self.watch.greater_is_better)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        # Not before: EarlyStoppingCallback compares with the best of the evaluations before.
        self.state.best_metric, self.state.best_global_step = self.progress.best, self.progress.best_step or None
        return metrics
