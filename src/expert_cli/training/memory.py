"""Makes a full step fit into the device's memory, before the first step of a new or resumed run. To try the step, it is
recorded, or else the largest micro-batch is run. If it does not fit, in this order: a smaller micro-batch is used at the same
effective batch, activations are recomputed instead of kept, the dequantized copy of 4-bit weights is dropped.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from expert_cli.config.run_config import RunConfig
from expert_cli.data.packing.batches import Schedule
from expert_cli.errors import TrainingFailed
from expert_cli.hardware.devices import is_out_of_memory
from expert_cli.model.flat_parameters import optimizer_bytes
from expert_cli.model.kernels.dequantize import DequantizedLinear, drop_packed, restore_packed
from expert_cli.model.layers import decoder_layers, enable_activation_checkpointing
from expert_cli.training.trainer import ExpertTrainer
from expert_cli.utils.distributed import all_reduce_any
from expert_cli.utils.reporter import Reporter

MARGIN = 0.02
"""The share of the device's memory that must stay free in the trial, because later steps fragment the memory."""
GAIN, ROOMY = 0.9, 0.8
"""Micro-steps are merged if this share of memory is free (ROOMY), and a pack then takes at most this share of its time."""


def fit_memory(trainer: ExpertTrainer, run: RunConfig, report: Reporter) -> None:
    """Make a full step fit; `trainer.adjusted` lists the changes. All processes do the same. Raises TrainingFailed."""
    while all_reduce_any(not _fits(trainer))[0]:
        schedule = trainer.batches.schedule
        says = f"a full step of {schedule.batch_size} packs does not fit the GPU's memory"
        if run.compute.on_oom != "fit":
            raise TrainingFailed(says, 'write "on_oom": "fit", or halve batch_size')
        if schedule.batch_size > 1:
            smaller = _smaller(schedule)
            trainer.use(smaller)
            what = _change(schedule, smaller)
        elif recompute(trainer, run):
            what = "gradient checkpointing on"
        elif all_reduce_any(restore_packed(trainer.model) > 0)[0]:
            what = "the dequantized copy of the 4-bit weights is dropped"
        else:
            raise TrainingFailed(says, "lower max_seq_length, or choose a smaller base model")
        trainer.adjusted.append(what)
        report.warning(f"a full step does not fit the GPU's memory: {what}")
    drop_packed(trainer.model)
    if run.compute.on_oom == "fit" and not all_reduce_any(trainer.captured is None)[0]:
        _merge(trainer, report)


def recompute(trainer: ExpertTrainer, run: RunConfig) -> bool:
    """Enable gradient checkpointing in every layer; return whether that changed anything."""
    if run.compute.checkpointing != "off" or trainer.recomputes:
        return False
    enable_activation_checkpointing(trainer.model.base, "all", reentrant=False)
    trainer.recomputes = True
    return True


def out_of_memory(trainer: ExpertTrainer, checkpoints: Path, go_on: str) -> TrainingFailed:
    """Return the error for a run out of memory in a later step, with the next remedy. go_on: the command that continues it."""
    kept = f"; the checkpoints in {checkpoints} are safe" if any(checkpoints.glob("checkpoint-*")) else ""
    schedule, optim = trainer.batches.schedule, trainer.optim_config
    remedy: dict[str, object] = {}
    if schedule.batch_size > 1:
        batch = _smaller(schedule).batch_size
        # As in the manifest: for the number of processes that began the run, which may differ from the number now.
        packs = optim.batch_size * optim.gradient_accumulation_steps
        remedy = {"batch_size": batch, "gradient_accumulation_steps": packs // batch}
    elif not any(layer.gradient_checkpointing for layer in decoder_layers(trainer.model.base)):
        remedy = {"gradient_checkpointing": "true"}
    elif any(isinstance(module, DequantizedLinear) for module in trainer.model.modules()):
        remedy = {"dequantized_copy": "never"}
    settings = " ".join(f"--set training.config.{key}={value}" for key, value in remedy.items())
    hint = f"continue: {go_on} {settings}" if remedy else "lower max_seq_length, or choose a smaller base model"
    return TrainingFailed(f"out of memory at step {trainer.state.global_step + 1}{kept}", hint)


def _fits(trainer: ExpertTrainer) -> bool:
    """Record or run a step, with memory reserved for the tensors of later steps; return whether it fits."""
    device, optimizer = trainer.timer.device, trainer.optim_config.optim
    device.reset_peak()
    room = device.memory()[0] + (device.held("memory_reserved") or 0)
    # paged states move to host memory
    later = 0 if "paged" in optimizer else optimizer_bytes(trainer.flat.flat, optimizer)
    later += int(MARGIN * device.memory()[1]) if device.is_gpu else 0
    try:
        held = torch.empty(later, dtype=torch.uint8, device=trainer.args.device)
        trainer.try_step()
        del held
        # Windows' driver silently moves the excess to host memory.
        return (device.held("max_memory_reserved") or 0) <= room
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        trainer.captured = None
        return False
    finally:
        trainer.flat.gradient.zero_()
        device.empty_cache()  # blocks of a failed attempt have wrong sizes; not called in the loop


def _merge(trainer: ExpertTrainer, report: Reporter) -> None:
    """Double the micro-batch at the same effective batch while the recorded step gets faster, in all processes."""
    device, asked = trainer.timer.device, trainer.batches.schedule
    while (schedule := trainer.batches.schedule).accumulation % 2 == 0:
        free, total = device.memory()
        before: Any = trainer.captured
        if all_reduce_any(free < ROOMY * total)[0]:
            break
        seconds = before.seconds(device)
        trainer.use(replace(schedule, batch_size=2 * schedule.batch_size))
        after = trainer.captured if _fits(trainer) else None
        if all_reduce_any(after is None or after.seconds(device) > GAIN * 2 * seconds)[0]:
            trainer.use(schedule)
            trainer.captured = before
            break
    used = trainer.batches.schedule
    if used != asked:
        trainer.adjusted.append(f"{_change(asked, used)}: measured as faster, at the same effective batch")
        report.info(trainer.adjusted[-1])


def _smaller(schedule: Schedule) -> Schedule:
    """Return the schedule with the next smaller micro-batch that divides the present one."""
    batch = max(n for n in range(1, schedule.batch_size) if schedule.batch_size % n == 0)
    return replace(schedule, batch_size=batch)


def _change(before: Schedule, after: Schedule) -> str:
    return f"micro-batch {before.batch_size} x {before.accumulation} -> {after.batch_size} x {after.accumulation}"
