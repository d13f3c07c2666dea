"""Writes an HTML page about one or more run directories, which needs no network and no other file.

The template is page/report.html.j2. uPlot (MIT, page/uplot.js, 51 kB) draws the curves, because it handles long series. Jinja2
escapes all values from the run, and the page's content security policy forbids loading anything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2

from expert_cli.errors import InputError
from expert_cli.runs import metrics
from expert_cli.runs.run_paths import RunPaths
from expert_cli.runs.status import Ending, standing
from expert_cli.utils.files import write_text
from expert_cli.utils.text import duration, moment, short_place, shortened

MAX_RUNS, CHARACTERS = 6, 600
"""Largest number of runs in a report (each has its own color), and of characters shown of one text."""


def write_report(run_dirs: Sequence[Path], to: Path) -> list[Ending]:
    """Write the page to the file `to`; return the runs' states. Raises InputError for a folder without a run, or too many."""
    if not 1 <= len(run_dirs) <= MAX_RUNS:
        raise InputError(f"{len(run_dirs)} runs: a report shows 1 to {MAX_RUNS}", "name fewer folders")
    found = [_read_run(metrics.require_run(folder)) for folder in run_dirs]
    twice = len({run.expert for run in found}) < len(found)
    folders, drives = [run.folder for run in found], {run.folder.drive for run in found}
    if len(drives) == 1:
        above = os.path.commonpath(folders)
        folders = [folder.relative_to(above) for folder in folders]
    named = zip(found, folders, strict=True)
    names = [f"{run.expert} ({folder.as_posix()})" if twice else run.expert for run, folder in named]
    runs = list(zip(names, found, strict=True))
    logged = dict.fromkeys(name for run in found for line in run.lines for name in line)
    charts = []
    for key in [name for name in logged if name == "loss" or name.startswith("eval_")]:
        series = []
        for number, (name, run) in enumerate(runs, start=1):
            pairs = sorted((line["step"], line[key]) for line in run.lines if metrics.number(line, key) is not None)
            x, y = [step for step, _ in pairs], [float(f"{value:.6g}") for _, value in pairs]
            series += [{"label": name, "run": number, "x": x, "y": y}] if pairs else []
        charts += [{"title": key.replace("_", " "), "series": series}] if series else []
    parts = {name: page_part(name.replace("_", ".")) for name in ("uplot_css", "report_css", "uplot_js", "report_js")}
    write_text(to, _template().render(runs=runs, charts=charts, bases=metrics.BASES, **parts))
    return [run.ending for run in found]


def _read_run(paths: RunPaths) -> Any:
    run, report, evaluation = map(metrics.read_json, (paths.run_json, paths.report_json, paths.evaluation))
    expert = str(metrics.part(run, "config").get("expert") or paths.output.name)
    ending = standing(paths.status, is_complete=paths.complete.exists(), command=str(run.get("command") or ""))
    told = {"run": run, "report": report, "evaluation": evaluation, "ending": ending, "expert": expert}
    return SimpleNamespace(folder=paths.output, lines=metrics.MetricsTail(paths.metrics).read(), **told)


@cache
def page_part(name: str) -> str:
    """Return a file of `page/`."""
    return files("expert_cli.artifacts").joinpath(f"page/{name}").read_text(encoding="utf-8")


@cache
def _template() -> jinja2.Template:
    """Return the page's template, compiled once; values missing in a run's files render as empty."""
    look: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": jinja2.ChainableUndefined}
    environment = jinja2.Environment(autoescape=True, finalize=lambda text: "" if text is None else text, **look)
    environment.filters |= {
        "duration": lambda seconds: duration(seconds) if seconds else "",
        "figure": lambda value, form, scale=1: form.format(value * scale) if metrics.number(value) is not None else "",
        "json": lambda value: json.dumps(value, indent=1, ensure_ascii=False),
        "moment": lambda time: moment(str(time)),
        "pairs": lambda value: list(value.items()) if isinstance(value, Mapping) else [],
        "short": lambda text: shortened(str(text), CHARACTERS),
        "shown": short_place,
    }
    words = ("base_title", "forgotten_in_words", "mean_shares", "sample_shares")
    environment.filters |= {name: getattr(metrics, name) for name in words}
    return environment.from_string(page_part("report.html.j2"))
