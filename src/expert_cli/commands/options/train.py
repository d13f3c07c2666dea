"""The options of `expert-cli train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Output = Annotated[
    Path | None, typer.Option(help="Folder of the run. Default: weights/<base model>/ beside the manifest.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Move a run that lies there aside.")]
Dataset = Annotated[str | None, typer.Option(help="Train on this file, folder or hub id instead.")]
Validation = Annotated[str | None, typer.Option(help="Evaluate on these rows instead.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Epochs = Annotated[float | None, typer.Option(min=0, help="Passes over the data.")]
MaxSteps = Annotated[int | None, typer.Option(min=1, help="Stop after this many optimizer steps.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of everything random.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="training.config.KEY=VALUE", help="Change one setting; repeatable.")
]
Resume = Annotated[
    str | None,
    typer.Option(metavar="auto|PATH", help="Go on: with the newest good checkpoint (auto) or the one in PATH."),
]
AllowDrift = Annotated[
    list[str] | None, typer.Option(metavar="KEY", help="With --resume: what may differ from before; repeatable.")
]
MaxLossSpike = Annotated[
    float, typer.Option(min=0, metavar="FACTOR", help="Warn of a loss this many times the median of the last 20.")
]
Locked = Annotated[
    Path | None,
    typer.Option(help="A run.json: refuse (exit 6) if data, tokenizer, base model, settings or code differ."),
]
TrustStore = Annotated[
    bool, typer.Option("--trust-store", help="Use a tokenized data set that another program saved there.")
]
Stage = Annotated[Path | None, typer.Option(help="Copy the token store to this folder (a faster disk) first.")]
PlanOnly = Annotated[
    bool, typer.Option("--plan", help="Train nothing: say what the run will need and cost. Builds the token store.")
]
Probe = Annotated[bool, typer.Option("--probe", help="With --plan: measure a few real steps.")]
Price = Annotated[str, typer.Option(metavar="2.50/h", help="With --plan: what an hour of this machine costs.")]
