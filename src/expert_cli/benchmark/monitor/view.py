"""What a watched run looks like in a terminal: text, nothing is printed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from expert_cli.benchmark.monitor.gauges import GAUGES, gpu_of, main_gpu, series, sparkline, spread
from expert_cli.benchmark.monitor.session import MonitorSession
from expert_cli.runs.metrics import SHARES, numbers, rates

HEAD = ["", "now", "mean", "min", "max", ""]


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
    sample = seen.samples[-1]
    gpu = gpu_of(sample, main_gpu(seen.samples, seen.gpu_index))
    return "  ".join(
        f"{gauge.label} {gauge.text(value)}"
        for gauge in GAUGES
        if gauge.block != "machine" or gauge.key.startswith(("cpu", "disk"))
        if (value := gauge.read(sample, gpu)) is not None
    )


def rows(seen: MonitorSession) -> list[list[str]]:
    """Return the table of everything that is known, one row a figure, the time as a row of bars at its end."""
    index = main_gpu(seen.samples, seen.gpu_index)
    tokens, held = rates(seen.lines, "tokens_per_s", seen.earlier)
    table = [HEAD]
    if tokens:
        table.append(["tokens/s", *_cells([tokens[-1], *_spread(tokens, held)], "", 0), sparkline(tokens)])
    for gauge in GAUGES:
        values = series(gauge, seen.samples, index)
        if values:
            cells = _cells([values[-1], *_spread(values)], gauge.unit, gauge.digits)
            table.append([gauge.label, *cells, sparkline(values)])
    return table


def summary(document: Mapping[str, Any]) -> str:
    """Return a finished watch as lines: figures, shares, verdict, evidence, advice, notes."""
    told = [
        f"{document['run']}: {document['samples']} samples in {document['seconds']:.0f} s, {document['steps']} steps"
    ]
    spreads = [("tokens/s", "", 0, document["tokens_per_s"])]
    spreads += [(g.label, g.unit, g.digits, (document[g.block] or {}).get(g.key)) for g in GAUGES]
    known = [(label, _cells([v["mean"], v["min"], v["max"]], unit, digits)) for label, unit, digits, v in spreads if v]
    if known:
        table = [["", "mean", "min", "max"], *([label, *cells] for label, cells in known)]
        told += [f"  {row[0]:16}" + "".join(f"{cell:>16}" for cell in row[1:]) for row in table]
    shares = document["step_time_shares"]
    if shares:
        parts = [f"{name.replace('_', ' ')} {shares[name]:.0%}" for name in SHARES if shares[name] >= 0.005]
        told.append(f"  time of a step: {', '.join(parts)}")
    told += ["", f"verdict: {document['verdict']}", *(f"  {text}" for text in document["evidence"])]
    if document["advice"]:
        told += ["change:", *(f"  {one['text']}" for one in document["advice"])]
    return "\n".join([*told, *(f"note: {text}" for text in document["notes"])])


def _spread(values: list[float], weights: Sequence[float] = ()) -> list[float]:
    whole = spread(values, weights) or {}
    return [whole["mean"], whole["min"], whole["max"]]


def _cells(values: list[float], unit: str, digits: int) -> list[str]:
    return [f"{value:,.{digits}f} {unit}".rstrip() for value in values]
