"""Finds the fastest combination of settings that fits, at the same effective batch, each in a fresh process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from expert_cli.benchmark.experiment import decided
from expert_cli.benchmark.measured_run import Run, RunCounts, Variant, figures_json, figures_text, run_in_turn, run_once
from expert_cli.config.resolve import Overrides
from expert_cli.errors import InputError
from expert_cli.hardware.machine import Machine
from expert_cli.pipeline.options import with_settings
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import aligned

SIZES = ("batch_size", "gradient_accumulation_steps")
SHOWN = ("real tokens/s", "peak memory", "padding", "time: data")


def _name(flags: Sequence[str]) -> str:
    return " ".join(flag.removeprefix("training.config.") for flag in flags)


def parse_sweep(asked: Sequence[str]) -> dict[str, list[Any]]:
    """Parse each `--sweep KEY=a,b,c`; the key may begin with `training.config.`. Raises InputError."""
    swept: dict[str, list[Any]] = {}
    for text in asked:
        key, _, listed = text.partition("=")
        key = key.strip().removeprefix("training.config.")
        words = [word.strip() for word in listed.split(",")]
        if not key or not all(words) or key in swept:
            hint = "for example --sweep batch_size=2,4,8, each key once"
            raise InputError(f'--sweep "{text}" is not of the form KEY=a,b,c', hint)
        swept[key] = [_value(word) for word in words]
    return swept


def _value(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        return word


def combinations(swept: Mapping[str, Sequence[Any]], batch_size: int, accumulation: int) -> list[tuple[str, ...]]:
    """Return every combination as values for `--set`, at the same effective batch. Raises InputError."""
    effective, found = batch_size * accumulation, []
    for values in product(*swept.values()):
        settings = dict(zip(swept, values, strict=True))
        given = {key: settings[key] for key in SIZES if type(settings.get(key)) is int}
        size = prod(given.values())
        if size < 1 or effective % size or (len(given) == len(SIZES) and size != effective):
            raise InputError(f"--sweep: {' x '.join(given)} is {size}, the effective batch {effective}", "keep that")
        if given:
            settings |= {key: effective // size for key in SIZES if key not in settings}
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in settings.items()}
        found.append(tuple(f"training.config.{key}={text}" for key, text in texts.items()))
    return found


def sweep(
    manifest: Path,
    asked: Sequence[str],
    overrides: Overrides,
    counts: RunCounts,
    machine: Machine,
    report: Reporter,
    run: Run = run_once,
) -> dict[str, Any]:
    """Return the document of `benchmark --json`, kind "sweep": the fastest combination first, failed ones last.

    Raises InputError or ManifestError before anything runs, the last error if every combination fails, and errors unrelated to
    the settings immediately.
    """
    written = decided(manifest, overrides, machine)
    optim = written.optim
    flags = combinations(parse_sweep(asked), optim.batch_size, optim.gradient_accumulation_steps)
    for one in flags:
        decided(manifest, with_settings(overrides, *one), machine)
    variants = [Variant(_name(one), manifest, one) for one in flags]
    runs, failed = run_in_turn(variants, written.seed, overrides, counts, report, run, keeps_going=True)
    if len(failed) == len(variants):
        raise failed[len(variants) - 1]
    measured = [(one, figures_json(of)) for one, of in zip(flags, runs, strict=True) if of]
    measured.sort(key=lambda pair: -pair[1]["tokens_per_s"]["mean"])
    ran = [{"set": list(one), "status": "ran", "reason": "", "measured": figures} for one, figures in measured]
    lost = [
        {"set": list(flags[n]), "status": "failed", "reason": e.message, "measured": None} for n, e in failed.items()
    ]
    return {
        "kind": "sweep",
        "machine": asdict(machine),
        **asdict(counts),
        "effective_batch": optim.batch_size * optim.gradient_accumulation_steps,
        "trials": [*ran, *lost],
        "fastest": {"set": ran[0]["set"]},
    }


def as_text(document: Mapping[str, Any]) -> str:
    """Return a sweep's document as text."""
    rows = []
    for trial in document["trials"]:
        figures = figures_text(trial["measured"]) if trial["measured"] else {}
        state = f"{trial['status']}: {trial['reason']}" if trial["reason"] else trial["status"]
        rows.append([_name(trial["set"]), *(figures.get(label, "-") for label in SHOWN), state])
    best = " ".join(f"--set {flag}" for flag in document["fastest"]["set"])
    head = f"effective batch {document['effective_batch']}, {document['steps']} steps each"
    return "\n".join([head, *aligned(["", *SHOWN, ""], rows), f"fastest that fits: {best}"])
