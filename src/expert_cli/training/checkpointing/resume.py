"""Checkpoints of a trainer: what is saved, and how a run goes on as if nothing had happened."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers.trainer_callback import ExportableState

from expert_cli.config.run_config import AUTO
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.runs.paths import RunPaths
from expert_cli.training.checkpointing import checkpoint
from expert_cli.training.checkpointing.adapter_state import adapter_parts, estimate_bytes, load_adapter
from expert_cli.training.checkpointing.checkpoint import CheckpointState
from expert_cli.training.checkpointing.resume_compatibility import require_goes_on, require_keys
from expert_cli.training.checkpointing.serialization import capture_rng, load_optimizer, restore_rng
from expert_cli.training.state import Position, TrainingState
from expert_cli.training.trainer import ExpertTrainer
from expert_cli.utils.files import parse_json, write_bytes
from expert_cli.utils.object_storage import require_folder
from expert_cli.utils.reporter import Reporter


@dataclass(frozen=True)
class Resumed:
    """The checkpoint that a run goes on from."""

    path: Path
    parts: CheckpointState


def find_checkpoint(
    folder: Path, wanted: str, identity: Mapping[str, Any], drift: Collection[str], report: Reporter
) -> Resumed | None:
    """Return the checkpoint to go on from: the newest good one in `folder` ("auto"; None without any), or the one named.

    Raises IntegrityError: a named one that fails verification, or one that belongs to a run that differs from this one.
    """
    if wanted == AUTO:
        found = checkpoint.latest_valid(folder)
        for line in found.damaged:
            report.warning(f"{line}; the one before it is used")
        path = found.path
        if path is None:
            require_keys(drift, identity)
            report.info("no checkpoint to go on from: training starts")
            return None
    else:
        path = Path(wanted)
        if not path.is_dir():
            require_folder(wanted)
            raise InputError(f"--resume {wanted}: is not a folder", 'name a folder checkpoint-N, or write "auto"')
    parts = checkpoint.read(path)
    require_goes_on(path, parts.identity, identity, drift, report)
    report.info(f"resumed   {path}: step {parts.position.step}, epoch {parts.position.epoch}")
    return Resumed(path, parts)


def save(
    trainer: ExpertTrainer, model: PeftModel, folder: Path, identity: Mapping[str, Any]
) -> checkpoint.CheckpointInfo:
    """Write a checkpoint of the step just done and remove those that are not kept."""
    progress, schedule, scaler = trainer.progress, trainer.batches.schedule, trainer.accelerator.scaler
    tensors, config = adapter_parts(model)
    epoch, within = schedule.position(progress.schedule_step)
    values = progress.as_json()
    losses = values.pop("losses")
    parts = CheckpointState(
        adapter=tensors,
        adapter_config=config,
        optimizer=trainer.optimizer.state_dict(),
        scheduler=trainer.lr_scheduler.state_dict(),
        rng=capture_rng(),
        position=Position(epoch, progress.step, within * schedule.accumulation),
        trainer={
            "progress": values,
            "scaler": scaler.state_dict() if scaler is not None else {},
            "gradients": trainer.gradients.state(),
            "batch": [schedule.batch_size, schedule.accumulation],
            "recomputes": trainer.recomputes,
            "adjusted": list(trainer.adjusted),
            "callbacks": [[type(one).__name__, one.state()] for one in _exportable(trainer)],
        },
        identity=identity,
        losses=torch.tensor(losses, dtype=torch.float64),
    )
    written = checkpoint.write(folder, progress.step, parts)
    best = {progress.best_step} if trainer.watch.load_best_model_at_end else set()
    checkpoint.rotate(folder, trainer.watch.save_total_limit, best)
    return written


def restore(trainer: ExpertTrainer, model: PeftModel, parts: CheckpointState) -> None:
    """Put a checkpoint into a prepared trainer. Raises InputError if it does not fit the adapter."""
    try:
        load_adapter(model, parts.adapter)
    except ValueError as error:
        raise InputError(
            f"the checkpoint does not fit this adapter: {error}", "train with the adapter it was made with"
        ) from error
    load_optimizer(trainer.optimizer, parts.optimizer)
    trainer.lr_scheduler.load_state_dict(dict(parts.scheduler))
    if parts.trainer["scaler"] and trainer.accelerator.scaler is not None:
        trainer.accelerator.scaler.load_state_dict(dict(parts.trainer["scaler"]))
    trainer.gradients.load(parts.trainer["gradients"])
    values = {**parts.trainer["progress"], "losses": parts.losses.tolist()}
    for name, value in vars(TrainingState.from_json(values)).items():
        setattr(trainer.progress, name, value)
    states = list(parts.trainer["callbacks"])
    for callback in _exportable(trainer):  # of several of one class each gets its own, in their order
        mine = next((kept for kept in states if kept[0] == type(callback).__name__), None)
        if mine is not None:
            states.remove(mine)
            vars(callback).update(mine[1].get("attributes", {}))
    restore_rng(parts.rng)


def load_best(trainer: ExpertTrainer, model: PeftModel, folder: Path) -> None:
    """Put the adapter of the best evaluation into the model. Its checkpoint was never rotated away."""
    path = folder / f"checkpoint-{trainer.progress.best_step}"
    if path.is_dir():
        load_adapter(model, checkpoint.read(path).adapter)


def truncate_metrics(paths: RunPaths, step: int) -> None:
    """Remove from metrics.jsonl what was logged after `step`: the run that goes on will log it again."""
    if not paths.metrics.is_file():
        return
    kept = []
    for line in paths.metrics.read_bytes().splitlines():
        try:
            if parse_json(line)["step"] <= step:
                kept.append(line + b"\n")
        except (ValueError, KeyError, TypeError):
            continue  # torn by the kill
    write_bytes(paths.metrics, b"".join(kept))


def check_disk_space(model: PeftModel, folder: Path, optimizer: str, limit: int | None, saves: int) -> None:
    """Raise EnvironmentProblem if the disk cannot hold the checkpoints that the run will keep, and one being written."""
    one = estimate_bytes(model, optimizer)
    kept = min(saves, max(checkpoint.LEAST, limit) if limit is not None else saves) + 1
    free = shutil.disk_usage(folder).free
    if free < one * kept:
        raise EnvironmentProblem(
            f"{folder}: {free / 1e9:.2f} GB are free, {kept} checkpoints of {one / 1e9:.2f} GB need {one * kept / 1e9:.2f} GB",
            "make room, give another folder with --output, or lower save_total_limit",
        )


def _exportable(trainer: ExpertTrainer) -> list[Any]:
    """Return the callbacks that have a state to keep."""
    return [one for one in trainer.callback_handler.callbacks if isinstance(one, ExportableState)]
