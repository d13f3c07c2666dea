"""What a watched run looks like in a terminal: text, nothing is printed here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from expert_cli.benchmark.monitor.gauges import GAUGES, Gauge, main_gpu, series, sparkline, spread
from expert_cli.benchmark.monitor.session import MonitorSession
from expert_cli.runs.metrics import SHARES, numbers, rates

SPREAD = ["mean", "min", "max"]
SPEED = Gauge("", "tokens_per_s", "tokens/s", "", lambda *_: None)
"""Of the run's own lines, not of the samples."""


def progress_line(seen: MonitorSession) -> str:
    """Return how far watching and run have come."""
    lines = seen.lines or seen.earlier
    parts = [f"{seen.seconds:5.0f} s"]
    parts += [f"step {step:,.0f}" for step in numbers(lines, "step")[-1:]]
    parts += [f"loss {loss:.3f}" for loss in numbers(lines, "loss")[-1:]]
    parts += [f"{rate:,.0f} tokens/s" for rate in numbers(lines, "tokens_per_s")[-1:]]
    return "  ".join(parts)


def figures_line(seen: MonitorSession) -> str:
    """Return the newest sample's main figures as part of a line."""
    index = main_gpu(seen.samples, seen.gpu_index)
    return "  ".join(
        f"{gauge.label} {gauge.text(value)}"
        for gauge in GAUGES
        if gauge.block != "machine" or gauge.key.startswith(("cpu", "disk"))
        for value in series(gauge, seen.samples[-1:], index)
    )


def rows(seen: MonitorSession) -> list[list[str]]:
    """Return the table of everything that is known, one row a figure, the time as a row of bars at its end."""
    index = main_gpu(seen.samples, seen.gpu_index)
    over_time = [(SPEED, *rates(seen.lines, "tokens_per_s", seen.earlier))]
    over_time += [(gauge, series(gauge, seen.samples, index), []) for gauge in GAUGES]
    table = [["", "now", *SPREAD, ""]]
    for gauge, values, held in over_time:
        if whole := spread(values, held):
            table.append([gauge.label, *map(gauge.text, [values[-1], *whole.values()]), sparkline(values)])
    return table


def summary(document: Mapping[str, Any]) -> str:
    """Return a finished watch as lines: figures, shares, verdict, evidence, advice, notes."""
    told = [
        f"{document['run']}: {document['samples']} samples in {document['seconds']:.0f} s, {document['steps']} steps"
    ]
    wholes = [(SPEED, document["tokens_per_s"]), *((g, (document[g.block] or {}).get(g.key)) for g in GAUGES)]
    known = [[gauge.label, *(gauge.text(whole[name]) for name in SPREAD)] for gauge, whole in wholes if whole]
    if known:
        told += [
            f"  {label:16}" + "".join(f"{cell:>16}" for cell in cells) for label, *cells in [["", *SPREAD], *known]
        ]
    shares = document["step_time_shares"]
    if shares:
        parts = [f"{name.replace('_', ' ')} {shares[name]:.0%}" for name in SHARES if shares[name] >= 0.005]
        told.append(f"  time of a step: {', '.join(parts)}")
    told += ["", f"verdict: {document['verdict']}", *(f"  {text}" for text in document["evidence"])]
    if document["advice"]:
        told += ["change:", *(f"  {one['text']}" for one in document["advice"])]
    return "\n".join([*told, *(f"note: {text}" for text in document["notes"])])
