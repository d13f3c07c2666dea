"""Run directories -> one HTML page that needs nothing else: no network, no other file.

What the page says and how stands in page/report.html.j2 alone; `report_data.py` gives it what the run's files hold. Curves are
drawn by uPlot (MIT, page/uplot.js): 51 kB without dependencies, made for long series, on canvases that follow the
width and the color scheme of the reader. Plotly's bundle alone is larger than a report may be (1.5 MB); SVG made by matplotlib
has text that shrinks with the page and one color scheme, and every user would have to install it. Bars are plain HTML. Jinja2
escapes whatever comes from the run, and the page's own policy forbids it to load anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expert_cli.artifacts.html_page import page_environment, page_part
from expert_cli.artifacts.report_data import RunData, accuracies, figures, matrices, read_run
from expert_cli.errors import InputError
from expert_cli.manifest.keys.log_save_eval import eval_loss_of
from expert_cli.runs.metrics import (
    BASES,
    base_title,
    forgotten_in_words,
    grammar_in_words,
    number,
    padding_share,
    sample_shares,
)
from expert_cli.runs.status import Ending
from expert_cli.utils.files import write_text
from expert_cli.utils.paths import shown
from expert_cli.utils.redaction import redact
from expert_cli.utils.text import duration, moment, shortened

if TYPE_CHECKING:
    import jinja2

MAX_RUNS = 6
COLORS = tuple(f"--s{number}" for number in range(1, MAX_RUNS + 1))
CHARACTERS = 600
"""Of one answer, or one cell of a table, that are shown."""
POINTS = 3000
"""Points of one chart, over all runs: with nine charts some 450 kB."""
MAX_SETS = 6
"""Tasks whose evaluation loss has a chart; all are in the table."""
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
    runs = [replace(run, name=name, color=color) for run, name, color in zip(runs, _names(runs), COLORS, strict=False)]
    charts, absent = _charts(runs)
    parts = {name: page_part(name.replace("_", ".")) for name in ("uplot_css", "report_css", "uplot_js", "report_js")}
    told = {"runs": runs, "accuracies": accuracies(runs), "charts": charts, "absent": absent, "bases": BASES}
    write_text(to, _template().render(**told, **parts))
    return [run.ending for run in runs]


@cache
def _template() -> jinja2.Template:
    """Return the page's template, which takes longer to compile than to render; what a run's files do not say is empty."""
    environment = page_environment()
    environment.filters |= {
        "base_title": base_title,
        "shortened": lambda value: shortened("" if value is None else str(value), CHARACTERS),
        "duration": lambda seconds: "" if number(seconds) is None else duration(seconds),
        "figure": _figure,
        "figures": figures,
        "forgotten_in_words": forgotten_in_words,
        "grammar_in_words": grammar_in_words,
        "matrices": matrices,
        "json": lambda value: json.dumps(value, ensure_ascii=False, default=lambda _: None),
        "moment": lambda time: moment(str(time)),
        "number": number,
        "padding_share": padding_share,
        "pairs": _pairs,
        "sample_shares": lambda document: sample_shares(document) if isinstance(document, Mapping) else [],
        "shown": lambda file: shown(file) if isinstance(file, str) else "",
        "those": lambda value: value if isinstance(value, list) else [],
        "zip": zip,
    }
    return environment.from_string(page_part("report.html.j2"))


def _figure(value: Any, form: str, scale: float = 1.0) -> str:
    """Return a number in words, "" where it is none. form: as `str.format` takes it."""
    found = number(value)
    return "" if found is None else form.format(found * scale)


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    """Return the keys and values of an object, or the pairs of a list."""
    pairs = list(value.items()) if isinstance(value, Mapping) else value if isinstance(value, list) else []
    return [(pair[0], pair[1]) for pair in pairs if isinstance(pair, (list, tuple)) and len(pair) == 2]


def _names(runs: Sequence[RunData]) -> list[str]:
    """Return the expert's name of each run; where several have the same, with as much of the folder as tells them apart."""
    names = [run.expert for run in runs]
    for depth in range(1, max(len(run.folder.parts) for run in runs)):
        names = [
            f"{run.expert} ({Path(*run.folder.parts[-depth:]).as_posix()})" if names.count(name) > 1 else name
            for run, name in zip(runs, names, strict=True)
        ]
    return [redact(name) for name in names]


def _charts(runs: Sequence[RunData]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the charts that have anything to show, and the titles of the others."""
    charts: list[dict[str, Any]] = []
    absent: list[str] = []
    of_sets = dict.fromkeys(name for run in runs for name in run.eval_sets)
    sets = [(f"Evaluation loss: {name}", "", (eval_loss_of(name),), False) for name in [*of_sets][:MAX_SETS]]
    for title, unit, keys, zero in (*CHARTS[:2], *sets, *CHARTS[2:]):
        series = []
        for run in runs:
            steps, values = run.series(keys, POINTS // len(runs))
            if steps:
                label = run.name if len(runs) > 1 else title
                series.append({"label": label, "color": run.color, "x": steps, "y": values})
        if series:
            charts.append({"id": f"chart-{len(charts)}", "title": title, "unit": unit, "zero": zero, "series": series})
        else:
            absent.append(title.lower().replace("gpu", "GPU").replace("flops", "FLOPs"))
    return charts, absent
