"""`expert-cli evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from expert_cli import api
from expert_cli.commands.options import (
    AdapterIfAny,
    AllowCommands,
    MaxNewTokens,
    Offline,
    TrainedBase,
    TrainedManifest,
    WithoutWalls,
    arguments,
)
from expert_cli.commands.tables import show_evaluated
from expert_cli.console.terminal import Console
from expert_cli.errors import ThresholdNotMet


def evaluate(
    console: Console,
    manifest: TrainedManifest = None,
    adapter: AdapterIfAny = None,
    answers: Annotated[Path | None, Option()] = None,
    cases: Annotated[Path | None, Option()] = None,
    baseline: Annotated[bool, Option("--baseline")] = False,
    shots: Annotated[int, Option(min=0)] = 0,
    base_model: TrainedBase = None,
    base_quantization: Annotated[Literal["none", "bf16", "int8", "int4"] | None, Option()] = None,
    endpoint: Annotated[str | None, Option(metavar="URL")] = None,
    model: Annotated[str | None, Option(metavar="NAME")] = None,
    baseline_endpoint: Annotated[str | None, Option(metavar="URL")] = None,
    baseline_model: Annotated[str | None, Option(metavar="NAME")] = None,
    samples: Annotated[int, Option(min=0, metavar="K")] = 0,
    batch_size: Annotated[int | None, Option(min=1)] = None,
    max_new_tokens: MaxNewTokens = None,
    limit: Annotated[int | None, Option(min=1)] = None,
    case_timeout_s: Annotated[float, Option("--case-timeout", min=0.01)] = 2.0,
    threshold: Annotated[float | None, Option(min=0, max=1)] = None,
    against: Annotated[Path | None, Option()] = None,
    max_drop: Annotated[float | None, Option(min=0, max=1)] = None,
    output: Annotated[Path | None, Option()] = None,
    write_pairs: Annotated[Path | None, Option()] = None,
    allow_commands: AllowCommands = False,
    without_walls: WithoutWalls = False,
    offline: Offline = False,
) -> None:
    """Let an expert answer test cases, and judge its answers by running or comparing them.

    Verifiers: sql, cypher, json, typescript, python, exact, choice, number, regex, contains_all, command. Their keys are
    described in docs/EXPERT_FORMAT.md.

    A case: {"verifier": "sql", "database": "shop.sqlite", "expected": "SELECT ...", "prompt": "...", "input": "..."}. A row of
    --answers also has "answer"; prompt and input are optional there. Paths are relative to the file. Answers run on copies,
    with limits on time and memory.

    Answers are saved as they are made: if the command is stopped, the same command continues. The file of --output contains all
    answers; --answers judges them again, with the same cases or (--cases) with changed cases of the same ids and prompts.

    Examples:

        expert-cli evaluate --manifest experts/expert-sql/manifest.json --adapter runs/sql --baseline --shots 3
        expert-cli evaluate --adapter runs/sql --threshold 0.95 --against old.json --max-drop 0.02 --json
        expert-cli evaluate --adapter runs/sql --samples 8 --write-pairs pairs.jsonl
        expert-cli evaluate --adapter runs/sql --endpoint http://127.0.0.1:8000/v1 --model sql --output served.json
        expert-cli evaluate --answers runs/sql/evaluation.json --cases stricter.jsonl
    """
    found = api.evaluate(**arguments(api.evaluate, locals()))
    document = found.as_json()
    console.result(document, lambda: show_evaluated(console, document))
    if found.missed:
        raise ThresholdNotMet(found.missed, "see the failures above")
