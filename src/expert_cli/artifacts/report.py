"""Run directories -> one HTML page that needs nothing else: no network, no other file.

Curves are drawn by uPlot (MIT, page/uplot.js): 51 kB without dependencies, made for long series, on canvases that follow the
width and the color scheme of the reader. Plotly's bundle alone is larger than a report may be (1.5 MB); SVG made by matplotlib
has text that shrinks with the page and one color scheme, and every user would have to install it. Bars are plain HTML. Jinja2
escapes whatever comes from the run, and the page's own policy forbids it to load anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from expert_cli.artifacts.report_data import RunData, read_run
from expert_cli.artifacts.report_evaluation import accuracies
from expert_cli.errors import InputError
from expert_cli.runs.status import Ending
from expert_cli.utils.files import redact, write_text

MAX_RUNS = 6
COLORS = tuple(f"--s{number}" for number in range(1, MAX_RUNS + 1))
POINTS = 3000
"""Points of one chart, over all runs: with nine charts some 450 kB."""
CHARTS: tuple[tuple[str, str, tuple[str, ...], bool], ...] = (
    # title, unit, keys of the metric, from zero
    ("Loss", "", ("loss",), False),
    ("Evaluation loss", "", ("eval_loss",), False),
    ("Accuracy of sampled answers", "", ("execution_accuracy",), True),
    ("Learning rate", "", ("learning_rate",), True),
    ("Real tokens a second", "", ("tokens_per_s",), True),
    ("GPU utilization", "%", ("gpu", "utilization"), True),
    ("Model FLOPs utilization", "", ("mfu",), True),
    ("Memory", "MB", ("memory_mb",), True),
    ("Gradient norm", "", ("grad_norm",), True),
)


def write_report(run_dirs: Sequence[Path], to: Path) -> list[Ending]:
    """Draw the runs side by side into the file `to`; return how each stands.

    Raises InputError: no run in a folder, more than MAX_RUNS of them.
    """
    if not 1 <= len(run_dirs) <= MAX_RUNS:
        raise InputError(f"{len(run_dirs)} runs: a report shows 1 to {MAX_RUNS}", "name fewer folders")
    runs = [read_run(folder) for folder in run_dirs]
    write_text(to, page(runs))
    return [run.ending for run in runs]


def page(runs: Sequence[RunData]) -> str:
    """Return the page of these runs."""
    import jinja2

    names = _names(runs)
    charts, absent = _charts(runs, names)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    return environment.from_string(_part("report.html.j2")).render(
        title=names[0] if len(runs) == 1 else f"{len(runs)} runs",
        accuracies=accuracies(
            [(name, color, run.judged) for run, name, color in zip(runs, names, COLORS, strict=False)]
        ),
        runs=[run.shown(name, color) for run, name, color in zip(runs, names, COLORS, strict=False)],
        charts=charts,
        absent=absent,
        css=_part("report.css"),
        js=_part("report.js"),
        uplot_css=_part("uplot.css"),
        uplot_js=_part("uplot.js"),
    )


def _shown(value: Any) -> Any:
    """Cut secrets out of a text before it is escaped; the page's own parts are no plain texts."""
    return redact(value) if type(value) is str else value


@cache
def _part(name: str) -> str:
    return files("expert_cli.artifacts").joinpath(f"page/{name}").read_text(encoding="utf-8")


def _names(runs: Sequence[RunData]) -> list[str]:
    """Return the expert's name of each run; where several have the same, with as much of the folder as tells them apart."""
    names = [run.expert for run in runs]
    for depth in range(1, max(len(run.folder.parts) for run in runs)):
        names = [
            f"{run.expert} ({Path(*run.folder.parts[-depth:]).as_posix()})" if names.count(name) > 1 else name
            for run, name in zip(runs, names, strict=True)
        ]
    return [redact(name) for name in names]


def _charts(runs: Sequence[RunData], names: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the charts that have anything to show, and the titles of the others."""
    charts: list[dict[str, Any]] = []
    absent: list[str] = []
    for title, unit, keys, zero in CHARTS:
        series = []
        for run, name, color in zip(runs, names, COLORS, strict=False):
            steps, values = run.series(keys, POINTS // len(runs))
            if steps:
                series.append({"label": name if len(runs) > 1 else title, "color": color, "x": steps, "y": values})
        if series:
            charts.append({"id": f"chart-{len(charts)}", "title": title, "unit": unit, "zero": zero, "series": series})
        else:
            absent.append(title.lower().replace("gpu", "GPU").replace("flops", "FLOPs"))
    return charts, absent
