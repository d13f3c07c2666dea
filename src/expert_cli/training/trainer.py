"""transformers' Trainer for packs: its loop and callbacks, with a training step that does not wait for the host.

    data -> buffers -> forward, backward (recorded once and replayed, or eager) -> all-reduce, clip -> optimizer

Overridden methods load packs by epoch, count trained tokens on the CPU before anything is copied, run the step
(captured_step.py), use one flat gradient buffer whose norms are read later, and write verified checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR
from torch.utils.data import DataLoader, Dataset
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback
from transformers.integrations.neftune import activate_neftune

from expert_cli.data.packing.batches import Batch, Collator, FixedShape, PackedBatchSampler, Schedule, once_in_turn
from expert_cli.data.packing.packed_dataset import PackedDataset
from expert_cli.errors import InputError, TrainingFailed
from expert_cli.hardware.devices import device_of, is_out_of_memory
from expert_cli.manifest.keys.log_save_eval import EVAL_LOSS, EXECUTION_ACCURACY, LogSaveEvalConfig
from expert_cli.manifest.keys.optim import OptimConfig
from expert_cli.model.flat_parameters import FlatParameters
from expert_cli.model.kernels.lora import refresh_norms
from expert_cli.model.layers import has_dropout, set_checkpointing
from expert_cli.runs.signals import leave_signals
from expert_cli.training.captured_step import CapturedAdamW, CapturedStep, Recorded
from expert_cli.training.health import TrainingHealth, TrainingState
from expert_cli.training.step_timer import StepTimer
from expert_cli.utils.distributed import all_reduce_sum, broadcast_rank0
from expert_cli.utils.text import first_line


class ExpertTrainer(Trainer):
    """Trains a `CausalLoss` on packs. `progress` keeps the loss of every step; only `checkpoints` writes files.

    captured: the recorded step; None: all steps are eager. adjusted: the changes that made the step fit, in words.
    """

    model: Any
    optimizer: Any
    lr_scheduler: Any
    train_dataset: Any
    eval_dataset: Any
    data_collator: Collator

    def __init__(
        self,
        *,
        optim_config: OptimConfig,
        watch: LogSaveEvalConfig,
        batches: PackedBatchSampler,
        checkpoints: Any = None,
        shape_of: Callable[[Schedule], FixedShape | None] = lambda _: None,
        graphs: Any = None,
        accuracy: Callable[[], float] = lambda: 0.0,
        **kwargs: Any,
    ) -> None:
        """Take the arguments that the Trainer does not have; kwargs are the Trainer's.

        batches: yields the packs of every micro-step of an epoch. checkpoints: writes and reads checkpoints
        (`checkpoint.Checkpoints`). shape_of: returns the shape that micro-batches are padded to; None: no fixed shape. graphs:
        records the step (captured_step.py); None: all steps are eager. accuracy: lets the model answer cases, and returns the
        share of right answers.
        """
        super().__init__(**kwargs)
        self.optim_config, self.watch, self.batches = optim_config, watch, batches
        self.checkpoints, self._shape_of, self._accuracy = checkpoints, shape_of, accuracy
        self.progress = TrainingState()
        self.timer = StepTimer(device_of(self.args.device))
        self.flat = FlatParameters(self.model.named_parameters())
        self.model.gradient = self.flat.gradient
        self.model.train()  # `from_pretrained` leaves it in eval mode, without NEFTune and gradient checkpointing
        scaled = self.accelerator.scaler is not None
        self.health = TrainingHealth(self.progress, self.flat, self._documents, scaled=scaled)
        self.graphs, self.not_captured, self.recomputes = graphs, "", False
        self.captured: CapturedStep | None = None
        self.adjusted: list[str] = []
        self.add_callback(AfterUpdate(self))
        self._step_loss = torch.zeros((), device=self.args.device)
        self._counted: dict[str, int] = {}
        if batches.schedule.processes > 1:
            torch.distributed.broadcast(self.flat.flat.data, src=0)
        self.use(batches.schedule)

    def use(self, schedule: Schedule) -> None:
        """Set a schedule, which may divide the packs of a step differently; to be called before training."""
        self.batches.schedule = schedule
        torch.compiler.reset()  # layers compiled for another shape would be recompiled with dynamic shapes
        self.data_collator = replace(self.data_collator, shape=self._shape_of(schedule))
        alpha, merged = self.optim_config.neftune_noise_alpha, self.data_collator.layout == "packed"
        # NEFTune divides alpha by the root of the row's length; in a concatenated row, each pack's length counts
        self.neftune_noise_alpha = alpha and alpha * (schedule.batch_size if merged else 1) ** 0.5
        self.args.max_steps = schedule.steps
        self.args.per_device_train_batch_size = self._train_batch_size = schedule.batch_size
        self.args.gradient_accumulation_steps = schedule.accumulation

    def try_step(self) -> None:
        """Record the step if graphs are used; else run the largest micro-batch. Raises torch's errors."""
        if self.graphs is not None and self._capture():
            return
        self.accelerator.backward(self.model(**self._largest_batch()))

    def _largest_batch(self) -> Batch:
        """Return a micro-batch, on the device, that needs the most memory; with a fixed shape all need the same."""
        shape = self.data_collator.shape
        if shape is None:
            packs = self.train_dataset.longest(self.batches.schedule.batch_size)
            return self.on_device(self.data_collator([self.train_dataset[0, number] for number in packs]))
        return self.on_device(self.data_collator([self.train_dataset[place] for place in next(iter(self.batches))]))

    def _capture(self) -> bool:
        """Record and verify the step; return whether it worked. If not, all steps are eager, and `not_captured` says why."""
        self.captured, batch = None, self._largest_batch()
        self.model.train()
        # Recomputed layers with dropout read the random state, which a recording forbids (pytorch issue 162504).
        kept = has_dropout(self.model) and set_checkpointing(self.model.base, on=False)
        noise = activate_neftune(self.model, self.neftune_noise_alpha) if self.neftune_noise_alpha else None
        try:
            self.captured = CapturedStep(self.model, self.flat.gradient, batch, self.graphs, self.args.seed)
        except Exception as error:  # after any error of a card or driver, the run continues eagerly
            if is_out_of_memory(error) and not kept:
                raise
            self.graphs, self.not_captured = None, first_line(error)
            if kept:
                set_checkpointing(self.model.base, on=True)
        finally:
            if noise is not None:
                noise.remove()
        if kept and self.captured is not None:
            self.adjusted.append("gradient checkpointing off: with dropout it cannot be recorded, and the step fits")
        return self.captured is not None

    # data

    def get_train_dataloader(self) -> DataLoader[Batch]:
        """Return the loader of an epoch's batches; its `set_epoch` sets the epoch."""
        return self.loader(self.train_dataset, self.batches, self.data_collator)

    def loader(self, dataset: Dataset[Any], batches: PackedBatchSampler, collate: Collator) -> DataLoader[Batch]:
        """Return a loader with the manifest's settings; its workers live as long as it does, across epochs."""
        workers = self.args.dataloader_num_workers
        loader: Any = DataLoader(
            dataset,
            batch_sampler=batches,
            collate_fn=collate,
            num_workers=workers,
            pin_memory=self.args.dataloader_pin_memory and self.timer.device.is_gpu,
            prefetch_factor=self.args.dataloader_prefetch_factor if workers else None,
            persistent_workers=workers > 0,
            worker_init_fn=leave_signals,
        )
        loader.set_epoch = batches.set_epoch  # called by the Trainer
        return loader  # type: ignore[no-any-return]

    def get_batch_samples(
        self, epoch_iterator: Iterator[Batch], num_batches: int, device: Any
    ) -> tuple[list[Batch], int]:
        """Return the micro-batches of a step, and the trained tokens of all processes in it."""
        with self.timer.phase("data"):
            batches = [next(epoch_iterator) for _ in range(num_batches)]
        counts = ((batch["trained_tokens"], batch["real_tokens"], batch["input_ids"].numel()) for batch in batches)
        trained, real, places = all_reduce_sum(*map(sum, zip(*counts, strict=True)))
        self._counted = {"trained": trained, "real": real, "padded": places - real}
        if not trained:
            told = f"step {self.state.global_step + 1} trains no token; {self._documents(self.state.global_step)}"
            raise TrainingFailed(told, "raise max_seq_length: answers are cut off, or are empty")
        return batches, trained

    def on_device(self, batch: Batch) -> Batch:
        """Return the inputs that a batch has for the model, on its device."""
        return {
            name: value.to(self.args.device, non_blocking=True) if isinstance(value, torch.Tensor) else value
            for name, value in batch.items()
            if name not in ("real_tokens", "trained_tokens")
        }

    # a step

    def training_step(self, model: Any, inputs: Batch, num_items_in_batch: Any = None) -> torch.Tensor:
        """Add the gradients of a micro-batch; return its share of the step's loss."""
        if self.captured is not None:
            with self.timer.phase("host_to_device"):
                self.captured.take(inputs, self.batches.schedule.processes / num_items_in_batch)
            with self.timer.phase("captured"):
                loss = self.captured.replay()
        else:
            with self.timer.phase("host_to_device"):
                inputs = self.on_device(inputs)
            with self.timer.phase("forward"):
                loss = self.compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)
            with self.timer.phase("backward"):
                self.accelerator.backward(loss)
            loss = loss.detach()
        self._step_loss += loss
        return loss

    def compute_loss(self, model: Any, inputs: Batch, num_items_in_batch: Any = None, **_: Any) -> torch.Tensor:  # type: ignore[override]
        """Return a micro-batch's share of the step's loss per trained token; processes average it."""
        loss: torch.Tensor = model(**inputs) * (self.batches.schedule.processes / num_items_in_batch)
        return loss

    def _clip_grad_norm(self, model: Any) -> torch.Tensor:
        """Average over processes, clip, and record the step's values; return the norm before clipping, on the device."""
        self.timer.begin("optimizer")
        if (processes := self.batches.schedule.processes) > 1:
            for tensor in (self.flat.gradient, self._step_loss):
                torch.distributed.all_reduce(tensor)
                tensor.div_(processes)
        if self.accelerator.scaler is not None:
            self.accelerator.unscale_gradients(self.optimizer)
        norms: torch.Tensor = self._clip()
        for name, count in self._counted.items():
            setattr(self.progress, name, getattr(self.progress, name) + count)
        self.health.record(torch.cat([self._step_loss.unsqueeze(0), norms]))
        self._step_loss.zero_()
        return norms[0]

    def _get_grad_norm(self, model: Any, grad_norm: torch.Tensor | None = None) -> torch.Tensor:
        """Return the norm; with `max_grad_norm` 0 it has not been computed yet."""
        return self._clip_grad_norm(model) if grad_norm is None else grad_norm

    def _documents(self, step: int) -> str:
        """Name the documents of an optimizer step (from 0)."""
        epoch, taken = self.batches.packs_of(step)
        plan = self.train_dataset.plan(epoch)
        rows = sorted({row for number in taken.tolist() for row in plan.pack(number).documents.tolist()})
        more = f" and {len(rows) - 12} more" if len(rows) > 12 else ""
        return f"its documents (counted from 0): {', '.join(map(str, rows[:12]))}{more}"

    # optimizer and schedule

    def _init_training_state(
        self, max_steps: int, steps_per_epoch: int, epochs: int, *settings: Any
    ) -> tuple[int, int]:
        """Return the epochs and micro-steps done; all epochs for a finished run, because the Trainer would do another step."""
        done: tuple[int, int] = super()._init_training_state(max_steps, steps_per_epoch, epochs, *settings)
        best, loads, resumed = self.state.best_global_step, self.args.load_best_model_at_end, self.checkpoints.resumed
        if best and resumed:
            # the run may have been moved
            self.state.best_model_checkpoint = f"{self.args.output_dir}/checkpoint-{best}"
            is_gone = loads and self.checkpoints.place_of(best) is None  # deleted when a later step was better
            chosen_by = (resumed.state["identity"].get("best model") or {}).get("metric")
            if is_gone or chosen_by != self.watch.metric:
                self.state.best_global_step = self.state.best_metric = self.state.best_model_checkpoint = None
        for one in self._early_stopping:
            one.early_stopping_patience = self.watch.early_stopping_patience  # not the checkpoint's
        return (epochs, 0) if self.state.global_step >= max_steps or self.stopped_early else done

    @property
    def stopped_early(self) -> bool:
        """Whether early stopping has ended the run: none of the last `early_stopping_patience` evaluations was better."""
        return any(one.early_stopping_patience_counter >= one.early_stopping_patience for one in self._early_stopping)

    @property
    def _early_stopping(self) -> list[EarlyStoppingCallback]:
        return [one for one in self.callback_handler.callbacks if isinstance(one, EarlyStoppingCallback)]

    def _prepare_for_training(self, *settings: Any) -> tuple[Any, Any]:
        """Prepare clipping and DoRA's norms; give callbacks the actual model, not the module that returns its loss."""
        model, graphs = self.model.model, self.graphs
        self._clip = Recorded(partial(self.flat.clip, self.args.max_grad_norm), graphs)
        self.refresh = Recorded(partial(refresh_norms, model), graphs if getattr(model, "dora_layers", []) else None)
        prepared: tuple[Any, Any] = super()._prepare_for_training(*settings)  # type: ignore[no-untyped-call]
        self.callback_handler.model = model
        return prepared

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Create the optimizer for the flat buffer; for Adafactor, which needs rows and columns, for the tensors."""
        kind, settings = self.get_optimizer_cls_and_kwargs(self.args, model or self.model)
        settings["weight_decay"] = self.args.weight_decay
        if kind is torch.optim.AdamW and self.captured is not None:
            kind = partial(CapturedAdamW, graphs=self.graphs)
        by_shape = self.optim_config.optim == "adafactor"
        self.optimizer = kind(self.flat.parameters if by_shape else [self.flat.flat], **settings)
        return self.optimizer  # type: ignore[no-any-return]

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LRScheduler:
        """Create the learning-rate schedule; transformers lacks one_cycle, which rises and falls within the steps."""
        kind, given = self.optim_config.scheduler, dict(self.optim_config.scheduler_kwargs)
        try:
            if kind != "one_cycle":
                return super().create_scheduler(num_training_steps, optimizer)
            warmup = self.args.get_warmup_steps(num_training_steps) / num_training_steps
            settings: dict[str, Any] = {"pct_start": min(1.0, warmup) or 0.3, "cycle_momentum": False, **given}
            rate, steps = self.args.learning_rate, num_training_steps + 1
            self.lr_scheduler = OneCycleLR(optimizer or self.optimizer, max_lr=rate, total_steps=steps, **settings)
        except (TypeError, ValueError, ArithmeticError) as error:  # a setting is missing or invalid
            told = f"lr_scheduler {kind} with lr_scheduler_kwargs {given}: {first_line(error)}"
            raise InputError(told, "set them as transformers' schedule of this name takes them") from error
        self._created_lr_scheduler = True
        return self.lr_scheduler  # type: ignore[no-any-return]

    # evaluation

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Return and log the loss per trained token of the validation packs, and the share of cases answered right."""
        self.health.flush()
        metrics: dict[str, float] = {}
        with self.timer.phase("eval"):
            if self.eval_dataset:
                self.model.eval()
                loss, tokens = self._loss_and_tokens(self.eval_dataset).tolist()
                self.model.train()
                metrics[EVAL_LOSS] = loss / max(tokens, 1.0)
            if self.watch.answers:
                metrics[f"eval_{EXECUTION_ACCURACY}"] = broadcast_rank0(self._accuracy)
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _loss_and_tokens(self, packs: PackedDataset) -> Any:
        """Return the summed loss of some packs and their trained tokens, over all processes, fp64 [2]."""
        schedule = self.batches.schedule
        share = once_in_turn(schedule, len(packs), self.args.process_index)
        collate = self.data_collator if self.captured is None else replace(self.data_collator, shape=None)
        loader = self.callback_handler.eval_dataloader = self.loader(packs, share, collate)
        sums = torch.zeros(2, device=self.args.device, dtype=torch.float64)
        with torch.no_grad():
            for batch in loader:
                sums[0] += self.model(**self.on_device(batch))
                sums[1] += batch["trained_tokens"]
                self.control = self.callback_handler.on_prediction_step(self.args, self.state, self.control)
        if schedule.processes > 1:
            torch.distributed.all_reduce(sums)
        return sums

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Return whether to save after an evaluation; with load_best_model_at_end, a better step is saved at once."""
        asked = self.control.should_save
        is_better = super()._determine_best_metric(metrics, trial)
        if is_better:
            self.state.best_global_step = self.state.global_step  # with any save_strategy
        self.control.should_save = asked or (is_better and self.args.load_best_model_at_end)
        return self.control.should_save  # save_strategy "best" uses the returned value

    # checkpoints

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint after the current step, once its values are known to be good."""
        self.health.flush()
        if self.args.load_best_model_at_end and self.state.best_global_step:
            self.state.best_model_checkpoint = f"{self.args.output_dir}/checkpoint-{self.state.best_global_step}"
        with self.timer.phase("checkpoint"):
            if self.args.process_index == 0:
                self.checkpoints.save(self)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Restore the checkpoint into adapter, optimizer and schedule, which all exist by now."""
        if checkpoint is not None:
            self.checkpoints.restore(self)
            refresh_norms(self.model.model)

    def _load_from_checkpoint(self, *_: Any, **__: Any) -> None:
        """Do nothing: `_load_optimizer_and_scheduler` restores the checkpoint."""

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Do nothing: every step seeds itself."""

    def _load_best_model(self) -> None:
        """Load the adapter of the best evaluation, whose checkpoint is never deleted."""
        self.checkpoints.load_best(self)
        refresh_norms(self.model.model)


class AfterUpdate(TrainerCallback):
    """Recomputes DoRA's norms after every optimizer step."""

    def __init__(self, trainer: ExpertTrainer) -> None:
        """Take the trainer."""
        self.trainer = trainer

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Recompute the norms, and end the phase that clipping began."""
        self.trainer.refresh()
        self.trainer.timer.end()
