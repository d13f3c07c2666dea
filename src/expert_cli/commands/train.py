"""`expert-cli train`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from expert_cli import api
from expert_cli.api.training import require_consistent
from expert_cli.commands.options import (
    AllowCommands,
    BaseModel,
    ManifestPath,
    Offline,
    WithoutWalls,
    arguments,
)
from expert_cli.console.terminal import Console
from expert_cli.errors import ThresholdNotMet
from expert_cli.manifest.keys.compute import DeviceChoice

if TYPE_CHECKING:
    from expert_cli.estimate.run_estimate import RunEstimate


def train(
    console: Console,
    manifest: ManifestPath,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|URL",
            help="Folder of the run, or the URL in object storage (s3://...) that it is kept at. Default: "
            "weights/<base model>/ beside the manifest.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Move a run that lies there aside.")] = False,
    init_adapter: Annotated[
        Path | None,
        typer.Option("--from", metavar="ADAPTER", help="Train on from this run directory or adapter folder."),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Train on this file, folder, URL or hub id instead.")] = None,
    validation: Annotated[str | None, typer.Option(help="Evaluate on these rows instead.")] = None,
    base_model: BaseModel = None,
    device: Annotated[
        str, typer.Option(help=f"{', '.join(get_args(DeviceChoice))}; auto: what the manifest says.")
    ] = "auto",
    epochs: Annotated[float | None, typer.Option(min=0, help="Passes over the data.")] = None,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Stop after this many optimizer steps.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of everything random.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="training.config.KEY=VALUE", help="Change one setting; repeatable."),
    ] = None,
    resume: Annotated[
        str,
        typer.Option(
            metavar="auto|PATH",
            help="Go on: with the newest good checkpoint (auto) or the one in PATH.",
            show_default=False,
        ),
    ] = "",
    allow_drift: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="With --resume: what may differ from before; repeatable.")
    ] = None,
    max_forget: Annotated[
        float | None,
        typer.Option(min=0, metavar="NATS", help="Exit 5 if the loss a token on neutral texts rose by more than this."),
    ] = None,
    locked: Annotated[
        Path | None,
        typer.Option(help="A run.json: refuse (exit 6) if data, tokenizer, base model, settings or code differ."),
    ] = None,
    trust_store: Annotated[
        bool, typer.Option("--trust-store", help="Use a tokenized data set that another program saved there.")
    ] = False,
    stage: Annotated[
        Path | None,
        typer.Option(help="Copy the token store to this folder (a faster disk) first."),
    ] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Train nothing: say what the run will need and cost. Builds the token store.")
    ] = False,
    probe: Annotated[bool, typer.Option("--probe", help="With --plan: measure a few real steps.")] = False,
    price: Annotated[str, typer.Option(metavar="2.50/h", help="With --plan: what an hour of this machine costs.")] = "",
    allow_commands: AllowCommands = False,
    without_walls: WithoutWalls = False,
    offline: Offline = False,
) -> None:
    """Train an expert from its manifest.

    Examples:

        expert-cli train --manifest experts/expert-json/manifest.json

        expert-cli train -m experts/expert-sql/manifest.json --base-model smollm2 --dataset rows.jsonl --max-steps 40

        expert-cli train -m experts/expert-sql/manifest.json --set training.config.learning_rate=1e-4

        expert-cli train -m experts/expert-sql/manifest.json --resume auto

        expert-cli train -m experts/expert-sql/manifest.json --output s3://bucket/runs/sql --resume auto

        expert-cli train -m experts/expert-sql/manifest.json --from weights/first --dataset new.jsonl --output weights/second

        expert-cli train -m experts/expert-sql/manifest.json --plan --price 2.50/h
    """
    asked = locals()
    if plan_only:
        require_consistent(resume, allow_drift or (), overwrite=overwrite)
        _show(console, api.estimate_run(**arguments(api.estimate_run, asked)))
        return
    if probe or price:
        raise typer.BadParameter(f"{'--probe' if probe else '--price'} goes with --plan")
    result = api.train(**arguments(api.train, asked))
    if os.environ.get("RANK", "0") != "0":
        return
    console.result(result.document, result.summary)
    if result.missed and console.as_json:
        raise typer.Exit(ThresholdNotMet.exit_code)
    if result.missed:
        raise ThresholdNotMet(result.missed, "the adapter is saved; a lower learning_rate or fewer steps forget less")


def _show(console: Console, estimate: RunEstimate) -> None:
    from expert_cli.commands.tables import show_estimate

    found = estimate.as_json()
    if console.as_json:
        console.document(found)
    else:
        show_estimate(console, found)
