"""Does a full step fit the GPU? Asked once, before the first one, with the largest micro-batch there will be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from expert_cli.data.packing.dataset import PackedDataset, Place
from expert_cli.data.packing.step_schedule import Schedule
from expert_cli.errors import TrainingFailed
from expert_cli.manifest.keys.compute import Checkpointing
from expert_cli.model.activation_checkpointing import enable_activation_checkpointing
from expert_cli.training.trainer import ExpertTrainer
from expert_cli.utils.reporter import Reporter


def largest_packs(dataset: PackedDataset, count: int) -> list[Place]:
    """Return the places of the `count` longest packs of the first epoch."""
    return [(0, pack) for pack in np.argsort(-dataset.packs.of(0).lengths, kind="stable")[:count].tolist()]


def largest_batch_fits(trainer: ExpertTrainer) -> bool:
    """Run forward and backward on the largest micro-batch of the present schedule; return whether it fitted.

    Nothing is left of it: gradients are dropped, and every training step seeds its own random numbers.
    """
    dataset: Any = trainer.train_dataset
    packs = [dataset[pack] for pack in largest_packs(dataset, trainer.batches.schedule.batch_size)]
    try:
        trainer.dry_run_step(trainer.data_collator(packs))
    except torch.OutOfMemoryError:
        return False
    finally:
        trainer.gradients.zero_grad()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # the failed attempt's blocks have the wrong sizes; not in the loop
    return True


def recompute_all(trainer: ExpertTrainer, asked: Checkpointing) -> bool:
    """Switch activation checkpointing on in every layer; return whether that changed anything. asked: by the manifest."""
    if asked != "off" or trainer.recomputes:
        return False
    enable_activation_checkpointing(trainer.model.base, "all", reentrant=False)
    trainer.recomputes = True
    return True


def fit_memory(
    trainer: ExpertTrainer, recompute_all: Callable[[], bool], report: Reporter, *, may_adjust: bool
) -> list[str]:
    """Make a full step fit: smaller micro-batches at the same effective batch, then activation checkpointing.

    recompute_all: switches checkpointing on and returns whether it was off. Returns what was adjusted, in words.
    Raises TrainingFailed when nothing more can be done, or nothing may (`may_adjust`).
    """
    adjusted: list[str] = []
    while not all_reduce_any(trainer, fits=largest_batch_fits(trainer)):
        schedule = trainer.batches.schedule
        if not may_adjust:
            raise TrainingFailed(*_does_not_fit(schedule, 'write "on_oom": "fit", or halve batch_size'))
        if schedule.batch_size > 1:
            smaller = _smaller(schedule)
            trainer.batches.schedule = smaller
            adjusted.append(
                f"micro-batch {schedule.batch_size} x {schedule.accumulation} -> {smaller.batch_size} x {smaller.accumulation}"
            )
        elif recompute_all():
            adjusted.append("gradient checkpointing on")
        else:
            raise TrainingFailed(*_does_not_fit(schedule, "lower max_seq_length, or choose a smaller base model"))
        report.warning(f"a full step does not fit the GPU's memory: {adjusted[-1]}")
    return adjusted


def _smaller(schedule: Schedule) -> Schedule:
    """Return the schedule with the next smaller micro-batch that divides the present one; the effective batch is kept."""
    batch = max(n for n in range(1, schedule.batch_size) if schedule.batch_size % n == 0)
    return replace(schedule, batch_size=batch, accumulation=schedule.accumulation * schedule.batch_size // batch)


def all_reduce_any(trainer: ExpertTrainer, *, fits: bool) -> bool:
    """Whether it fits on every process: all must take the same micro-batches."""
    if trainer.batches.schedule.processes == 1:
        return fits
    failed = torch.tensor(0 if fits else 1, device=trainer.args.device)
    return int(trainer.accelerator.reduce(failed, "sum")) == 0


def _does_not_fit(schedule: Schedule, hint: str) -> tuple[str, str]:
    return f"a full step of {schedule.batch_size} packs does not fit the GPU's memory", hint
