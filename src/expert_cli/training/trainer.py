"""One optimizer step, one evaluation: what the loop of training_loop.py goes through, on packs and without copies.

data -> host to device -> forward -> backward (per micro-step) -> clip, optimizer, schedule
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Dataset

from expert_cli.data.packing.batches import Batch, Collator, once_in_turn
from expert_cli.data.packing.dataset import PackedDataset
from expert_cli.data.packing.order import mixed
from expert_cli.errors import TrainingFailed
from expert_cli.manifest.keys.log_save_eval import EVAL_LOSS, eval_loss_of
from expert_cli.manifest.keys.optim import OptimConfig
from expert_cli.model.fsdp import sharded
from expert_cli.training.gradients import Gradients
from expert_cli.training.health import TrainingHealth
from expert_cli.training.lr_schedulers import one_cycle
from expert_cli.training.signals import leave_signals
from expert_cli.training.training_loop import TrainingLoop
from expert_cli.utils.distributed import all_reduce_sum


class ExpertTrainer(TrainingLoop):
    """Trains a `CausalLoss` on packs; every step's loss is kept, and nothing is written but by `save`."""

    optimizer: Any
    lr_scheduler: Any

    def __init__(
        self,
        *,
        optim_config: OptimConfig,
        **kwargs: Any,
    ) -> None:
        """Take what makes the optimizer's schedule; the rest is `TrainingLoop`'s and the Trainer's own."""
        super().__init__(**kwargs)
        self.optim_config = optim_config
        self.gradients = Gradients(self.model.named_parameters())
        self.health = TrainingHealth(
            self.progress,
            self.gradients,
            self._documents,
            scaled=self.accelerator.scaler is not None,
        )
        self.learning_rate, self.recomputes = 0.0, False
        self.adjusted: list[str] = []  # what was given up for a step to fit the memory, in words
        self._prepared: Any = None

    def prepare(self) -> None:
        """Make optimizer and schedule and hand model and optimizer to accelerate; to be called once, before training."""
        self.create_optimizer()
        self.create_scheduler(self.batches.schedule.steps, self.optimizer)
        self.model._ddp_params_and_buffers_to_ignore = sharded(self.model)  # DDP exchanges nothing that is shared out
        self._prepared, self.optimizer = self.accelerator.prepare(self.model, self.optimizer)
        self._prepared.train()
        # Shared by all trainers of a process; one that was stopped within a step leaves it off, and then no optimizer steps.
        self.accelerator.sync_gradients = True

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
        schedule: LRScheduler = self.lr_scheduler
        return schedule

    @property
    def collate(self) -> Collator:
        """What makes a batch of packs; where its shape is fixed, it is that of the present schedule's micro-batches."""
        collator: Any = self.data_collator
        made: Collator = collator.for_batches(self.batches.schedule.batch_size)
        return made

    def loader(self, dataset: Dataset[Any], batches: Any) -> DataLoader[Batch]:
        """Return a loader with the manifest's settings."""
        workers = self.args.dataloader_num_workers
        return DataLoader(
            dataset,
            batch_sampler=batches,
            collate_fn=self.collate,
            num_workers=workers,
            pin_memory=self.args.dataloader_pin_memory and self.timer.device.is_gpu,
            prefetch_factor=self.args.dataloader_prefetch_factor if workers else None,
            worker_init_fn=leave_signals,
        )

    def train_step(self, batches: Iterator[Batch]) -> None:
        """Do one optimizer step."""
        schedule, step = self.batches.schedule, self.progress.step
        with self.timer.phase("data"):
            micro = [next(batches) for _ in range(schedule.micro_steps(self.progress.schedule_step))]
        # A function of step and process: dropout is the same whether a run was resumed or not, by as many processes.
        torch.manual_seed(_seed_of(self.args.seed, step, self.args.process_index))
        trained, real, places = self._counts(micro)
        if not trained:
            message = f"step {step + 1} trains no token; {self._documents(step)}"
            raise TrainingFailed(message, "raise max_seq_length: answers are cut off, or are empty")
        total = torch.zeros((), device=self.args.device)
        self.control = self.callback_handler.on_step_begin(self.args, self.state, self.control)
        for n, batch in enumerate(micro):
            if n:
                self.control = self.callback_handler.on_substep_end(self.args, self.state, self.control)
            with self.timer.phase("host_to_device"):
                inputs = self._on_device(batch)
            with self._sync(last=n == len(micro) - 1):
                with self.timer.phase("forward"):
                    loss = self._prepared(**inputs) * (schedule.processes / trained)
                with self.timer.phase("backward"):
                    self.accelerator.backward(loss)
            total += loss.detach()
        with self.timer.phase("optimizer"):
            norms = self._update()
        self.progress.step += 1
        self.progress.real += real
        self.progress.trained += trained
        self.progress.padded += places - real
        self.health.record(torch.cat([self._mean(total).unsqueeze(0), norms.float()]))

    def _counts(self, micro: Sequence[Batch]) -> tuple[int, int, int]:
        """Return the trained tokens, the real tokens and all places of a step, of all processes together."""
        trained, real, places = all_reduce_sum(
            sum(len(batch["targets"]) for batch in micro),
            sum(batch["real_tokens"] for batch in micro),
            sum(batch["input_ids"].numel() for batch in micro),
        )
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
        """Clip, let the optimizer and the schedule step, drop the gradients; return the norms before clipping."""
        if self.accelerator.scaler is not None:
            self.accelerator.unscale_gradients(self.optimizer)
        norms = self.gradients.clip(self.args.max_grad_norm)
        self.learning_rate = float(self.lr_scheduler.get_last_lr()[0])
        self.control = self.callback_handler.on_pre_optimizer_step(self.args, self.state, self.control)
        self.optimizer.step()
        self.control = self.callback_handler.on_optimizer_step(self.args, self.state, self.control)
        if not self.accelerator.optimizer_step_was_skipped:
            self.lr_scheduler.step()
        self.gradients.zero_grad()
        return norms

    def _mean(self, total: torch.Tensor) -> torch.Tensor:
        """Return the step's loss: every process holds `processes` times its share of it."""
        processes = self.batches.schedule.processes
        return self.accelerator.reduce(total, "mean") if processes > 1 else total

    def _documents(self, step: int) -> str:
        """Name the documents of an optimizer step (from 0) of the present epoch."""
        epoch, taken = self.batches.packs_of(step + self.progress.skipped)
        packs = self.train_dataset.packs
        rows = sorted({row for number in taken.tolist() for row in packs.pack(epoch, number).documents.tolist()})
        more = f" and {len(rows) - 12} more" if len(rows) > 12 else ""
        return f"its documents (counted from 0): {', '.join(map(str, rows[:12]))}{more}"

    def dry_run_step(self, batch: Batch) -> None:
        """Run forward and backward on a batch and keep nothing but the gradients.

        Processes exchange none: one whose memory runs out would leave the others waiting, and its own exchange half done.
        """
        with self._sync(last=False):
            self.accelerator.backward(self._prepared(**self._on_device(batch)))

    def log_steps(self) -> None:
        """Log the mean loss of the steps since the last time."""
        self.health.flush()
        recent = self.progress.losses[self._last_logged :]
        self._last_logged = self.progress.step
        self.log(
            {
                "loss": sum(recent) / len(recent),
                "grad_norm": self.health.grad_norm,
                "learning_rate": self.learning_rate,
            }
        )

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Return and log the loss per trained token of the validation packs, and that of each named set; {} without any."""
        if self.eval_dataset is None:
            return {}
        self.health.flush()
        sets = self.eval_dataset if isinstance(self.eval_dataset, dict) else {"": self.eval_dataset}
        self._prepared.eval()
        sums = {name: self._loss_and_tokens(packs) for name, packs in sets.items()}
        self._prepared.train()
        found = _mean_loss(sum(sums.values()))
        self.progress.set_losses = {name: _mean_loss(its) for name, its in sums.items() if name}
        self.progress.evaluations.append((self.progress.step, found))
        of_sets = {eval_loss_of(name): loss for name, loss in self.progress.set_losses.items()}
        return self.log_evaluation({EVAL_LOSS: found, **of_sets})

    def _loss_and_tokens(self, packs: PackedDataset) -> torch.Tensor:
        """Return the sum of the losses of some packs and their trained tokens, of all processes together, fp64 [2]."""
        schedule = self.batches.schedule
        # Not args.eval_batch_size: it is that of all GPUs that this process can see, and is not smaller after an adjustment.
        share = once_in_turn(schedule, packs.packs, self.args.process_index)
        loader = self.callback_handler.eval_dataloader = self.loader(packs, share)
        sums = torch.zeros(2, device=self.args.device, dtype=torch.float64)
        with torch.no_grad():
            for batch in loader:
                inputs = self._on_device(batch)
                sums += torch.stack([self._prepared(**inputs).double(), sums.new_tensor(len(inputs["targets"]))])
                self.control = self.callback_handler.on_prediction_step(self.args, self.state, self.control)
        return self.accelerator.reduce(sums, "sum") if schedule.processes > 1 else sums


def _mean_loss(sums: Any) -> float:
    """Return the loss per trained token, of its sum and their number, [2]."""
    return float(sums[0] / sums[1].clamp(min=1.0))


def _seed_of(seed: int, step: int, rank: int) -> int:
    """Return a 63-bit number for a seed, a step and a process; neighbors have nothing in common."""
    value = (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + rank * 0x94D049BB133111EB) & (2**64 - 1)
    return int(mixed(np.array([value], np.uint64), 0)[0]) >> 1
