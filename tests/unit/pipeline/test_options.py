"""The command line of a run asks for what was asked for."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from expert_cli.cli import command
from expert_cli.config.resolve import Overrides
from expert_cli.pipeline.options import RunOptions, command_line


def test_every_setting_is_an_option_with_its_value() -> None:
    settings = ("training.config.rank=4", "training.config.alpha=8")
    overrides = Overrides(
        "my rows.jsonl", "held.jsonl", "smollm2", "s3://bucket/runs/one", "cpu", 0.5, max_steps=3, seed=0
    )
    overrides = replace(overrides, settings=settings, offline=True, init_adapter=Path("weights/first"))
    options = RunOptions(
        allow_drift=("a", "b"), locked=Path("run.json"), trust_store=True, stage=Path("fast"), max_forget=0.0
    )
    program, name, *words = shlex.split(command_line(Path("m.json"), overrides, options))
    assert (program, name) == ("expert-cli", "train")
    asked = command("train").make_context("train", words).params
    said = {"manifest": Path("m.json"), **vars(overrides), **vars(options)}
    said |= {name: list(said[name]) for name in ("settings", "allow_drift")}
    for name in ("resume", "overwrite", "command", "callbacks", "stored_at", "written"):
        said.pop(name)
    assert {name: asked[name] for name in said} == said
