"""Results of experiments and sweeps as a person reads them: text, nothing is printed here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from expert_cli.runs.metrics import SHARES

Document = Mapping[str, Any]


def as_text(document: Document) -> str:
    """Return the lines of a document by its kind."""
    lines = {"experiment": _experiment, "sweep": _sweep}[document["kind"]](document)
    return "\n".join([*lines, *(f"note: {note}" for note in document["notes"])])


def _experiment(document: Document) -> list[str]:
    lines = [f"{name.upper()}  {document[name]['name']}" for name in ("a", "b") if document[name]]
    sides = [document["a"], document["b"]]
    lines += _figures(sides)
    counts = [len(side["runs"]) if side else 0 for side in sides]
    if document["ratio"]:
        after = f"{document['steps']} steps after {document['warmup']} of warm-up"
        lines += ["", f"A is {_ratio(document['ratio'])} as fast as B ({min(counts)} pairs of {after})"]
        lines.append(f"median of the pairs: {document['median_ratio']:.2f}x")
        lines.append(_loss(document["loss_parity"]))
    if document["gate"]:
        gate = document["gate"]
        lines.append(f"gate {gate['ratio']:g}: " + ("passed" if gate["passed"] else f"missed, {gate['reason']}"))
    if document["interrupted"]:
        lines.append(f"interrupted: {counts[0]} and {counts[1]} of {document['repeats']} runs each are done")
    return lines


def _sweep(document: Document) -> list[str]:
    rows = [["", *SWEPT.values()]]
    for trial in document["trials"]:
        name, measured = " ".join(word.removeprefix("training.config.") for word in trial["set"]), trial["measured"]
        cells = (
            [FIGURES[figure](measured) for figure in SWEPT] if measured else [f"{trial['status']}: {trial['reason']}"]
        )
        rows.append([name, *cells])
    lines = [f"effective batch {document['effective_batch']}, {document['steps']} steps each", *_grid(rows)]
    best = document["fastest"]
    if best:
        lines += [
            "",
            "fastest that fits:",
            "  " + " ".join(f"--set {word}" for word in best["set"]),
            "in the manifest (a base model's own config goes before training.config):",
        ]
        lines += [f"  {line}" for line in json.dumps(best["manifest"], indent=2).splitlines()]
    else:
        lines += ["", "nothing ran"]
    return [*lines, "interrupted: not every combination was run"] if document["interrupted"] else lines


def _figures(sides: Sequence[Document | None]) -> list[str]:
    """Return the table of two sides' figures; a figure that neither knows is left out."""
    rows = [[label, *(show(side) if side else "-" for side in sides)] for label, show in FIGURES.items()]
    return _grid([["", "A", "B"], *(row for row in rows if set(row[1:]) - {"-", "0 %"})])


def _loss(same: Document | None) -> str:
    if same is None:
        return "loss: cannot be compared"
    start, stop = same["tokens"]
    where = f"over trained tokens {start:,} to {stop:,}"
    if same["verdict"] == "not finite":
        return f"loss: BROKEN, not finite {where}"
    word = "equal" if same["holds"] else f"BROKEN, A's is {same['verdict']}"
    apart = f"{same['a']:.4f} and {same['b']:.4f}, {abs(same['difference']):.4f} apart"
    allowed = f"{same['band']:.4f} allowed: {same['tolerance']:.4f} and {same['noise']:.4f} of noise"
    return f"loss: {word}, {apart} ({allowed}) {where}"


def _ratio(ratio: Document) -> str:
    return f"{ratio['mean']:.2f}x" + (
        f" (95 %: {ratio['ci95'][0]:.2f} to {ratio['ci95'][1]:.2f})" if ratio["ci95"] else ""
    )


def _interval(estimate: Document) -> str:
    mean, ci = estimate["mean"], estimate["ci95"]
    return _number(mean) + (f" ±{_number((ci[1] - ci[0]) / 2)}" if ci else "")


def _number(value: float | None, digits: int | None = None) -> str:
    if value is None:
        return "-"
    return f"{value:,.{(1 if abs(value) < 100 else 0) if digits is None else digits}f}"


def _percent(share: float | None, whole: float = 100.0) -> str:
    """Return a share of 1 (or per cent already: `whole` 1) as per cent."""
    return "-" if share is None else f"{share * whole:.0f} %"


FIGURES: dict[str, Callable[[Document], str]] = {
    "real tokens/s": lambda s: _interval(s["tokens_per_s"]),
    "seconds per epoch": lambda s: _number(s["seconds_per_epoch"]),
    "tokens a step": lambda s: _number(s["tokens_per_step"]),
    "padding": lambda s: _percent(s["padding_share"]),
    "loss": lambda s: _number(s["loss"], 4),
    "peak memory": lambda s: f"{s['peak_memory_mb']:,.0f} MB",
    "CPU (100 % = a core)": lambda s: _percent(s["utilization"]["cpu"], 1),
    "GPU": lambda s: _percent(s["utilization"]["gpu"], 1),
    **{
        f"time: {name.replace('_', ' ')}": lambda s, name=name: (  # type: ignore[misc]
            _percent(None if s.get("stock") else s["step_time_shares"][name])  # the stock Trainer tells none
        )
        for name in SHARES
    },
}
"""What is shown of a side, or of a sweep's combination."""
SWEPT = {
    "real tokens/s": "tokens/s",
    "peak memory": "peak memory",
    "padding": "padding",
    "time: data": "time in data",
}
"""Of these the columns of a sweep: figure -> head."""


def _grid(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out a table: the first column left, the others right; the last cell of a short row may be longer."""
    columns = len(rows[0])
    widths = [max(len(row[n]) for row in rows if len(row) == columns) for n in range(columns)]
    widths[0] = max(len(row[0]) for row in rows)
    return [
        f"  {row[0]:{widths[0]}}  "
        + "  ".join(f"{cell:>{widths[n + 1]}}" if len(row) == columns else cell for n, cell in enumerate(row[1:]))
        for row in rows
    ]
