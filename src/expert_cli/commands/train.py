"""`expert-cli train`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import typer

from expert_cli import api
from expert_cli.api.training import require_consistent
from expert_cli.commands.options import train as ask
from expert_cli.commands.options.common import BaseModel, Debug, Json, ManifestPath, Offline, Quiet
from expert_cli.console.terminal import Console

if TYPE_CHECKING:
    from expert_cli.estimate.run_estimate import RunEstimate


def train(
    manifest: ManifestPath,
    output: ask.Output = None,
    overwrite: ask.Overwrite = False,
    dataset: ask.Dataset = None,
    validation: ask.Validation = None,
    base_model: BaseModel = None,
    device: ask.Device = "auto",
    epochs: ask.Epochs = None,
    max_steps: ask.MaxSteps = None,
    seed: ask.Seed = None,
    set_: ask.Set = None,
    resume: ask.Resume = None,
    allow_drift: ask.AllowDrift = None,
    max_loss_spike: ask.MaxLossSpike = 0.0,
    locked: ask.Locked = None,
    trust_store: ask.TrustStore = False,
    stage: ask.Stage = None,
    plan_only: ask.PlanOnly = False,
    probe: ask.Probe = False,
    price: ask.Price = "",
    offline: Offline = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001  read by cli.main
) -> None:
    """Train an expert from its manifest.

    Examples:

        expert-cli train --manifest experts/expert-json/manifest.json

        expert-cli train -m experts/expert-sql/manifest.json --base-model smollm2 --dataset rows.jsonl --max-steps 40

        expert-cli train -m experts/expert-sql/manifest.json --set training.config.learning_rate=1e-4

        expert-cli train -m experts/expert-sql/manifest.json --resume auto

        expert-cli train -m experts/expert-sql/manifest.json --plan --price 2.50/h
    """
    console = Console("train", as_json=as_json, quiet=quiet)
    if (probe or price) and not plan_only:
        raise typer.BadParameter(f"{'--probe' if probe else '--price'} goes with --plan")
    require_consistent(resume or "", allow_drift or (), overwrite=overwrite)
    settings: dict[str, Any] = {
        "output": output,
        "dataset": dataset,
        "validation": validation,
        "base_model": base_model,
        "device": device,
        "epochs": epochs,
        "max_steps": max_steps,
        "seed": seed,
        "settings": set_ or (),
        "trust_store": trust_store,
        "offline": offline,
        "resume": resume or "",
        "reporter": console,
    }
    if plan_only:
        _show(console, api.estimate_run(manifest, **settings, locked=locked is not None, probe=probe, price=price))
        return
    result = api.train(
        manifest,
        **settings,
        overwrite=overwrite,
        allow_drift=allow_drift or (),
        max_loss_spike=max_loss_spike,
        locked=locked,
        stage=stage,
    )
    if os.environ.get("RANK", "0") != "0":
        return
    if as_json:
        console.document(result.document)
    else:
        console.text(result.summary())


def _show(console: Console, estimate: RunEstimate) -> None:
    from expert_cli.commands.tables import show_estimate

    found = estimate.as_json()
    if console.as_json:
        console.document(found)
    else:
        show_estimate(console, found, device=estimate.plan.run.compute.device)
