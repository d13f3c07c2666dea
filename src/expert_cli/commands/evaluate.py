"""`expert-cli evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from expert_cli import api
from expert_cli.api.experts import MAX_DROP
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
    answers: Annotated[
        Path | None, typer.Option(help="Judge these answers instead: JSON lines, or what --output wrote, judged again.")
    ] = None,
    cases: Annotated[
        Path | None,
        typer.Option(help="Default: tests/cases.jsonl beside the manifest; others are kept only by --output."),
    ] = None,
    baseline: Annotated[
        bool, typer.Option("--baseline", help="Let the base model answer as well, and the expert without its grammar.")
    ] = False,
    shots: Annotated[
        int, typer.Option(min=0, help="With --baseline: once more after so many rows as examples.", show_default=False)
    ] = 0,
    base_model: TrainedBase = None,
    base_quantization: Annotated[
        Literal["none", "bf16", "int8", "int4"] | None,
        typer.Option(help="Hold the base model so, as servers may; kept only by --output. Default: as in training."),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A server that speaks OpenAI's protocol answers instead: by chat, or by text where the URL ends in "
            "/completions. Kept only by --output. Its key: OPENAI_API_KEY.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --endpoint: what the server calls the model.")
    ] = None,
    baseline_endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="Let the model of this server answer as well, held to nothing.")
    ] = None,
    baseline_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --baseline-endpoint: what that server calls it.")
    ] = None,
    samples: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="K",
            help="Draw K answers to each case: pass@1 to pass@K, and the majority. Default: one, not drawn.",
            show_default=False,
        ),
    ] = 0,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Answers written at once. Default: 32; on a GPU 64.")
    ] = None,
    max_new_tokens: MaxNewTokens = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only N rows, spread over the categories; kept only by --output.")
    ] = None,
    case_timeout_s: Annotated[
        float,
        typer.Option(
            "--case-timeout",
            min=0.01,
            help="Seconds that one answer may run; reading a program has as long, at least 2.",
        ),
    ] = 2.0,
    threshold: Annotated[float | None, typer.Option(min=0, max=1, help="Exit 5 if the accuracy is below this.")] = None,
    against: Annotated[Path | None, typer.Option(help="An earlier evaluation, compared case by case.")] = None,
    max_drop: Annotated[
        float | None,
        typer.Option(min=0, max=1, help=f"With --against: exit 5 if the accuracy fell by more than this; {MAX_DROP}."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Write the JSON document here as well; a run directory gets that of its own cases."),
    ] = None,
    write_pairs: Annotated[
        Path | None, typer.Option(help="A new file of right and wrong samples to one prompt, for TRL's DPOTrainer.")
    ] = None,
    allow_commands: AllowCommands = False,
    without_walls: WithoutWalls = False,
    offline: Offline = False,
) -> None:
    """Let an expert answer its cases, and judge the answers: queries and programs by running them, all else by comparing it.

    Verifiers: sql, cypher, json, typescript, python, exact, choice, number, regex, contains_all, command. Their keys:
    docs/EXPERT_FORMAT.md.

    A case: {"verifier": "sql", "database": "shop.sqlite", "expected": "SELECT ...", "prompt": "...", "input": "..."}; a row
    of --answers has "answer", with or without prompt and input. Paths are relative to the file. Answers can change nothing:
    they run on copies, within limits of time and memory.

    With --samples each case is answered K times, by seeds that depend on the cases. pass@k is
    the unbiased estimate of how likely one of k is right. For the majority, answers that give the same (rows, value, label)
    are one, programs those of one text but for comments and spacing; what gives nothing has no vote, no rows only where no
    answer has any; of equals the first wins.
    Accuracy, categories and --against are those of the first tries. The base model has one try, and so has the expert without
    its grammar.

    Answers are kept as they are made, beside the result: the same command goes on where it was stopped.

    What --output writes keeps every answer; --answers judges them again, by the cases that they were given to or by other
    ones of the same ids and prompts (--cases).

    Examples:

        expert-cli evaluate --manifest experts/expert-sql/manifest.json --adapter runs/sql --baseline --shots 3

        expert-cli evaluate --adapter runs/sql --threshold 0.95 --against old.json --max-drop 0.02 --json

        expert-cli evaluate --adapter runs/sql --samples 8 --output samples.json

        expert-cli evaluate --adapter runs/sql --samples 8 --write-pairs pairs.jsonl

        expert-cli evaluate --adapter runs/sql --endpoint http://127.0.0.1:8000/v1 --model sql --output served.json

        expert-cli evaluate --answers answers.jsonl --output evaluation.json

        expert-cli evaluate --answers runs/sql/evaluation.json --cases stricter.jsonl
    """
    asked = locals()
    if (answers is None) == (adapter is None and endpoint is None):
        raise typer.BadParameter("give --adapter DIR, --endpoint URL or --answers FILE")
    if answers is not None and (baseline or shots or samples or baseline_endpoint or base_quantization):
        raise typer.BadParameter("--baseline, --shots and --samples go with --adapter: --answers are written already")
    function = api.evaluate if answers is None else api.grade_answers
    found = function(**arguments(function, asked))
    if console.as_json:
        console.document(found.as_json())
        raise typer.Exit(ThresholdNotMet.exit_code if found.missed else 0)
    show_evaluated(console, found)
    if found.missed:
        raise ThresholdNotMet(found.missed, "see the failures above")
