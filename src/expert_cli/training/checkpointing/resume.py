"""Checkpoints of a trainer: what is saved, and how a run goes on as if nothing had happened."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerState
from transformers.trainer_callback import ExportableState

from expert_cli.config.run_config import AUTO
from expert_cli.config.run_identity import require_goes_on, require_keys
from expert_cli.errors import InputError
from expert_cli.model.adapter import adapter_parts, load_adapter
from expert_cli.runs.status import RunStatus
from expert_cli.training.checkpointing import checkpoint
from expert_cli.training.checkpointing.checkpoint import CheckpointState
from expert_cli.training.checkpointing.optimizer_state import load_optimizer, optimizer_parts
from expert_cli.training.trainer import ExpertTrainer
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
    require_goes_on(path, parts.state["identity"], identity, drift, report)
    at = parts.trainer_state
    report.info(f"resumed   {path}: step {at['global_step']}, epoch {int(at['epoch'] or 0)}")
    return Resumed(path, parts)


@dataclass(frozen=True)
class Checkpoints:
    """Writes the checkpoints of a run, and puts one into its trainer.

    identity: what a run that goes on must have in common with this one. resumed: what this one goes on from. status: is told
    how far the run is.
    """

    folder: Path
    identity: Mapping[str, Any]
    resumed: Resumed | None
    status: RunStatus

    def save(self, trainer: ExpertTrainer) -> None:
        """Write a checkpoint of the step just done and remove those that are not kept."""
        state, scaler, schedule = trainer.state, trainer.accelerator.scaler, trainer.lr_scheduler
        optimizer = trainer.optimizer.optimizer  # accelerate has wrapped it
        adapter, config = adapter_parts(trainer.model.model)
        tensors, numbers = optimizer_parts(optimizer)
        progress = vars(trainer.progress)
        parts: list[Any] = [*trainer.callback_handler.callbacks, trainer.control]
        exportable: list[Any] = [one for one in parts if isinstance(one, ExportableState)]
        callbacks = TrainerState(stateful_callbacks=exportable)
        written = CheckpointState(
            adapter=adapter,
            adapter_config=config,
            tensors={**tensors, "losses": torch.tensor(progress["losses"], dtype=torch.float64)},
            state={
                "identity": self.identity,
                "optimizer": numbers,
                "learning_rates": [group["lr"] for group in optimizer.param_groups],
                "scheduler": schedule.state_dict(),
                "scaler": scaler.state_dict() if scaler is not None else {},
                "progress": {name: value for name, value in progress.items() if name != "losses"},
                "gradients": trainer.flat.state(),
                "batch_size": trainer.batches.schedule.batch_size,
                "recomputes": trainer.recomputes,
                "adjusted": list(trainer.adjusted),
            },
            trainer_state=asdict(replace(state, stateful_callbacks=callbacks.stateful_callbacks)),
        )
        checkpoint.write(self.folder, state.global_step, written)
        best = {state.best_global_step} if trainer.args.load_best_model_at_end and state.best_global_step else set()
        checkpoint.rotate(self.folder, trainer.watch.save_total_limit, best)
        self.status.reached(state.global_step, state.max_steps)

    def restore(self, trainer: ExpertTrainer) -> None:
        """Put the checkpoint into a trainer that is ready to train. Raises InputError if it does not fit the adapter."""
        assert self.resumed is not None  # noqa: S101
        parts, optimizer = self.resumed.parts, trainer.optimizer.optimizer
        try:
            load_adapter(trainer.model.model, parts.adapter)
        except ValueError as error:
            raise InputError(
                f"the checkpoint does not fit this adapter: {error}", "train with the adapter it was made with"
            ) from error
        state = parts.state
        moments = {name: value for name, value in parts.tensors.items() if name != "losses"}
        load_optimizer(optimizer, moments, state["optimizer"])
        trainer.lr_scheduler.load_state_dict(dict(state["scheduler"]))
        for group, rate in zip(optimizer.param_groups, state["learning_rates"], strict=True):
            group["lr"] = rate
        if state["scaler"] and trainer.accelerator.scaler is not None:
            trainer.accelerator.scaler.load_state_dict(dict(state["scaler"]))
        trainer.flat.load(state["gradients"])
        vars(trainer.progress).update(state["progress"], losses=parts.tensors["losses"].tolist())

    def load_best(self, trainer: ExpertTrainer) -> None:
        """Put the adapter of the best evaluation into the model. Its checkpoint was never rotated away."""
        best = self.folder / f"checkpoint-{trainer.state.best_global_step}"
        load_adapter(trainer.model.model, checkpoint.read(best).adapter)
