"""Hand model and documents to the Trainer and let it run."""

from __future__ import annotations

import time
from typing import Any

import torch
from peft import PeftModel
from transformers import EarlyStoppingCallback, PrinterCallback, TrainerCallback
from transformers.integrations import TensorBoardCallback

from expert_cli.console import Reporter
from expert_cli.data.loader import Collator, PackedDataset
from expert_cli.errors import TrainingFailed
from expert_cli.model.adapter import magnitudes
from expert_cli.paths import RunPaths
from expert_cli.runconfig import RunConfig
from expert_cli.training.arguments import training_arguments
from expert_cli.training.callbacks import Watcher
from expert_cli.training.result import FitResult
from expert_cli.training.trainer import ExpertTrainer


def fit(
    model: PeftModel,
    train: PackedDataset,
    validation: PackedDataset | None,
    *,
    pad_id: int,
    run: RunConfig,
    paths: RunPaths,
    report: Reporter,
) -> FitResult:
    """Train the adapter in place. Raises TrainingFailed: loss not finite, out of memory, a DoRA magnitude that stands still."""
    arguments = training_arguments(run, paths.checkpoints)
    arguments.report_to = [name for name in arguments.report_to if name != "tensorboard"]
    trainer = ExpertTrainer(
        optim_config=run.optim,
        group_by_length=run.loader.group_by_length,
        model=model,
        args=arguments,
        train_dataset=train,
        eval_dataset=validation,
        data_collator=Collator(pad_id),
        callbacks=_callbacks(run, paths),
    )
    trainer.remove_callback(PrinterCallback)
    before = magnitudes(model)
    with report.progress("training", _total_steps(trainer, run), "steps") as bar:
        watcher = Watcher(trainer.record, paths.metrics, bar)
        trainer.add_callback(watcher)
        started = time.monotonic()
        _train(trainer)
        seconds = time.monotonic() - started
    warmup_steps = arguments.get_warmup_steps(trainer.state.max_steps)
    if trainer.state.global_step > warmup_steps + 1:
        _require_moved(model, before)
    return _result(trainer, watcher, seconds)


def _callbacks(run: RunConfig, paths: RunPaths) -> list[TrainerCallback]:
    callbacks: list[TrainerCallback] = []
    if "tensorboard" in run.watch.report_to:
        from torch.utils.tensorboard import SummaryWriter

        callbacks.append(TensorBoardCallback(SummaryWriter(log_dir=str(paths.tensorboard))))
    if run.watch.early_stopping_patience:
        callbacks.append(EarlyStoppingCallback(run.watch.early_stopping_patience))
    return callbacks


def _total_steps(trainer: ExpertTrainer, run: RunConfig) -> int:
    if run.optim.max_steps > 0:
        return run.optim.max_steps
    micro_steps = len(trainer.get_train_dataloader())
    steps_an_epoch = max(1, -(-micro_steps // run.optim.gradient_accumulation_steps))
    return max(1, int(-(-steps_an_epoch * run.optim.epochs // 1)))


def _train(trainer: ExpertTrainer) -> None:
    try:
        trainer.train()
    except torch.OutOfMemoryError as error:
        hint = "halve batch_size and double gradient_accumulation_steps, or set gradient_checkpointing: true"
        raise TrainingFailed(f"out of GPU memory at step {trainer.state.global_step + 1}", hint) from error


def _require_moved(model: PeftModel, before: dict[str, torch.Tensor]) -> None:
    """DoRA's magnitudes must have moved; in bf16 they would not, and nothing else would tell."""
    after: dict[str, Any] = magnitudes(model)
    still = [name for name, old in before.items() if torch.equal(old, after[name])]
    if before and len(still) == len(before):
        message = f"none of the {len(before)} DoRA magnitude vectors moved"
        raise TrainingFailed(message, "raise learning_rate, or train longer than the warm-up")


def _result(trainer: ExpertTrainer, watcher: Watcher, seconds: float) -> FitResult:
    record = trainer.record
    evaluations = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    gpu_peak = torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else 0.0
    return FitResult(
        steps=trainer.state.global_step,
        epochs=float(trainer.state.epoch or 0.0),
        losses=tuple(torch.stack(record.losses).float().tolist()),
        eval_loss=evaluations[-1] if evaluations else None,
        real_tokens=int(record.real),
        trained_tokens=int(record.trained),
        padded_tokens=record.padded - int(record.real),
        seconds=seconds,
        peak_memory_mb=gpu_peak or watcher.peak_memory_mb,
    )
