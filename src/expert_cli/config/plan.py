"""Plans a run: reads a manifest for this machine, and decides the effect of every key."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast, get_args

from expert_cli.config.adapter_origin import AdapterOrigin, find_adapter, missing_adapter, require_alike
from expert_cli.config.conflicts import contradictions, doubts
from expert_cli.config.effects import Decided, Effect, defaults, effects, effects_table
from expert_cli.config.resolve import Overrides, decide, missing_data, missing_gpu, require_data
from expert_cli.config.run_config import RunConfig
from expert_cli.errors import EnvironmentProblem, ExpertError, InputError, ManifestError, ManifestIssue, RunLocked
from expert_cli.hardware.machine import Machine, inspect
from expert_cli.manifest.key import Quantization
from expert_cli.manifest.reader import LoadedManifest, load_manifest
from expert_cli.runs.lock import contents
from expert_cli.utils.process_setup import prepare_process
from expert_cli.utils.reporter import Reporter


@dataclass(frozen=True)
class Plan:
    """A manifest with all decisions, before anything heavy is loaded. no_gpu: which requested GPU is not usable here, or ""."""

    loaded: LoadedManifest
    run: RunConfig
    decided: Decided
    warnings: tuple[ManifestIssue, ...]
    no_gpu: str

    @property
    def own_cases(self) -> Path:
        """The file of the expert's own cases, which may not exist."""
        return self.run.own_cases

    @property
    def loading(self) -> str:
        """The line that is shown while the model is loaded."""
        return f"loading the model on the CPU: device {self.no_gpu}" if self.no_gpu else "loading the model"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        """The planned effect of every key."""
        return tuple(effects(self.loaded.text, self.decided))

    @cached_property
    def defaults(self) -> tuple[Effect, ...]:
        """The planned defaults."""
        return tuple(defaults(self.decided))


def make_plan(manifest: Path, machine: Machine, overrides: Overrides) -> Plan:
    """Read a manifest and decide everything. Raises ManifestError, InputError."""
    loaded = load_manifest(manifest, overrides.settings)
    run, decided = decide(loaded, machine, overrides)
    no_gpu = missing_gpu(decided.values, machine)
    lacks = [decided.fault("device", f"{no_gpu}; only train and benchmark need one")] if no_gpu else []
    return Plan(loaded, run, decided, (*loaded.warnings, *contradictions(decided), *doubts(decided), *lacks), no_gpu)


def plan_run(manifest: Path, machine: Machine, overrides: Overrides, report: Reporter, *, keeps: bool) -> Plan:
    """Make a plan, report it, and prepare for the training libraries.

    keeps: an existing run in the output folder is allowed. Raises as `make_plan`; InputError for missing data or an unsuitable
    adapter, RunLocked for an output folder with a run, EnvironmentProblem for a missing GPU.
    """
    if machine.first_words:
        report.warning(machine.first_words)
    plan = make_plan(manifest, machine, overrides)
    if plan.no_gpu:
        option = "--device" if plan.decided.origins["device"] == "--device" else "device"
        hint = machine.first_words or "use --device cpu, or a machine with an NVIDIA GPU"
        raise EnvironmentProblem(f"{option} {plan.no_gpu}", hint)
    if not isinstance(overrides.output, str):  # a URL is checked when the run begins
        require_free(plan.run.output, overwrite=keeps)
    require_data(plan.run)
    require_alike(plan.run)
    for warning in plan.warnings:
        report.warning(str(warning))
    report.info_table(*effects_table(plan.effects, plan.defaults))
    report.info("loading the training libraries")
    prepare_process()
    return plan


@dataclass(frozen=True)
class TrainedAdapter:
    """An adapter, and the plan for loading its base model. named: whether the user named its manifest."""

    plan: Plan
    origin: AdapterOrigin
    named: bool = False


def trained_adapter(
    adapter: Path, manifest: Path | None, base_model: str | None, *, offline: bool, quantization: str | None = None
) -> TrainedAdapter:
    """Return an adapter with the plan for its base model. Databases are shown as in training.

    manifest, base_model, quantization: None = as in training; for an exported adapter, the quantization that it records.
    Raises InputError without an adapter or manifest, and the errors of `make_plan`.
    """
    origin = find_adapter(adapter)
    file = manifest or origin.manifest
    if file is None or (manifest is None and not file.is_file()):
        raise InputError(f"{adapter}: its manifest is not known", "name it: --manifest FILE")
    overrides = Overrides(base_model=base_model or origin.base_model or None, offline=offline)
    plan = make_plan(file, inspect(), overrides)
    if (held := quantization or origin.quantization) in get_args(Quantization):
        model = replace(plan.run.model, quantization=cast(Quantization, held))
        plan = replace(plan, run=replace(plan.run, model=model))
    if origin.knows_system_prompt:  # then it is also known how databases are shown
        shown, planned = origin.schema_prompt, plan.run.data.schema_prompt
        shown = replace(shown, databases=planned.databases if planned else "") if shown else None
        plan = replace(plan, run=replace(plan.run, data=replace(plan.run.data, schema_prompt=shown)))
    return TrainedAdapter(plan, origin, named=manifest is not None)


def require_free(output: Path, *, overwrite: bool) -> None:
    """Raise RunLocked if the output folder has contents that may not be replaced, InputError if it is a file."""
    _require_folder(output)
    if not overwrite and contents(output):
        hint = "continue it with --resume auto, move it away with --overwrite, or give another folder with --output"
        raise RunLocked(f"{output} already contains a run", hint)


def require_new(output: Path) -> None:
    """Raise InputError if the output is a file, RunLocked if it is a folder with contents."""
    _require_folder(output)
    if output.is_dir() and any(output.iterdir()):
        raise RunLocked(f"{output} is not empty", "give another folder with --output")


def _require_folder(output: Path) -> None:
    """Raise InputError if the folder, or one of its parents, is a file."""
    there = next(path for path in (output, *output.absolute().parents) if path.exists())
    if not there.is_dir():
        raise InputError(f"{there} is a file, not a folder", "give another folder with --output")


@dataclass(frozen=True)
class Validation:
    """The validation of one manifest."""

    path: Path
    errors: list[ManifestIssue]
    plan: Plan | None
    warnings: list[str]

    def as_json(self) -> dict[str, Any]:
        """Return the entry under "manifests"."""
        return {
            "path": str(self.path),
            "valid": not self.errors,
            "errors": [asdict(fault) for fault in self.errors],
            "effects": [asdict(effect) for effect in self.plan.effects] if self.plan else [],
            "defaults": [asdict(default) for default in self.plan.defaults] if self.plan else [],
            "warnings": self.warnings,
        }


def validate(path: Path, facts: Machine, base_model: str | None) -> Validation:
    """Read a manifest and decide everything for each of its base models; the plan is for `base_model` (None: the first)."""
    plan: Plan | None = None
    errors: list[ManifestIssue] = []
    try:
        plan = make_plan(path, facts, Overrides(base_model=base_model))
    except ExpertError as error:
        errors = _faults(path, error)
    if plan is not None:
        for index in range(len(plan.loaded.manifest.bases)):
            try:
                decide(plan.loaded, facts, index=index)
            except ExpertError as error:
                errors += _faults(path, error)
    errors = list(dict.fromkeys(errors))  # issues of all base models are reported once
    warnings = [*map(str, plan.warnings), *missing_data(plan.run), *missing_adapter(plan.run)] if plan else []
    return Validation(path, errors, plan, warnings)


def _faults(path: Path, error: ExpertError) -> list[ManifestIssue]:
    if isinstance(error, ManifestError):
        return error.faults
    return [ManifestIssue(str(path), 1, 1, "", error.message.removeprefix(f"{path}: "), error.hint)]
