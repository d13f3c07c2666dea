"""The options of `expert-cli evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from expert_cli.api.experts import MAX_DROP

Answers = Annotated[
    Path | None,
    typer.Option(
        help="Judge these answers instead: one JSON object a line, or what --output wrote, whose answers are judged again."
    ),
]
Cases = Annotated[
    Path | None,
    typer.Option(
        help="The cases. Default: tests/cases.jsonl beside the manifest; where it is, others are kept only by --output."
    ),
]
Baseline = Annotated[
    bool, typer.Option("--baseline", help="Let the base model answer as well, asked in its own chat template.")
]
Shots = Annotated[
    int,
    typer.Option(
        min=0,
        help="With --baseline: ask the base model once more, after so many training rows as examples.",
        show_default=False,
    ),
]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Answers written at once. Default: 16; on a GPU 64.")]
Limit = Annotated[
    int | None,
    typer.Option(min=1, help="Only N rows, spread over the categories; kept only by --output."),
]
CaseTimeout = Annotated[float, typer.Option(min=0.01, help="Seconds that one answer may run.")]
Threshold = Annotated[float | None, typer.Option(min=0, max=1, help="Exit 5 if the accuracy is below this.")]
Against = Annotated[Path | None, typer.Option(help="An earlier evaluation, compared case by case.")]
MaxDrop = Annotated[
    float | None,
    typer.Option(min=0, max=1, help=f"With --against: exit 5 if the accuracy fell by more than this; {MAX_DROP}."),
]
Output = Annotated[
    Path | None,
    typer.Option(
        help="Write the JSON document here as well; an adapter's run directory gets that of all its own cases anyway: "
        "evaluation.json."
    ),
]


def require_company(answers: Path | None, adapter: Path | None, *, baseline: bool, shots: int, sample: bool) -> None:
    """Raise BadParameter for --adapter and --answers together, for neither, and for what only an adapter can do."""
    if (answers is None) == (adapter is None):
        raise typer.BadParameter("give --adapter DIR, or --answers FILE")
    if answers is not None and (baseline or shots or sample):
        raise typer.BadParameter("--baseline, --shots and --sample go with --adapter: --answers are written already")
