"""Results of experiments and sweeps as a person reads them: text, nothing is printed here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from expert_cli.runs.metrics import SHARES
from expert_cli.utils.text import aligned

Document = Mapping[str, Any]


def as_text(document: Document) -> str:
    """Return the lines of a document by its kind."""
    return "\n".join({"experiment": _experiment, "sweep": _sweep}[document["kind"]](document))


def _experiment(document: Document) -> list[str]:
    a, b, ratio, gate = (document[key] for key in ("a", "b", "ratio", "gate"))
    shown = [_figures(side) for side in (a, b)]
    rows = [[label, *(side[label] for side in shown)] for label in shown[0]]
    rows = [row for row in rows if set(row[1:]) != {"0%"}]
    between = "" if ratio["ci95"] is None else " (95 %: {:.2f} to {:.2f})".format(*ratio["ci95"])
    after = f"{document['steps']} steps after {document['warmup']} of warm-up"
    parity = document["loss_parity"]
    lines = [f"A  {a['name']}", f"B  {b['name']}", *aligned(["", "A", "B"], rows), ""]
    lines.append(f"A is {ratio['mean']:.2f}x{between} as fast as B ({document['repeats']} pairs of {after})")
    lines.append(f"the loss is {'' if parity['holds'] else 'BROKEN, '}{parity['text']}")
    for name, side in (("A", a), ("B", b)):
        lines += [f"{name} was adjusted to fit the memory: {text}" for text in side["adjusted"]]
    if gate:
        lines.append(f"gate {gate['ratio']:g}: " + ("passed" if gate["passed"] else f"missed, {gate['reason']}"))
    return lines


def _sweep(document: Document) -> list[str]:
    rows = []
    for trial in document["trials"]:
        name = " ".join(flag.removeprefix("training.config.") for flag in trial["set"])
        figures = _figures(trial["measured"]) if trial["measured"] else {}
        cells = [figures.get(label, "-") for label in SWEPT]
        rows.append([name, *cells, f"{trial['status']}: {trial['reason']}" if trial["reason"] else trial["status"]])
    best = " ".join(f"--set {flag}" for flag in document["fastest"]["set"])
    head = f"effective batch {document['effective_batch']}, {document['steps']} steps each"
    return [head, *aligned(["", *SWEPT, ""], rows), "", f"fastest that fits: {best}"]


SWEPT = ("real tokens/s", "peak memory", "padding", "time: data")


def _figures(measured: Document) -> dict[str, str]:
    """Return what is shown of a side, or of a sweep's combination."""
    speed, padding = measured["tokens_per_s"], measured["padding_share"]
    half = f" ±{(speed['ci95'][1] - speed['ci95'][0]) / 2:,.0f}" if speed["ci95"] else ""
    loss = measured.get("loss")
    return {
        "real tokens/s": f"{speed['mean']:,.0f}{half}",
        "padding": "-" if padding is None else f"{padding:.0%}",
        **({"loss": "-" if loss is None else f"{loss:.4f}"} if "loss" in measured else {}),
        "peak memory": f"{measured['peak_memory_mb']:,.0f} MB",
        **{f"time: {name.replace('_', ' ')}": f"{measured['step_time_shares'][name]:.0%}" for name in SHARES},
    }
