"""Every combination of some settings at the same effective batch, each in a fresh process: which is fastest and fits?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from expert_cli.benchmark.experiment import decided
from expert_cli.benchmark.measured_run import Run, RunCounts, Variant, figures_json, figures_text, run_in_turn, run_once
from expert_cli.config.resolve import Overrides
from expert_cli.errors import InputError
from expert_cli.hardware.machine import Machine
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import aligned

SIZES = ("batch_size", "gradient_accumulation_steps")
SHOWN = ("real tokens/s", "peak memory", "padding", "time: data")


@dataclass(frozen=True)
class Combination:
    """Settings as `--set` takes them, the accumulation that keeps the effective batch among them. reason: why not to run it."""

    flags: tuple[str, ...]
    reason: str

    @property
    def name(self) -> str:
        """What messages call it."""
        return _name(self.flags)

    def as_json(self, status: str, reason: str = "", measured: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return its row."""
        return {"set": list(self.flags), "status": status, "reason": reason, "measured": measured}


def _name(flags: Sequence[str]) -> str:
    return " ".join(flag.removeprefix("training.config.") for flag in flags)


def parse_sweep(asked: Sequence[str]) -> dict[str, list[Any]]:
    """Read `KEY=a,b,c` of each `--sweep`; the key may have `training.config.` before it. Raises InputError."""
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


def combinations(swept: Mapping[str, Sequence[Any]], batch_size: int, accumulation: int) -> list[Combination]:
    """Return every combination at the effective batch `batch_size` x `accumulation`, one that cannot keep it with the reason.

    Whichever of the two is not swept is adjusted to the other.
    """
    effective = batch_size * accumulation
    found = []
    for values in product(*swept.values()):
        settings, reason = dict(zip(swept, values, strict=True)), ""
        given = {key: settings[key] for key in SIZES if key in settings}
        if given and all(
            type(value) is int and value > 0 for value in given.values()
        ):  # others are no value of the key
            size = prod(given.values())
            if size != effective and (len(given) == 2 or effective % size):
                reason = f"{' x '.join(given)} is {size}, the effective batch {effective}"
            else:
                settings |= {key: effective // size for key in SIZES if key not in given}
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in settings.items()}
        found.append(Combination(tuple(f"training.config.{key}={text}" for key, text in texts.items()), reason))
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
    """Return the document of `benchmark --json`, kind "sweep": the fastest combination first, those that did not run last.

    Raises InputError, ManifestError before anything runs; the last error where every combination fails, and at once those
    that have nothing to do with the settings.
    """
    written = decided(manifest, overrides, machine)
    found = combinations(parse_sweep(asked), written.optim.batch_size, written.optim.gradient_accumulation_steps)
    runnable = [one for one in found if not one.reason]
    if not runnable:
        raise InputError(f"--sweep: no combination can be run: {found[0].name}: {found[0].reason}")
    for one in runnable:
        decided(manifest, replace(overrides, settings=(*overrides.settings, *one.flags)), machine)
    variants = [Variant(one.name, manifest, settings=one.flags) for one in runnable]
    runs, failed = run_in_turn(variants, written.seed, overrides, counts, report, run, keeps_going=True)
    if len(failed) == len(runnable):
        raise failed[len(runnable) - 1]
    ran = [one.as_json("ran", measured=figures_json(runs[n])) for n, one in enumerate(runnable) if n not in failed]
    ran.sort(key=lambda row: -row["measured"]["tokens_per_s"]["mean"])
    return {
        "kind": "sweep",
        "machine": asdict(machine),
        **asdict(counts),
        "effective_batch": written.optim.batch_size * written.optim.gradient_accumulation_steps,
        "trials": [
            *ran,
            *(runnable[n].as_json("failed", error.message) for n, error in failed.items()),
            *(one.as_json("not run", one.reason) for one in found if one.reason),
        ],
        "fastest": {"set": ran[0]["set"]},
    }


def as_text(document: Mapping[str, Any]) -> str:
    """Return a sweep's document as a person reads it."""
    rows = []
    for trial in document["trials"]:
        figures = figures_text(trial["measured"]) if trial["measured"] else {}
        state = f"{trial['status']}: {trial['reason']}" if trial["reason"] else trial["status"]
        rows.append([_name(trial["set"]), *(figures.get(label, "-") for label in SHOWN), state])
    best = " ".join(f"--set {flag}" for flag in document["fastest"]["set"])
    head = f"effective batch {document['effective_batch']}, {document['steps']} steps each"
    return "\n".join([head, *aligned(["", *SHOWN, ""], rows), f"fastest that fits: {best}"])
