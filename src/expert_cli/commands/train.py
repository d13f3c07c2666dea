"""`expert-cli train`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from typer import Option

from expert_cli import api
from expert_cli.commands.options import (
    AllowCommands,
    BaseModel,
    Dataset,
    Device,
    ManifestPath,
    Offline,
    Seed,
    Settings,
    Stage,
    Validation,
    WithoutWalls,
    arguments,
    refuse_idle,
)
from expert_cli.console.terminal import Console
from expert_cli.errors import ThresholdNotMet


def train(
    console: Console,
    manifest: ManifestPath,
    output: Annotated[str | None, Option(metavar="DIR|URL")] = None,
    overwrite: Annotated[bool, Option("--overwrite")] = False,
    init_adapter: Annotated[Path | None, Option("--from", metavar="ADAPTER")] = None,
    dataset: Dataset = None,
    validation: Validation = None,
    base_model: BaseModel = None,
    device: Device = "auto",
    epochs: Annotated[float | None, Option()] = None,
    max_steps: Annotated[int | None, Option(min=1)] = None,
    seed: Seed = None,
    settings: Settings = None,
    resume: Annotated[str, Option(metavar="auto|PATH")] = "",
    allow_drift: Annotated[list[str] | None, Option(metavar="KEY")] = None,
    max_forget: Annotated[float | None, Option(min=0, metavar="NATS")] = None,
    locked: Annotated[Path | None, Option()] = None,
    trust_store: Annotated[bool, Option("--trust-store")] = False,
    stage: Stage = None,
    plan_only: Annotated[bool, Option("--plan", help="Only estimate memory, time and cost; do not train.")] = False,
    probe: Annotated[bool, Option("--probe", help="With --plan: measure a few real steps.")] = False,
    price: Annotated[str, Option(metavar="2.50/h", help="With --plan: cost of an hour of this machine.")] = "",
    allow_commands: AllowCommands = False,
    without_walls: WithoutWalls = False,
    offline: Offline = False,
) -> None:
    """Train an expert from its manifest.

    Examples:

        expert-cli train --manifest experts/expert-json/manifest.json
        expert-cli train -m experts/expert-sql/manifest.json --base-model smollm2 --set training.config.learning_rate=1e-4
        expert-cli train -m experts/expert-sql/manifest.json --output s3://bucket/runs/sql --resume auto
        expert-cli train -m experts/expert-sql/manifest.json --from weights/first --dataset new.jsonl --output weights/second
        expert-cli train -m experts/expert-sql/manifest.json --plan --price 2.50/h
    """
    asked = locals()
    if plan_only:
        from expert_cli.commands.tables import show_estimate

        estimate = api.estimate_run(**arguments(api.train, asked), probe=probe, price=price).as_json()
        console.result(estimate, lambda: show_estimate(console, estimate))
        return
    refuse_idle(train, asked, "probe price", "goes with --plan")
    result = api.train(**arguments(api.train, asked))
    if os.environ.get("RANK", "0") != "0":
        return
    console.result(result.document, lambda: console.text(result.summary()))
    if result.missed:
        raise ThresholdNotMet(result.missed, "the adapter is saved; a lower learning_rate or fewer steps forget less")
