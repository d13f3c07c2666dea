"""`expert-cli benchmark`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from expert_cli.commands.options import Debug, Json, Quiet
from expert_cli.console import SCHEMA_VERSION, Console

INTERRUPTED = 130


def benchmark(
    run: Annotated[
        Path | None,
        typer.Option("--run", help="Watch the run of this folder. Default: the newest one on this machine."),
    ] = None,
    duration: Annotated[float, typer.Option(min=0.1, help="Watch for this many seconds.")] = 60.0,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    output: Annotated[Path | None, typer.Option(help="Write the JSON document to this file, too.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001  read by cli.main
) -> None:
    """Watch a training run from a second terminal and say what holds it back.

    Samples GPU, CPU, memory, disk and network, reads tokens/s and step times from the run's own metrics, and ends with a
    verdict, the numbers behind it, and what to change. Ctrl-C ends the watching early, never the run.

    Examples:

        expert-cli benchmark

        expert-cli benchmark --run experts/expert-sql/weights/smollm2 --duration 120 --output watched.json
    """
    _watch(Console("benchmark", as_json=as_json, quiet=quiet), run, duration, interval, output)


def _watch(console: Console, folder: Path | None, duration: float, interval: float, output: Path | None) -> None:
    from expert_cli.benchmark import monitor, view
    from expert_cli.files import write_json

    target = monitor.find_run(folder)
    console.say(f"watching  {target.paths.output}")
    for other in target.others:
        console.say(f"runs too  {other} (--run names another)")
    with console.live() as show:
        seen = monitor.watch(target, duration, interval, lambda s: show(view.words(s), view.figures(s), view.rows(s)))
    document = seen.as_json()
    if output is not None:
        write_json(output, {"schema_version": SCHEMA_VERSION, "command": "benchmark", **document})
    if console.as_json:
        console.document(document)
    else:
        console.text(view.summary(document))
    if seen.interrupted:
        raise typer.Exit(INTERRUPTED)
