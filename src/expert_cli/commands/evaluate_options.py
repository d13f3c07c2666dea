"""The options of `expert-cli evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Answers = Annotated[
    Path | None, typer.Option(help="Judge these answers instead, one JSON object a line.", show_default=False)
]
Cases = Annotated[
    Path | None,
    typer.Option(
        help="The cases. Default: tests/cases.jsonl beside the manifest; where it is, others are kept only by --output.",
        show_default=False,
    ),
]
Baseline = Annotated[bool, typer.Option("--baseline", help="Let the base model answer as well.")]
Sample = Annotated[bool, typer.Option("--sample", help="Draw by the manifest's training.decoding, not greedily.")]
BatchSize = Annotated[
    int | None, typer.Option(min=1, help="Answers written at once. Default: 16; on a GPU 64.", show_default=False)
]
Limit = Annotated[
    int | None,
    typer.Option(min=1, help="Only N rows, spread over the categories; kept only by --output.", show_default=False),
]
CaseTimeout = Annotated[float, typer.Option(min=0.01, help="Seconds that one answer may run.")]
Threshold = Annotated[
    float | None, typer.Option(min=0, max=1, help="Exit 5 if the accuracy is below this.", show_default=False)
]
Against = Annotated[Path | None, typer.Option(help="An earlier evaluation, compared case by case.", show_default=False)]
MaxDrop = Annotated[
    float, typer.Option(min=0, max=1, help="With --against: exit 5 if the accuracy fell by more than this.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        help="Write the JSON document here as well; an adapter's run directory gets that of all its own cases anyway: "
        "evaluation.json.",
        show_default=False,
    ),
]
