"""One run directory as a report shows it: its files, its series, its evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from expert_cli.manifest.keys.log_save_eval import eval_loss_of
from expert_cli.runs.metrics import (
    BASES,
    SHARES,
    MetricsTail,
    base_title,
    items,
    mean_shares,
    number,
    numbers,
    part,
    read_json,
    require_run,
)
from expert_cli.runs.status import Ending, standing

ALL = "all cases"
SMALLEST_SHARE = 0.0005
"""Of a step's time: what takes less is not drawn."""


@dataclass(frozen=True)
class RunData:
    """What a run directory says; what it does not say is empty. name, color: those of the run on the page."""

    folder: Path
    lines: tuple[dict[str, Any], ...]
    run_json: dict[str, Any]
    report: dict[str, Any]
    evaluation: dict[str, Any]
    ending: Ending
    name: str = ""
    color: str = ""

    @property
    def expert(self) -> str:
        """The expert's name; the folder's where run.json is not there."""
        return str(part(self.run_json, "config").get("expert") or self.folder.name)

    @property
    def is_evaluated(self) -> bool:
        """Whether the evaluation is of the run's adapter: its hash is not another one."""
        evaluated, own = part(self.evaluation, "expert").get("adapter_sha256"), self.report.get("adapter_sha256")
        return bool(self.evaluation) and (not (evaluated and own) or evaluated == own)

    @cached_property
    def judged(self) -> dict[str, Any]:
        """The evaluation of this run's adapter; {} where there is none, one of another adapter, or one that counts nothing."""
        return self.evaluation if self.is_evaluated and share_of(self.evaluation) else {}

    def series(self, keys: tuple[str, ...], points: int) -> tuple[list[float], list[float]]:
        """Return steps and values of a metric, longer series as means of at most `points` equal stretches."""
        pairs = [
            (step, value)
            for line in self.lines
            if (step := number(line, "step")) is not None and (value := number(line, *keys)) is not None
        ]
        pairs.sort(key=lambda pair: pair[0])
        size = -(-len(pairs) // points)
        chunks = [pairs[start : start + size] for start in range(0, len(pairs), size)] if size > 1 else []
        thinned = [(chunk[-1][0], sum(value for _, value in chunk) / len(chunk)) for chunk in chunks] or pairs
        return [step for step, _ in thinned], [float(f"{value:.6g}") for _, value in thinned]

    @property
    def steps(self) -> float:
        """How many steps it has made."""
        return number(self.report, "steps") or max(numbers(self.lines, "step"), default=0.0)

    @property
    def losses(self) -> tuple[float, float] | None:
        """The loss of the first steps and of the last ones; of a run that is not whole, of the first and last one logged."""
        first, last = number(self.report, "loss", "first_mean"), number(self.report, "loss", "last_mean")
        if first is not None and last is not None:
            return first, last
        logged = numbers(self.lines, "loss")
        return (logged[0], logged[-1]) if logged else None

    @cached_property
    def eval_sets(self) -> dict[str, tuple[float, float]]:
        """The evaluation loss of each task that has one, at first and at last, by the task's name."""
        found: dict[str, tuple[float, float]] = {}
        for metric in dict.fromkeys(name for line in self.lines for name in line):
            name = metric.removeprefix("eval_").removesuffix("_loss")
            losses = numbers(self.lines, metric)
            if losses and metric == eval_loss_of(name):
                found[name] = (losses[0], losses[-1])
        return found

    @cached_property
    def shares(self) -> dict[str, float]:
        """What of a step's time goes where."""
        logged = part(self.report, "step_time_shares")
        shares = {name: number(logged, name) or 0.0 for name in SHARES} if logged else mean_shares(self.lines)
        return {name: value for name, value in shares.items() if value >= SMALLEST_SHARE}

    @cached_property
    def lengths(self) -> list[tuple[Any, ...]]:
        """How many training documents there are, and from which to which length in tokens."""
        histogram = part(self.run_json, "data", "train", "histogram")
        counts, edges = ([number(value) for value in items(histogram, key)] for key in ("counts", "edges"))
        if None in (*counts, *edges) or len(edges) != len(counts) + 1 or not any(counts):
            return []
        return list(zip(counts, edges, edges[1:], strict=False))


def read_run(folder: Path) -> RunData:
    """Read a run directory, whole or not. Raises InputError: there is none."""
    paths = require_run(folder)
    lines = tuple(MetricsTail(paths.metrics).read())
    run, report, evaluation = (read_json(path) for path in (paths.run_json, paths.report_json, paths.evaluation))
    command = str(run.get("command") or "")
    ending = standing(paths.status, is_complete=paths.complete.exists(), command=command)
    return RunData(paths.output, lines, run, report, evaluation, ending)


def figures(value: Any, *keys: str) -> dict[str, Any] | None:
    """Return the numbers under these keys and the two `ends` of "ci95" (None without it); None where a number is missing."""
    found = {key: number(value, key) for key in keys}
    ends = [end for end in map(number, items(value, "ci95")) if end is not None]
    return None if None in found.values() else {**found, "ends": ends if len(ends) == 2 else None}


def share_of(found: Any) -> dict[str, Any] | None:
    """Return the figures of {"cases", "correct", "accuracy", "ci95"}; None where one is missing, or there are no cases."""
    share = figures(found, "cases", "correct", "accuracy")
    return share if share and share["cases"] and share["ends"] else None


def accuracies(runs: Sequence[RunData]) -> list[tuple[str, list[tuple[str, str, dict[str, Any]]]]]:
    """Return the bars (who, color, share) of all cases and of every category: each expert's, its base model's below it."""
    judged = [run for run in runs if run.judged]
    by_category = [part(run.judged, "by_category") for run in judged]
    groups = []
    for category in (None, *dict.fromkeys(name for of_run in by_category if len(of_run) > 1 for name in of_run)):
        bars = []
        for run in judged:
            bases = [(key, base) for key in BASES if (base := part(run.judged, key))]
            who = run.name if len(judged) > 1 else "expert" if bases else ""
            asked = [(who, run.color, run.judged), *((base_title(*one), "--base", one[1]) for one in bases)]
            for who, color, found in asked:
                share = share_of(found if category is None else part(found, "by_category", category))
                bars += [(who, color, share)] if share else []
        groups.append((ALL if category is None else category, bars))
    return groups if judged else []


def matrices(evaluation: Any) -> list[dict[str, Any]]:
    """Return the entries under "classification" that are whole: labels, a row of counts for each, and the macro F1."""
    found = [one for one in items(evaluation, "classification") if number(one, "macro_f1") is not None]
    return [one for one in found if _is_matrix(items(one, "labels"), items(one, "confusion"))]


def _is_matrix(labels: Sequence[Any], rows: Sequence[Any]) -> bool:
    whole = [row for row in rows if isinstance(row, list) and len(row) == len(labels) + 1]
    counts = all(isinstance(count, int) and count >= 0 for row in whole for count in row)
    return len(whole) == len(rows) == len(labels) > 0 and all(isinstance(label, str) for label in labels) and counts
