"""Does a full step fit the device's memory? Asked before the first step of a run, and of one that goes on, perhaps on another
card, with the largest micro-batch there will be. What is given up for it, in this order:

    merging     of micro-steps that would otherwise wait for their kernels to be launched
    copy        of 4-bit weights, which costs time alone
    micro-batch halved at the same effective batch
    activations recomputed instead of kept
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from expert_cli.config.run_config import RunConfig
from expert_cli.data.packing.dataset import PackedDataset, Place
from expert_cli.data.packing.step_schedule import Schedule
from expert_cli.errors import TrainingFailed
from expert_cli.hardware.devices import Device
from expert_cli.manifest.keys.compute import Checkpointing
from expert_cli.model.activation_checkpointing import decoder_layers, enable_activation_checkpointing
from expert_cli.model.kernels.compiled_layers import compile_anew
from expert_cli.model.kernels.dequantize import DequantizedLinear, drop_packed, restore_packed
from expert_cli.training.checkpointing.adapter_state import optimizer_bytes
from expert_cli.training.checkpointing.checkpoint import CheckpointState
from expert_cli.training.checkpointing.resume_compatibility import MICRO_BATCH
from expert_cli.training.micro_batch import merged_words, smaller
from expert_cli.training.trainer import ExpertTrainer
from expert_cli.utils.distributed import all_reduce_any
from expert_cli.utils.out_of_memory import is_out_of_memory
from expert_cli.utils.reporter import Reporter

MARGIN = 0.02
"""Of the device's memory, this much must be left over in the step that is tried: later ones fragment it."""


def largest_packs(dataset: PackedDataset, count: int) -> list[Place]:
    """Return the places of the `count` longest packs of the first epoch."""
    return [(0, number) for number in dataset.packs.longest(count)]


def largest_batch_fits(trainer: ExpertTrainer) -> bool:
    """Run forward and backward on the largest micro-batch of the present schedule; return whether it fitted.

    Beside it lies what later steps hold and the first does not. Nothing is left of it: gradients are dropped, and every
    training step seeds its own random numbers.
    """
    dataset: Any = trainer.train_dataset
    packs = [dataset[pack] for pack in largest_packs(dataset, trainer.batches.schedule.batch_size)]
    device = trainer.timer.device
    room = _room(device)
    try:
        with _as_in_later_steps(trainer):
            trainer.dry_run_step(trainer.collate(packs))
        # Windows' driver moves what is too much to the host's memory without a word.
        return (device.held("max_memory_reserved") or 0) <= room
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return False
    finally:
        trainer.gradients.zero_grad()
        device.empty_cache()  # the failed attempt's blocks have the wrong sizes; not in the loop


def recompute_all(trainer: ExpertTrainer, asked: Checkpointing) -> bool:
    """Switch activation checkpointing on in every layer; return whether that changed anything. asked: by the manifest."""
    if asked != "off" or trainer.recomputes:
        return False
    enable_activation_checkpointing(trainer.model.base, "all", reentrant=False)
    trainer.recomputes = True
    return True


def adjust_to_memory(
    trainer: ExpertTrainer, run: RunConfig, before: CheckpointState | None, merged: Schedule, report: Reporter
) -> None:
    """Make a full step fit before the first one. before: the checkpoint that the run goes on from, perhaps on a smaller card.

    merged: the schedule with larger micro-steps that is taken where it fits. Raises TrainingFailed as `fit_memory` does.
    """
    asked = trainer.batches.schedule
    if before is not None:
        _adjust_as_before(trainer, before, run)
    if not trainer.timer.on_gpu or run.compute.fsdp:
        return
    if trainer.batches.schedule == asked:
        trainer.batches.schedule = merged
    switch_on = partial(recompute_all, trainer, run.compute.checkpointing)
    fit_memory(trainer, switch_on, report, may_adjust=run.compute.on_oom == "fit")
    used = trainer.batches.schedule
    if words := merged_words((asked.batch_size, asked.accumulation), (used.batch_size, used.accumulation)):
        report.info(words)


def _adjust_as_before(trainer: ExpertTrainer, before: CheckpointState, run: RunConfig) -> None:
    """Give up again what the run that wrote a checkpoint had given up; not a micro-batch that is now asked for otherwise.

    Whether micro-steps are merged is decided anew.
    """
    told, optim, schedule = before.trainer, run.optim, trainer.batches.schedule
    batch, asked_alike = (
        int(told["batch"][0]),
        all(getattr(optim, key) == before.identity[f"optim.{key}"] for key in MICRO_BATCH),
    )
    if batch <= optim.batch_size and asked_alike:
        trainer.batches.schedule = replace(schedule, batch_size=batch)
        trainer.adjusted = list(told["adjusted"])
    if told["recomputes"]:
        recompute_all(trainer, run.compute.checkpointing)


def fit_memory(
    trainer: ExpertTrainer, recompute_all: Callable[[], bool], report: Reporter, *, may_adjust: bool
) -> None:
    """Make a full step fit; what was given up is added to the trainer's `adjusted`, in words. All processes do the same.

    recompute_all: switches checkpointing on and returns whether it was off. Raises TrainingFailed when nothing more can be
    done, or nothing may (`may_adjust`).
    """
    asked = trainer.optim_config.batch_size
    while all_reduce_any(not largest_batch_fits(trainer))[0]:
        schedule = trainer.batches.schedule
        if schedule.batch_size > asked:  # merged: nothing is given up
            _split(trainer, asked)
            continue
        if not may_adjust:
            raise TrainingFailed(*_does_not_fit(schedule, 'write "on_oom": "fit", or halve batch_size'))
        if all_reduce_any(restore_packed(trainer.model) > 0)[0]:
            what = "the unpacked copy of the 4-bit weights is given back"
        elif schedule.batch_size > 1:
            sizes = [f"{one.batch_size} x {one.accumulation}" for one in (schedule, _split(trainer))]
            what = f"micro-batch {' -> '.join(sizes)}"
        elif recompute_all():
            what = "gradient checkpointing on"
        else:
            raise TrainingFailed(*_does_not_fit(schedule, "lower max_seq_length, or choose a smaller base model"))
        if what not in trainer.adjusted:
            trainer.adjusted.append(what)
        report.warning(f"a full step does not fit the GPU's memory: {what}")
    drop_packed(trainer.model)


def out_of_memory(trainer: ExpertTrainer, checkpoints: Path, go_on: str) -> TrainingFailed:
    """Return the error of a run whose memory ran out in a later step. go_on: the command that goes on with it.

    Its hint is that command with the next thing to give up.
    """
    kept = f"; the checkpoints in {checkpoints} are safe" if any(checkpoints.glob("checkpoint-*")) else ""
    remedy = _next_to_give_up(trainer)
    settings = " ".join(f"--set training.config.{key}={value}" for key, value in remedy.items())
    hint = f"go on: {go_on} {settings}" if remedy else "lower max_seq_length, or choose a smaller base model"
    return TrainingFailed(f"out of memory at step {trainer.progress.step + 1}{kept}", hint)


def _next_to_give_up(trainer: ExpertTrainer) -> dict[str, object]:
    """Return the settings of a run that needs less memory than this one; none where there are none."""
    schedule = trainer.batches.schedule
    if schedule.batch_size > trainer.optim_config.batch_size:
        return {"on_oom": "error"}  # with which micro-steps are not merged
    if any(isinstance(module, DequantizedLinear) for module in trainer.model.modules()):
        return {"dequantized_copy": "never"}
    if schedule.batch_size > 1:
        batch, optim = smaller(schedule).batch_size, trainer.optim_config
        # As it is written, which the processes that began the run are counted by; others may train now.
        packs = optim.batch_size * optim.gradient_accumulation_steps
        return {"batch_size": batch, "gradient_accumulation_steps": packs // batch}
    if not any(layer.gradient_checkpointing for layer in decoder_layers(trainer.model.base)):
        return {"gradient_checkpointing": "true"}
    return {}


@contextmanager
def _as_in_later_steps(trainer: ExpertTrainer) -> Iterator[None]:
    """Hold what the steps after the first one do: gradients of earlier micro-steps, the optimizer's state, and a margin."""
    parameters, device = trainer.gradients.parameters, trainer.args.device
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer = trainer.optim_config.optim
    is_there = bool(trainer.optimizer.state) or "paged" in optimizer  # which gives way to the host's memory
    missing = 0 if is_there else sum(optimizer_bytes(parameter, optimizer) for parameter in parameters)
    if trainer.timer.on_gpu:
        missing += int(MARGIN * trainer.timer.device.memory()[1])
    held = torch.empty(missing, dtype=torch.uint8, device=device)
    yield
    del held


def _room(device: Device) -> int:
    """Return the bytes that are there for this process's tensors, and begin to count the most of them anew."""
    device.reset_peak()
    return device.memory()[0] + (device.held("memory_reserved") or 0)


def _split(trainer: ExpertTrainer, unit: int = 1) -> Schedule:
    """Take the next smaller micro-batch that is a multiple of `unit`, and return the schedule."""
    schedule = trainer.batches.schedule = smaller(trainer.batches.schedule, unit)
    compile_anew(trainer.model.base)
    return schedule


def _does_not_fit(schedule: Schedule, hint: str) -> tuple[str, str]:
    return f"a full step of {schedule.batch_size} packs does not fit the GPU's memory", hint
