"""`expert-cli train`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from expert_cli.commands.options import BaseModel, Debug, Json, ManifestPath, Offline, Quiet, is_offline
from expert_cli.console import Console


def train(
    manifest: ManifestPath,
    output: Annotated[
        Path | None, typer.Option(help="Folder of the run. Default: weights/<base model>/ beside the manifest.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Move a run that lies there aside.")] = False,
    dataset: Annotated[str | None, typer.Option(help="Train on this file, folder or hub id instead.")] = None,
    validation: Annotated[str | None, typer.Option(help="Evaluate on these rows instead.")] = None,
    base_model: BaseModel = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    epochs: Annotated[float | None, typer.Option(min=0, help="Passes over the data.")] = None,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Stop after this many optimizer steps.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of everything random.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="training.config.KEY=VALUE", help="Change one setting; repeatable."),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="auto|PATH", help="Go on: with the newest good checkpoint (auto) or the one in PATH."),
    ] = None,
    allow_drift: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="With --resume: what may differ from before; repeatable.")
    ] = None,
    max_loss_spike: Annotated[
        float, typer.Option(min=0, metavar="FACTOR", help="Warn of a loss this many times the median of the last 20.")
    ] = 0.0,
    locked: Annotated[
        Path | None,
        typer.Option(help="A run.json: refuse (exit 6) if data, tokenizer, base model, settings or code differ."),
    ] = None,
    trust_store: Annotated[
        bool, typer.Option("--trust-store", help="Use a tokenised data set that another program saved there.")
    ] = False,
    stage: Annotated[
        Path | None, typer.Option(help="Copy the token store to this folder (a faster disk) first.")
    ] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Train nothing: say what the run will need and cost. Builds the token store.")
    ] = False,
    probe: Annotated[bool, typer.Option("--probe", help="With --plan: measure a few real steps.")] = False,
    price: Annotated[str, typer.Option(metavar="2.50/h", help="With --plan: what an hour of this machine costs.")] = "",
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
    from expert_cli import machine
    from expert_cli.commands.effects_table import show_effects
    from expert_cli.commands.outlook_table import show_outlook
    from expert_cli.config import Overrides, require_data
    from expert_cli.forecast.prices import parse_price
    from expert_cli.plan import make_plan, require_free

    console = Console("train", as_json=as_json, quiet=quiet)
    if device not in ("auto", "cpu", "cuda"):
        raise typer.BadParameter(f"--device {device}: must be auto, cpu or cuda")
    if epochs is not None and epochs <= 0:
        raise typer.BadParameter(f"--epochs {epochs}: must be greater than 0")
    if (probe or price) and not plan_only:
        raise typer.BadParameter(f"{'--probe' if probe else '--price'} goes with --plan")
    hourly = parse_price(price) if price else None
    overrides = Overrides(
        dataset=dataset,
        validation=validation,
        base_model=base_model,
        output=output,
        device=device,
        epochs=epochs,
        max_steps=max_steps,
        seed=seed,
        settings=tuple(set_ or ()),
        offline=is_offline(asked=offline),
    )
    facts = machine.inspect()
    if facts.first_words:
        console.warn(facts.first_words)
    plan = make_plan(manifest, facts, overrides)
    require_free(plan.run.output, overwrite=overwrite or bool(resume) or plan_only)
    require_data(plan.run)
    for warning in plan.warnings:
        console.warn(str(warning))
    if not quiet:
        show_effects(console, plan.effects, short=True, to_stdout=False)

    console.say("loading the training libraries")
    from expert_cli._compat import quiet_imports

    quiet_imports()
    if plan_only:
        from expert_cli.forecast.outlook import foretell

        found = foretell(
            plan,
            facts,
            overrides,
            console,
            price=hourly,
            probing=probe,
            locked=locked is not None,
            trusting=trust_store,
        ).as_json()
        if as_json:
            console.document(found)
        else:
            show_outlook(console, found, device=plan.run.compute.device)
        return
    from expert_cli import run

    options = run.RunOptions(
        overwrite,
        resume or "",
        tuple(allow_drift or ()),
        locked,
        trust_store,
        stage,
        typed(sys.argv[1:]),
        max_loss_spike,
    )
    result = run.train(plan, facts, console, options)
    if os.environ.get("RANK", "0") != "0":
        return
    if as_json:
        console.document(result.document)
    else:
        console.text(result.summary())


def typed(words: list[str]) -> str:
    """Return the command line of this run, without what is said of an earlier one."""
    kept = [
        word
        for n, word in enumerate(words)
        if word not in ("--overwrite", "--resume") and words[n - 1 : n] != ["--resume"]
    ]
    return shlex.join(["expert-cli", *(word for word in kept if not word.startswith("--resume="))])
