"""`expert-cli train`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from expert_cli.commands.options import train as ask
from expert_cli.commands.options.common import BaseModel, Debug, Json, ManifestPath, Offline, Quiet
from expert_cli.console.terminal import Console

if TYPE_CHECKING:
    from expert_cli.config.plan import Plan
    from expert_cli.config.resolve import Overrides
    from expert_cli.hardware.machine import Machine


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
    from expert_cli.config.resolve import Overrides
    from expert_cli.estimate.prices import parse_price
    from expert_cli.hardware import machine

    console = Console("train", as_json=as_json, quiet=quiet)
    ask.require_sense(device, epochs)
    ask.check_train_options(price, resume, allow_drift or (), probe=probe, plan_only=plan_only, overwrite=overwrite)
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
        offline=offline,
        resume=resume or "",
    )
    facts = machine.inspect()
    plan = _planned(console, manifest, facts, overrides, keeps=overwrite or bool(resume) or plan_only)
    if plan_only:
        from expert_cli.commands.tables import show_estimate
        from expert_cli.estimate.run_estimate import estimate_run

        found = estimate_run(
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
            show_estimate(console, found, device=plan.run.compute.device)
        return
    from expert_cli.pipeline.train import RunOptions
    from expert_cli.pipeline.train import train as run_training

    drift, resumed = tuple(allow_drift or ()), resume or ""
    command = typed(sys.argv[1:])
    options = RunOptions(
        overwrite, resumed, drift, locked, trust_store, stage, command, max_loss_spike, tuple(console.told)
    )
    result = run_training(plan, facts, console, options)
    if os.environ.get("RANK", "0") != "0":
        return
    if as_json:
        console.document(result.document)
    else:
        console.text(result.summary())


def _planned(console: Console, manifest: Path, facts: Machine, overrides: Overrides, *, keeps: bool) -> Plan:
    """Say what will happen, and load what it takes. keeps: a run in the output folder does not stand in the way."""
    from expert_cli.commands.tables import show_effects
    from expert_cli.config.plan import make_plan, require_free
    from expert_cli.config.resolve import require_data

    if facts.first_words:
        console.warning(facts.first_words)
    plan = make_plan(manifest, facts, overrides)
    require_free(plan.run.output, overwrite=keeps)
    require_data(plan.run)
    for warning in plan.warnings:
        console.warning(str(warning))
    if not console.quiet:
        show_effects(console, plan.effects, short=True, to_stdout=False)
    console.info("loading the training libraries")
    from expert_cli._compat import quiet_imports

    quiet_imports()
    return plan


def typed(words: list[str]) -> str:
    """Return the command line of this run, without what is said of an earlier one."""
    kept = [
        word
        for n, word in enumerate(words)
        if word not in ("--overwrite", "--resume") and words[n - 1 : n] != ["--resume"]
    ]
    return shlex.join(["expert-cli", *(word for word in kept if not word.startswith("--resume="))])
