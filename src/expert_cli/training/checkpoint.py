"""Checkpoints: complete or absent, hashed, no pickle.

checkpoints/
    checkpoint-40/
        checkpoint.json              step, serial, size and SHA-256 of every other file, a hash of itself; written last
        adapter_model.safetensors    the adapter; with adapter_config.json PEFT loads the folder as it is
        adapter_config.json
        optimizer.safetensors        the tensors of the optimizer's state, and the loss of every step
        state.json                   identity of the run, the numbers of optimizer and schedule
        trainer_state.json           the Trainer's own state
    .writing-50/                     being written, or left by a killed process; never read
    .removed-20/                     being deleted

A folder is written under its hidden name, synced and renamed. `serial` counts all checkpoints ever written here. The newest is
the one written last; if the run was continued from an older checkpoint, it is not the one with the most steps.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState

from expert_cli.config.run_config import AUTO
from expert_cli.config.run_identity import require_goes_on, require_keys
from expert_cli.errors import InputError, IntegrityError
from expert_cli.manifest.keys.optim import SCHEDULERS
from expert_cli.model.adapter import adapter_parts, load_adapter
from expert_cli.runs.status import RunStatus
from expert_cli.training.trainer import ExpertTrainer
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.files import (
    VerifiedFolder,
    parse_json,
    read_sealed,
    remove,
    sha256_of,
    sync_names,
    write_json,
    write_sealed,
)
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import size_text

CHECKPOINT_RULE = 3  # version of a checkpoint's contents; others are not read
LEAST = 2  # least number of checkpoints to keep: the newest may be damaged
MANIFEST = "checkpoint.json"
ADAPTER = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
_FILES = {ADAPTER, ADAPTER_CONFIG, OPTIMIZER, STATE, TRAINER_STATE_NAME}
_NAME = re.compile(r"checkpoint-[0-9]+")
_LEFT = re.compile(r"\.(?:writing|removed)-[0-9]+")


@dataclass(frozen=True)
class CheckpointState:
    """Everything that a run needs to continue.

    adapter, adapter_config: from `model.adapter.adapter_parts`. tensors: the optimizer's, and the losses. state: everything
    else as JSON; its `identity` must match the run that continues. trainer_state: transformers' TrainerState as JSON. path:
    the folder it was read from.
    """

    adapter: Mapping[str, torch.Tensor]
    adapter_config: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor]
    state: Mapping[str, Any]
    trainer_state: Mapping[str, Any]
    path: Path | None = None


def write(folder: Path, step: int, parts: CheckpointState) -> None:
    """Write checkpoint-`step` into `folder` atomically, and delete folders that killed processes left."""
    home, beside, before = (folder / f"{name}-{step}" for name in ("checkpoint", ".writing", ".removed"))
    goes_on = "; the checkpoints before are intact: continue with --resume auto" if _newest_first(folder) else ""
    elsewhere = f"give another folder with --output{goes_on}"
    size = size_text(sum(tensor.nbytes for tensor in (*parts.adapter.values(), *parts.tensors.values())))
    with disk_errors(f"cannot write a checkpoint of {size} in {folder}", elsewhere):
        folder.mkdir(parents=True, exist_ok=True)
        for left in [path for path in folder.iterdir() if _LEFT.fullmatch(path.name)]:
            with suppress(OSError):  # it is being read
                remove(left)
        try:
            beside.mkdir()
            last = max((_serial(path) or 0 for path in _newest_first(folder)), default=0)
            _fill(beside, step, last + 1, parts)
            if home.exists():
                home.rename(before)
            beside.rename(home)
            sync_names(folder)
            shutil.rmtree(before, ignore_errors=True)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def read(path: Path) -> CheckpointState:
    """Verify a checkpoint and return its contents, with tensors on the CPU. Raises IntegrityError."""
    if damage := _damage(path):
        raise IntegrityError(f"{path} is damaged: {damage}", "resume from another checkpoint: --resume PATH")
    config, state, trainer_state = (
        parse_json((path / name).read_bytes()) for name in (ADAPTER_CONFIG, STATE, TRAINER_STATE_NAME)
    )
    return CheckpointState(load_file(path / ADAPTER), config, load_file(path / OPTIMIZER), state, trainer_state, path)


def latest_valid(folder: Path) -> tuple[Path | None, list[str]]:
    """Return the newest intact checkpoint, and a message for each damaged one that is newer."""
    damaged: list[str] = []
    for path in _newest_first(folder):
        damage = _damage(path)
        if not damage:
            return path, damaged
        damaged.append(f"{path} is damaged: {damage}")
    return None, damaged


def rotate(folder: Path, keep: int | None, protect: set[int]) -> None:
    """Delete old checkpoints, except the `keep` newest (None: all) and those of the steps in `protect`.

    At least LEAST are kept, counting only those whose files all have their recorded sizes. Folders without a manifest stay.
    """
    if keep is None:
        return
    good = 0
    for path in _newest_first(folder):
        whole = not _damage(path, hashed=False)
        good += whole
        is_kept = _step(path) in protect or (whole and good <= max(LEAST, keep))
        if is_kept or not (path / MANIFEST).is_file():
            continue
        hidden = folder / f".removed-{_step(path)}"
        with suppress(OSError):  # it is being read or removed; hidden folders are deleted by the next `write`
            path.rename(hidden)
            remove(hidden)


def _fill(beside: Path, step: int, serial: int, parts: CheckpointState) -> None:
    """Write and sync all files of a checkpoint, its manifest last."""
    json.dumps(parts.state)  # raises for values that write_json would convert to text
    write_json(beside / STATE, parts.state)
    write_json(beside / ADAPTER_CONFIG, parts.adapter_config)
    write_json(beside / TRAINER_STATE_NAME, parts.trainer_state)
    for name, tensors in ((ADAPTER, parts.adapter), (OPTIMIZER, parts.tensors)):
        # Views of one buffer share memory, which safetensors refuses.
        how = {"memory_format": torch.contiguous_format}
        owned = {key: tensor.detach().cpu().clone(**how) for key, tensor in tensors.items()}
        save_file(owned, beside / name, metadata={"format": "pt"})
    files = VerifiedFolder.measured(beside).files
    write_sealed(beside / MANIFEST, {"rule": CHECKPOINT_RULE, "step": step, "serial": serial, "files": files})
    sync_names(beside)


def _newest_first(folder: Path) -> list[Path]:
    """Return the checkpoints by descending serial; those without a readable one come first, to be reported as damaged."""
    found = [path for path in folder.glob("checkpoint-*") if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (_serial(path) or sys.maxsize, _step(path)), reverse=True)


def _step(path: Path) -> int:
    """Return the step in a checkpoint's name; -1 for any other name."""
    return int(path.name.rpartition("-")[2]) if _NAME.fullmatch(path.name) else -1


def _serial(path: Path) -> int | None:
    try:
        return int(read_sealed(path / MANIFEST)["serial"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _damage(path: Path, *, hashed: bool = True) -> str:
    """Return why a checkpoint is damaged; "" if it is intact. hashed False: check only names and sizes."""
    try:
        manifest = read_sealed(path / MANIFEST)
    except (OSError, ValueError) as error:
        return f"{MANIFEST} is missing or broken ({error})"
    if manifest.get("rule") != CHECKPOINT_RULE:
        return f"it was written by another version (rule {manifest.get('rule')}, this one reads {CHECKPOINT_RULE})"
    if set(manifest["files"]) != _FILES or manifest["step"] != _step(path):
        return f"{MANIFEST} is of another checkpoint"
    return VerifiedFolder(path, manifest["files"]).damage(sha256_of if hashed else None)


def find_checkpoint(
    folder: Path, wanted: str, identity: Mapping[str, Any], drift: Collection[str], report: Reporter
) -> CheckpointState | None:
    """Return the checkpoint to continue from: the newest intact one ("auto"; None if there is none), or the named one."""
    if wanted == AUTO:
        path, damaged = latest_valid(folder)
        for line in damaged:
            report.warning(f"{line}; using the one before it")
        if path is None:
            require_keys(drift, identity)
            report.info("no checkpoint to resume from: training starts")
            return None
    else:
        path = Path(wanted)
        if not (path / MANIFEST).is_file():
            hint = 'name a folder checkpoint-N, or write "auto"; --from trains on an adapter'
            raise InputError(f"--resume {wanted}: is no checkpoint", hint)
    found = read(path)
    require_goes_on(path, found.state["identity"], identity, drift, report)
    at = found.trainer_state
    report.info(f"resumed   {path}: step {at['global_step']}, epoch {int(at['epoch'] or 0)}")
    return found


@dataclass(frozen=True)
class Checkpoints:
    """Writes a run's checkpoints, and restores `resumed` into its trainer. identity: the values that both runs must share."""

    folder: Path
    identity: Mapping[str, Any]
    resumed: CheckpointState | None
    status: RunStatus

    def save(self, trainer: ExpertTrainer) -> None:
        """Write a checkpoint after the current step and delete old ones."""
        state, scaler, progress = trainer.state, trainer.accelerator.scaler, vars(trainer.progress)
        optimizer = trainer.optimizer.optimizer  # accelerate has wrapped it
        adapter, config = adapter_parts(trainer.model.model)
        tensors, numbers = optimizer_parts(optimizer)
        parts: list[Any] = [*trainer.callback_handler.callbacks, trainer.control]
        exportable: list[Any] = [one for one in parts if isinstance(one, ExportableState)]
        written = CheckpointState(
            adapter=adapter,
            adapter_config=config,
            tensors={**tensors, "losses": torch.tensor(progress["losses"], dtype=torch.float64)},
            state={
                "identity": self.identity,
                "optimizer": numbers,
                "learning_rates": [group["lr"] for group in optimizer.param_groups],
                "scheduler": trainer.lr_scheduler.state_dict(),
                "scaler": scaler.state_dict() if scaler is not None else {},
                "progress": {name: value for name, value in progress.items() if name != "losses"},
            },
            trainer_state=asdict(replace(state, stateful_callbacks=exportable)),
        )
        best = state.best_global_step if trainer.args.load_best_model_at_end else None
        name, origin = f"checkpoint-{best}", self.resumed and self.resumed.path
        if best and origin and best != state.global_step and not (self.folder / name).exists():
            write(self.folder, best, read(origin.with_name(name)))  # the run continues in another folder
        write(self.folder, state.global_step, written)
        rotate(self.folder, trainer.watch.save_total_limit, {best} if best else set())
        self.status.reached(state.global_step, state.max_steps)

    def restore(self, trainer: ExpertTrainer) -> None:
        """Restore the checkpoint into a trainer that is ready to train. Raises InputError if it does not fit the adapter."""
        assert self.resumed is not None  # noqa: S101
        parts, optimizer = self.resumed, trainer.optimizer.optimizer
        try:
            load_adapter(trainer.model.model, parts.adapter)
        except ValueError as error:
            told = f"the checkpoint does not fit this adapter: {error}"
            raise InputError(told, "train with the adapter it was made with") from error
        state = parts.state
        moments = {name: value for name, value in parts.tensors.items() if name != "losses"}
        load_optimizer(optimizer, moments, state["optimizer"])
        schedule, before = trainer.lr_scheduler, dict(state["scheduler"])
        if isinstance(schedule, LambdaLR | OneCycleLR):  # depends on the step only: a new rate or length applies
            done = min(before["last_epoch"], getattr(schedule, "total_steps", before["last_epoch"]))  # one_cycle only
            vars(schedule).update(last_epoch=done - 1, _step_count=before.get("_step_count", 2))
            schedule.step()
            vars(schedule).update(_step_count=before.get("_step_count", 2))
        else:
            settings = SCHEDULERS[trainer.args.lr_scheduler_type]  # this run's may differ from the checkpoint's
            if before["mode"] == schedule.mode:  # otherwise the metric is another one
                schedule.load_state_dict(
                    {name: now for name, now in before.items() if name.rstrip("s") not in settings}
                )
            for group, rate in zip(optimizer.param_groups, state["learning_rates"], strict=True):
                group["lr"] = rate
        if state["scaler"] and trainer.accelerator.scaler is not None:
            trainer.accelerator.scaler.load_state_dict(dict(state["scaler"]))
        vars(trainer.progress).update(state["progress"], losses=parts.tensors["losses"].tolist())

    def place_of(self, step: int) -> Path | None:
        """Return the checkpoint of a step, here or in the folder that the run was resumed from; None if it was deleted."""
        before = self.resumed and self.resumed.path
        places = (place / f"checkpoint-{step}" for place in (self.folder, before.parent if before else self.folder))
        return next((place for place in places if (place / MANIFEST).is_file()), None)

    def load_best(self, trainer: ExpertTrainer) -> None:
        """Load the adapter of the best evaluation, whose checkpoint is never deleted."""
        best = self.place_of(trainer.state.best_global_step or 0)
        load_adapter(trainer.model.model, read(best or self.folder / "no checkpoint").adapter)


def optimizer_parts(optimizer: Any) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the tensors and the numbers of an optimizer's state, with keys "parameter number.name"."""
    tensors: dict[str, torch.Tensor] = {}
    numbers: dict[str, Any] = {}
    for number, (parameter, _) in enumerate(_parameters(optimizer)):
        for name, value in optimizer.state.get(parameter, {}).items():
            (tensors if isinstance(value, torch.Tensor) else numbers)[f"{number}.{name}"] = value
    return tensors, numbers


def load_optimizer(optimizer: Any, tensors: Mapping[str, torch.Tensor], numbers: Mapping[str, Any]) -> None:
    """Restore the state from `optimizer_parts` in place, because a graph may refer to existing tensors.

    `load_state_dict` would cast states to the parameter's dtype, and bitsandbytes' would move paged states to ordinary memory.
    """
    parameters = list(_parameters(optimizer))
    for key, value in {**tensors, **numbers}.items():
        number, _, name = key.partition(".")
        parameter, group = parameters[int(number)]
        state = optimizer.state[parameter]
        if not isinstance(value, torch.Tensor):
            state[name] = value
        elif name in state:
            state[name].copy_(value)
        elif parameter.device.type != "cpu" and getattr(optimizer, "is_paged", False) and name in ("state1", "state2"):
            # in the kind of memory that bitsandbytes uses for a new state
            state[name] = optimizer.get_state_buffer(parameter, dtype=value.dtype).copy_(value)
        else:
            counts_on_cpu = name == "step" and not (group.get("capturable") or group.get("fused"))
            state[name] = value.clone() if counts_on_cpu else value.to(parameter.device, copy=True)


def _parameters(optimizer: Any) -> Iterator[tuple[torch.Tensor, Mapping[str, Any]]]:
    return ((parameter, group) for group in optimizer.param_groups for parameter in group["params"])
