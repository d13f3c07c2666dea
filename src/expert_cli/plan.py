"""A manifest on a machine: what will happen, and what became of every key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast, get_args

from expert_cli.config import Overrides, choose_base, contradictions, merge, resolve
from expert_cli.errors import Fault, InputError, LockedOrDamaged
from expert_cli.machine import Machine, inspect
from expert_cli.manifest.effects import Effect, effects
from expert_cli.manifest.reader import LoadedManifest, load
from expert_cli.origin import Origin, find_adapter
from expert_cli.runconfig import Quantization, RunConfig
from expert_cli.runlock import contents


@dataclass(frozen=True)
class Plan:
    """A manifest read and decided, before anything heavy is loaded."""

    loaded: LoadedManifest
    run: RunConfig
    effects: tuple[Effect, ...]
    warnings: tuple[Fault, ...]


def make_plan(manifest: Path, machine: Machine, overrides: Overrides) -> Plan:
    """Read a manifest and decide everything. Raises ManifestError, InputError, EnvironmentProblem."""
    loaded = load(manifest, overrides.settings)
    base, index = choose_base(loaded, overrides.base_model)
    run = resolve(loaded, machine, overrides)
    values = merge(loaded, base, overrides).values
    is_v1 = loaded.manifest.base_model is not None
    rows = effects(loaded.text, values, run, machine, base_index=index, v1=is_v1)
    warnings = (*loaded.warnings, *contradictions(loaded, base, index, values))
    return Plan(loaded, run, tuple(rows), warnings)


@dataclass(frozen=True)
class Trained:
    """An adapter, and the plan by which its base model is loaded."""

    plan: Plan
    origin: Origin


def trained(adapter: Path, manifest: Path | None, base_model: str | None, *, offline: bool) -> Trained:
    """Find an adapter and what it was trained with; an exported one says itself how its base model is held.

    manifest: default, the one it was trained from; base_model: default, that of its run. Raises InputError where there is
    no adapter, or no manifest, and what `make_plan` raises.
    """
    origin = find_adapter(adapter)
    file = manifest or origin.manifest
    if file is None or (manifest is None and not file.is_file()):
        raise InputError(f"{adapter}: nothing tells which manifest it was trained from", "name it: --manifest FILE")
    overrides = Overrides(base_model=base_model or origin.base_model or None, offline=offline)
    plan = make_plan(file, inspect(), overrides)
    if origin.quantization in get_args(Quantization):
        model = replace(plan.run.model, quantization=cast(Quantization, origin.quantization))
        plan = replace(plan, run=replace(plan.run, model=model))
    return Trained(plan, origin)


def require_free(output: Path, *, overwrite: bool) -> None:
    """Raise LockedOrDamaged if the output folder holds something that may not be moved, InputError if it is a file."""
    if output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file, not a folder", "give another folder with --output")
    if not overwrite and contents(output):
        hint = "go on with it: --resume auto; move it aside: --overwrite; or give another folder with --output"
        raise LockedOrDamaged(f"{output} holds a run already", hint)


def require_new(output: Path) -> None:
    """Raise InputError where the output is a file, LockedOrDamaged where it is a folder that holds something."""
    if output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file, not a folder", "give another folder with --output")
    if output.is_dir() and any(output.iterdir()):
        raise LockedOrDamaged(f"{output} holds something already", "give another folder with --output")
