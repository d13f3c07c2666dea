"""The options of `expert-cli benchmark`, in the groups in which its help shows them, and which of its modes they ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from expert_cli.errors import InputError

Mode = Literal["watch", "experiment", "sweep", "compare"]

_WATCH, _MEASURE, _COMPARE = "Watch a run", "Measure (with --manifest)", "Compare saved results"

Run = Annotated[
    Path | None,
    typer.Option(
        "--run", help="Watch the run of this folder. Default: the newest one on this machine.", rich_help_panel=_WATCH
    ),
]
Duration = Annotated[float, typer.Option(min=0.1, help="Watch for this many seconds.", rich_help_panel=_WATCH)]
Interval = Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.", rich_help_panel=_WATCH)]
Manifest = Annotated[
    Path | None, typer.Option("--manifest", "-m", help="Measure this manifest.", rich_help_panel=_MEASURE)
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="padded|flattening|trl|unoptimized|MANIFEST",
        help="What it is measured against: a way of the stock libraries, or another manifest.",
        rich_help_panel=_MEASURE,
    ),
]
Sweep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=a,b,c",
        help="Values of a setting to try at the same effective batch; repeatable, every combination is run.",
        rich_help_panel=_MEASURE,
    ),
]
Steps = Annotated[int, typer.Option(min=1, help="Optimizer steps that are measured.", rich_help_panel=_MEASURE)]
Warmup = Annotated[int, typer.Option(min=0, help="Steps before them that are not.", rich_help_panel=_MEASURE)]
Repeats = Annotated[
    int | None, typer.Option(min=1, help="Runs of each side (3), of each combination (1).", rich_help_panel=_MEASURE)
]
Gate = Annotated[
    float | None,
    typer.Option(
        metavar="RATIO",
        min=0.01,
        help="Exit 5 if the ratio is below this, or the two do not learn the same.",
        rich_help_panel=_MEASURE,
    ),
]
Base = Annotated[
    str | None,
    typer.Option("--base-model", help="Base model of all runs, as train takes it.", rich_help_panel=_MEASURE),
]
Dataset = Annotated[str | None, typer.Option(help="Train on these rows instead.", rich_help_panel=_MEASURE)]
Validation = Annotated[str | None, typer.Option(help="Set these rows apart instead.", rich_help_panel=_MEASURE)]
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to run.", rich_help_panel=_MEASURE)]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of the first repeat.", rich_help_panel=_MEASURE)]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="training.config.KEY=VALUE",
        help="Change one setting of all runs; repeatable.",
        rich_help_panel=_MEASURE,
    ),
]
Compare = Annotated[
    tuple[Path, Path] | None,
    typer.Option(metavar="A.json B.json", help="Two results saved with --output.", rich_help_panel=_COMPARE),
]
Force = Annotated[
    bool, typer.Option("--force", help="Even of different machines, base models or rows.", rich_help_panel=_COMPARE)
]


def mode_of(
    run: Path | None,
    manifest: Path | None,
    against: str | None,
    sweep: list[str] | None,
    gate: float | None,
    compare: Any,
) -> Mode:
    """Return what is asked for. Raises InputError where the options do not say one thing."""
    modes: dict[Mode, bool] = {
        "watch": run is not None,
        "experiment": against is not None,
        "sweep": bool(sweep),
        "compare": compare is not None,
    }
    asked = [mode for mode, is_asked in modes.items() if is_asked]
    if len(asked) > 1:
        raise InputError("give one of --run, --against, --sweep, --compare")
    mode = asked[0] if asked else "watch"
    measures = mode in ("experiment", "sweep")
    if measures and manifest is None:
        raise InputError(f"--{'sweep' if sweep else 'against'} needs --manifest")
    if manifest is not None and not measures:
        raise InputError("--manifest needs --against padded|flattening|trl|unoptimized|MANIFEST, or --sweep KEY=a,b,c")
    if gate is not None and mode != "experiment":
        raise InputError("--gate needs --against")
    return mode
