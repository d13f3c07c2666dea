"""A manifest on a machine: what will happen, and what became of every key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from expert_cli.config import Overrides, choose_base, contradictions, merge, resolve
from expert_cli.errors import Fault, InputError, LockedOrDamaged
from expert_cli.machine import Machine
from expert_cli.manifest.effects import Effect, effects
from expert_cli.manifest.reader import LoadedManifest, load
from expert_cli.runconfig import RunConfig
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


def require_free(output: Path, *, overwrite: bool) -> None:
    """Raise LockedOrDamaged if the output folder holds something that may not be moved, InputError if it is a file."""
    if output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file, not a folder", "give another folder with --output")
    if not overwrite and contents(output):
        hint = "give another folder with --output, or move this one aside with --overwrite"
        raise LockedOrDamaged(f"{output} holds a run already", hint)
