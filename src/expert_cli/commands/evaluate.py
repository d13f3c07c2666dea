"""`expert-cli evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from expert_cli import api
from expert_cli.commands.options import evaluate as ask
from expert_cli.commands.options.common import (
    AdapterIfAny,
    Debug,
    Json,
    MaxNewTokens,
    Offline,
    Quiet,
    Sample,
    TrainedBase,
    TrainedManifest,
)
from expert_cli.commands.tables import show_drop, show_evaluation, show_generation
from expert_cli.console.terminal import Console
from expert_cli.errors import ThresholdNotMet


def evaluate(
    manifest: TrainedManifest = None,
    adapter: AdapterIfAny = None,
    answers: ask.Answers = None,
    cases: ask.Cases = None,
    baseline: ask.Baseline = False,
    shots: ask.Shots = 0,
    base_model: TrainedBase = None,
    sample: Sample = False,
    batch_size: ask.BatchSize = None,
    max_new_tokens: MaxNewTokens = 256,
    limit: ask.Limit = None,
    case_timeout: ask.CaseTimeout = 2.0,
    threshold: ask.Threshold = None,
    against: ask.Against = None,
    max_drop: ask.MaxDrop = None,
    output: ask.Output = None,
    offline: Offline = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001  read by cli.main
) -> None:
    """Let an expert answer its cases, and judge the answers: SQL, Cypher and TypeScript by running them, JSON by comparing it.

    A case: {"verifier": "sql", "database": "shop.sqlite", "expected": "SELECT ...", "prompt": "...", "input": "..."}; a row
    of --answers has "answer" instead of prompt and input. Paths are relative to the file. Answers can change nothing: they
    run on copies, within limits of time and memory.

    What --output writes keeps every answer; --answers judges them again, by the cases that they were given to or by other
    ones of the same ids and prompts (--cases).

    Examples:

        expert-cli evaluate --manifest experts/expert-sql/manifest.json --adapter runs/sql --baseline --shots 3

        expert-cli evaluate --adapter runs/sql --threshold 0.95 --against old.json --max-drop 0.02 --json

        expert-cli evaluate --answers answers.jsonl --output evaluation.json

        expert-cli evaluate --answers runs/sql/evaluation.json --cases stricter.jsonl
    """
    console = Console("evaluate", as_json=as_json, quiet=quiet)
    ask.require_company(answers, adapter, baseline=baseline, shots=shots, sample=sample)
    common: dict[str, Any] = {
        "cases": cases,
        "limit": limit,
        "case_timeout_s": case_timeout,
        "threshold": threshold,
        "against": against,
        "max_drop": max_drop,
        "output": output,
        "reporter": console,
    }
    if answers is not None:
        found = api.grade_answers(answers, **common)
    else:
        found = api.evaluate(
            adapter or Path(),
            **common,
            manifest=manifest,
            baseline=baseline,
            shots=shots,
            base_model=base_model,
            sample=sample,
            batch_size=batch_size,
            max_new_tokens=max_new_tokens,
            offline=offline,
        )
    if as_json:
        console.document(found.as_json())
    else:
        show_evaluation(console, found.evaluation)
        show_generation(console, found)
        if found.drop:
            show_drop(console, found.drop)
    if found.missed and as_json:
        raise typer.Exit(ThresholdNotMet.exit_code)
    if found.missed:
        raise ThresholdNotMet(found.missed, "see the failures above")
