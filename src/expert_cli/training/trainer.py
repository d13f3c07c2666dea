"""The one subclass of the Hugging Face Trainer: its optimizers, schedules, callbacks and accelerate, and our own step.

The Trainer's loop is replaced as a whole (`_inner_training_loop`), because what it costs is spread over it: at every
micro-step it walks the module tree (`model.train()`, `zero_grad`, 10 ms on Qwen3-0.6B), counts all parameters for its FLOPs,
and adds to the loss where a NaN is turned into 0.0; on resuming it reads its order anew from the start and restores
silently whatever it finds. Here a step is:

    data -> host to device -> forward -> backward (per micro-step) -> clip, optimizer, schedule -> log, evaluate, save
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainerState
from transformers.trainer_utils import TrainOutput

from expert_cli.config.run_config import EXECUTION_ACCURACY, LogSaveEvalConfig, OptimConfig
from expert_cli.data.packing.batches import Batch, InTurn, PackedBatchSampler
from expert_cli.data.packing.dataset import PackedDataset
from expert_cli.data.packing.order import mixed
from expert_cli.errors import TrainingFailed
from expert_cli.training.gradients import Gradients
from expert_cli.training.health import TrainingHealth
from expert_cli.training.lr_schedulers import one_cycle
from expert_cli.training.save_schedule import SaveSchedule, is_due
from expert_cli.training.signals import leave_ctrl_c
from expert_cli.training.state import TrainingState
from expert_cli.training.step_timer import StepTimer


class ExpertTrainer(Trainer):  # type: ignore[misc]  # transformers is not typed
    """Trains a `CausalLoss` on packs; every step's loss is kept, and nothing is written but through `save`."""

    optimizer: Any
    train_dataset: Any
    lr_scheduler: LRScheduler
    control: Any

    def __init__(
        self,
        *,
        optim_config: OptimConfig,
        watch: LogSaveEvalConfig,
        batches: PackedBatchSampler,
        evaluation: PackedDataset | None,
        **kwargs: Any,
    ) -> None:
        """Take what the Trainer's own arguments have no place for; `batches` yields the packs of every micro-step."""
        super().__init__(**kwargs)
        self.optim_config = optim_config
        self.watch = watch
        self.batches = batches
        self.evaluation = evaluation
        self.progress = TrainingState()
        self.timer = StepTimer(on_gpu=self.args.device.type == "cuda")
        self.gradients = Gradients(self.model.named_parameters())
        self.health = TrainingHealth(
            self.progress, self.gradients, self._documents, scaled=self.accelerator.scaler is not None
        )
        self.learning_rate, self.recomputes, self.answered = 0.0, False, 0
        self.extra_evaluation: Callable[[], float] | None = None
        self.stop_asked: Callable[[], bool] = lambda: False
        self.save: Callable[[], Any] = lambda: None
        self.measure: Callable[[], dict[str, float]] = dict
        self.saves = SaveSchedule(watch.save_every_s)
        self._prepared: Any = None
        self._logged = 0

    def prepare(self) -> None:
        """Make optimizer and schedule and hand model and optimizer to accelerate; to be called once, before training."""
        self.create_optimizer()
        self.create_scheduler(self.batches.schedule.steps, self.optimizer)
        self._prepared, self.optimizer = self.accelerator.prepare(self.model, self.optimizer)
        self._prepared.train()

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LRScheduler:
        """Make the learning-rate schedule; transformers has no one_cycle."""
        if self.optim_config.scheduler == "one_cycle":
            warmup = self.args.get_warmup_steps(num_training_steps) / max(1, num_training_steps)
            settings: dict[str, Any] = dict(self.optim_config.scheduler_kwargs)
            peak = self.args.learning_rate
            self.lr_scheduler = one_cycle(optimizer or self.optimizer, num_training_steps, peak, warmup, settings)
            self._created_lr_scheduler = True
        else:
            super().create_scheduler(num_training_steps, optimizer)
        return self.lr_scheduler

    def loader(self, dataset: Dataset[Any], batches: Any) -> DataLoader[Batch]:
        """Return a loader with the manifest's settings."""
        workers = self.args.dataloader_num_workers
        return DataLoader(
            dataset,
            batch_sampler=batches,
            collate_fn=self.data_collator,
            num_workers=workers,
            pin_memory=self.args.dataloader_pin_memory and self.args.device.type == "cuda",
            prefetch_factor=self.args.dataloader_prefetch_factor if workers else None,
            worker_init_fn=leave_ctrl_c,
        )

    def _inner_training_loop(self, *_: Any, **__: Any) -> TrainOutput:
        """Train from `progress.step` on to the end of the schedule, or until the callbacks or `stop_asked` say so."""
        schedule = self.batches.schedule
        self.state = TrainerState(max_steps=schedule.steps, num_train_epochs=math.ceil(self.optim_config.epochs))
        self.state.is_world_process_zero = self.state.is_local_process_zero = self.args.process_index == 0
        self.state.global_step = self.progress.step
        self.callback_handler.model, self.callback_handler.optimizer = self.model, self.optimizer
        self.control = self.callback_handler.on_train_begin(self.args, self.state, self.control)
        self.batches.first_step = self._logged = self.progress.step
        self.timer.lap()
        batches = iter(self.loader(self.train_dataset, self.batches))
        while self.progress.step < schedule.steps and not self.progress.is_stale(self.watch.early_stopping_patience):
            self._step(batches)
            self.state.global_step = self.progress.step
            self.state.epoch = schedule.epoch_of(self.progress.step)
            self.control = self.callback_handler.on_step_end(self.args, self.state, self.control)
            if self._after_step():
                break
        self.health.flush()
        self.callback_handler.on_train_end(self.args, self.state, self.control)
        return TrainOutput(self.progress.step, sum(self.progress.losses) / max(1, len(self.progress.losses)), {})

    def _step(self, batches: Iterator[Batch]) -> None:
        """Do one optimizer step."""
        schedule, step = self.batches.schedule, self.progress.step
        with self.timer.phase("data"):
            micro = [next(batches) for _ in range(schedule.micro_steps(step))]
        # A function of the step alone: dropout is the same whether a run was resumed or not, on any number of processes.
        torch.manual_seed(_seed_of(self.args.seed, step, self.args.process_index))
        trained, real, places = self._counts(micro)
        if not trained:
            message = f"step {step + 1} trains no token; {self._documents(step)}"
            raise TrainingFailed(message, "raise max_seq_length: answers are cut off, or are empty")
        total = torch.zeros((), device=self.args.device)
        for n, batch in enumerate(micro):
            with self.timer.phase("host_to_device"):
                inputs = self._on_device(batch)
            with self._sync(last=n == len(micro) - 1):
                with self.timer.phase("forward"):
                    loss = self._prepared(**inputs) * (schedule.processes / trained)
                with self.timer.phase("backward"):
                    self.accelerator.backward(loss)
            total += loss.detach()
        with self.timer.phase("optimizer"):
            norm = self._update()
        self.progress.step += 1
        self.progress.real += real
        self.progress.trained += trained
        self.progress.padded += places - real
        self.health.record(torch.stack([self._mean(total), norm.float()]))

    def _counts(self, micro: Sequence[Batch]) -> tuple[int, int, int]:
        """Return the trained tokens, the real tokens and all places of a step, of all processes together."""
        counts = torch.tensor(
            [
                sum(len(batch["targets"]) for batch in micro),
                sum(batch["real_tokens"] for batch in micro),
                sum(batch["input_ids"].numel() for batch in micro),
            ]
        )
        if self.batches.schedule.processes > 1:
            counts = self.accelerator.reduce(counts.to(self.args.device), "sum").cpu()
        trained, real, places = counts.tolist()
        return trained, real, places

    def _on_device(self, batch: Batch) -> Batch:
        device = self.args.device
        return {
            name: value.to(device, non_blocking=True) if isinstance(value, torch.Tensor) else value
            for name, value in batch.items()
            if name != "real_tokens"
        }

    def _sync(self, *, last: bool) -> AbstractContextManager[Any]:
        """Let processes exchange gradients in the last micro-step alone."""
        if last or self.batches.schedule.processes == 1:
            return nullcontext()
        context: AbstractContextManager[Any] = self.accelerator.no_sync(self._prepared)
        return context

    def _update(self) -> torch.Tensor:
        """Clip, let the optimizer and the schedule step, drop the gradients; return the norm before clipping."""
        if self.accelerator.scaler is not None:
            self.accelerator.unscale_gradients(self.optimizer)
        norm = self.gradients.clip(self.args.max_grad_norm)
        self.learning_rate = float(self.lr_scheduler.get_last_lr()[0])
        self.optimizer.step()
        if not self.accelerator.optimizer_step_was_skipped:
            self.lr_scheduler.step()
        self.gradients.zero_grad()
        return norm

    def _mean(self, total: torch.Tensor) -> torch.Tensor:
        """Return the step's loss: every process holds `processes` times its share of it."""
        processes = self.batches.schedule.processes
        return self.accelerator.reduce(total, "mean") if processes > 1 else total

    def _documents(self, step: int) -> str:
        """Name the documents of an optimizer step (from 0)."""
        epoch, taken = self.batches.packs_of(step)
        packs = self.train_dataset.packs.of(epoch)
        rows = np.unique(packs.documents[packs.pieces_of(taken)]).tolist()
        more = f" and {len(rows) - 12} more" if len(rows) > 12 else ""
        return f"its documents (counted from 0): {', '.join(map(str, rows[:12]))}{more}"

    def _after_step(self) -> bool:
        """Log, evaluate and save what is due; return whether the run ends here."""
        step, schedule, watch = self.progress.step, self.batches.schedule, self.watch
        last = step == schedule.steps
        epoch_ends = last or schedule.position(step)[1] == 0
        if last or step == 1 or step % watch.logging_steps == 0:
            self._log()
        if self.evaluation is not None and is_due(watch.eval_strategy, step, watch.eval_steps, epoch_ends=epoch_ends):
            with self.timer.phase("eval"):
                self.evaluate()
        if self.extra_evaluation is not None and (last or step % watch.execution_eval_steps == 0):
            with self.timer.phase("eval"):
                self._take(EXECUTION_ACCURACY, self.extra_evaluation())
                self.answered += 1
        improved = watch.load_best_model_at_end and self.progress.best_step == step
        stops = self.progress.is_stale(watch.early_stopping_patience)
        asked, in_time = self._agreed(self.stop_asked(), self.saves.due())
        writes = watch.save_strategy != "no" or watch.save_every_s > 0
        due = last or stops or in_time or is_due(watch.save_strategy, step, watch.save_steps, epoch_ends=epoch_ends)
        if asked or improved or (due and writes):
            self.health.flush()
            with self.timer.phase("checkpoint"), self.saves.measured():
                self.save()
        return stops or asked or self.control.should_training_stop

    def _agreed(self, *flags: bool) -> list[bool]:
        """Return each flag as set if any process sets it: all must save and stop at the same step."""
        if self.batches.schedule.processes == 1:
            return list(flags)
        sums = self.accelerator.reduce(torch.tensor(flags, dtype=torch.int32, device=self.args.device), "sum")
        return [bool(flag) for flag in sums.tolist()]

    def dry_run_step(self, batch: Batch) -> None:
        """Run forward and backward on a batch and keep nothing but the gradients."""
        self.accelerator.backward(self._prepared(**self._on_device(batch)))

    def _log(self) -> None:
        """Log the mean loss of the steps since the last time."""
        self.health.flush()
        recent = self.progress.losses[self._logged :] or self.progress.losses[-1:]
        self._logged = self.progress.step
        self.log(
            {
                "loss": sum(recent) / len(recent),
                "grad_norm": self.health.grad_norm,
                "learning_rate": self.learning_rate,
                **self.measure(),
            }
        )

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Return and log the loss per trained token of the validation packs."""
        if self.evaluation is None:
            return {}
        self.health.flush()
        self._prepared.eval()
        share = InTurn(
            len(self.evaluation),
            self.args.eval_batch_size,
            rank=self.args.process_index,
            processes=self.batches.schedule.processes,
        )
        sums = torch.zeros(2, device=self.args.device, dtype=torch.float64)
        with torch.no_grad():
            for batch in self.loader(self.evaluation, share):
                inputs = self._on_device(batch)
                sums += torch.stack([self._prepared(**inputs).double(), sums.new_tensor(len(inputs["targets"]))])
        self._prepared.train()
        if self.batches.schedule.processes > 1:
            sums = self.accelerator.reduce(sums, "sum")
        found = float(sums[0] / sums[1].clamp(min=1.0))
        self.progress.evaluations.append((self.progress.step, found))
        self._take("eval_loss", found)
        return {"eval_loss": found}

    def _take(self, metric: str, value: float) -> None:
        """Log an evaluation, and judge by it if its metric chooses the best step."""
        self.log({metric: value})
        chooses = (metric == EXECUTION_ACCURACY) == (self.watch.metric_for_best_model == EXECUTION_ACCURACY)
        if chooses:
            self.progress.judge(value, greater_is_better=self.watch.greater_is_better)


def _seed_of(seed: int, step: int, rank: int) -> int:
    """Return a 63-bit number for a seed, a step and a process; neighbors have nothing in common."""
    value = (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + rank * 0x94D049BB133111EB) & (2**64 - 1)
    return int(mixed(np.array([value], np.uint64), 0)[0]) >> 1
