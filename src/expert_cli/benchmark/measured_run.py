"""Measures short training runs, each in a separate process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from expert_cli.config.resolve import Overrides
from expert_cli.errors import TERMINATED, Interrupted, TrainingFailed
from expert_cli.pipeline.options import QUIET_SETTINGS, Lines, train_subprocess, with_settings
from expert_cli.runs.metrics import SHARES, mean_shares, padding_share
from expert_cli.runs.signals import Terminated, raising_sigterm
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.statistics import mean_of

STRICT = "training.config.on_oom=error"
"""A run that changes its settings to fit into memory cannot be compared."""


@dataclass(frozen=True)
class Variant:
    """A variant of a run. name: in messages. settings: added to those of all variants."""

    name: str
    manifest: Path
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunCounts:
    """Measured optimizer steps, warm-up steps before them, and runs of each variant."""

    steps: int
    warmup: int
    repeats: int


Curve = Sequence[tuple[int, float]]
"""A loss curve: trained tokens of each optimizer step, and their mean loss."""


@dataclass(frozen=True)
class RunMeasurement:
    """One run: N optimizer steps after the warm-up; `curve` and `padding_share` include the warm-up.

    tokens_per_s (real tokens), shares: of the N steps, from the run's log. peak_memory_mb: from its report.
    """

    seed: int
    tokens_per_s: float
    padding_share: float
    shares: dict[str, float]
    peak_memory_mb: float
    curve: Curve


Run = Callable[[Variant, Overrides, RunCounts, int], RunMeasurement]


def run_once(variant: Variant, overrides: Overrides, counts: RunCounts, seed: int) -> RunMeasurement:
    """Train in a fresh process and return the measurement. Raises the run's error with the variant's name."""
    asked = with_settings(overrides, *variant.settings, *QUIET_SETTINGS, STRICT)
    asked = replace(asked, seed=seed, max_steps=counts.steps + counts.warmup)
    lines, report = train_subprocess(variant.name, variant.manifest, asked)
    return measure_run(lines, report["peak_memory_mb"], seed, counts.warmup)


def measure_run(lines: Lines, peak_memory_mb: float, seed: int, warmup: int) -> RunMeasurement:
    """Return the measurement from the metrics of a finished run."""
    start = lines[warmup - 1] if warmup else {"seconds": 0.0, "tokens_real": 0}
    seconds, tokens = (lines[-1][key] - start[key] for key in ("seconds", "tokens_real"))
    trained = [0, *(line["tokens_trained"] for line in lines)]
    return RunMeasurement(
        seed=seed,
        tokens_per_s=tokens / max(seconds, 1e-3),
        padding_share=padding_share(lines) or 0.0,
        shares=mean_shares(lines[warmup:]),
        peak_memory_mb=peak_memory_mb,
        curve=tuple(
            (after - before, line["loss"]) for (before, after), line in zip(pairwise(trained), lines, strict=True)
        ),
    )


def run_in_turn(
    variants: Sequence[Variant],
    seed: int,
    overrides: Overrides,
    counts: RunCounts,
    report: Reporter,
    run: Run,
    *,
    keeps_going: bool = False,
) -> tuple[list[list[RunMeasurement]], dict[int, TrainingFailed]]:
    """Run every variant in turn, repeat r with `seed` + r: the order A B B A ... spreads slow drifts evenly.

    keeps_going: a variant whose training fails is not repeated; its error is returned under its number. Raises Interrupted at
    SIGTERM, which would otherwise leave the process of the current run behind.
    """
    turns = [(n, repeat) for repeat in range(counts.repeats) for n in range(len(variants))[:: -1 if repeat % 2 else 1]]
    found: list[list[RunMeasurement]] = [[] for _ in variants]
    failed: dict[int, TrainingFailed] = {}
    with raising_sigterm(), report.progress("running", len(turns), "runs") as bar:
        for done, (n, repeat) in enumerate(turns):
            if n in failed:
                continue
            bar.update(done, variants[n].name)
            try:
                found[n].append(run(variants[n], overrides, counts, seed + repeat))
                report.info(f"{variants[n].name}  seed {seed + repeat}  {found[n][-1].tokens_per_s:,.0f} tokens/s")
            except TrainingFailed as error:
                if not keeps_going:
                    raise
                failed[n] = error
                report.info(error.message)
            except Terminated as error:
                raise Interrupted("ended by SIGTERM", "", TERMINATED) from error
    return found, failed


def figures_json(runs: Sequence[RunMeasurement]) -> dict[str, Any]:
    """Return the figures of several equal runs: means; for memory the largest."""
    return {
        "tokens_per_s": mean_of([run.tokens_per_s for run in runs]).as_json(),
        "padding_share": fmean(run.padding_share for run in runs),
        "step_time_shares": {name: fmean(run.shares.get(name, 0.0) for run in runs) for name in SHARES},
        "peak_memory_mb": max(run.peak_memory_mb for run in runs),
        "runs": [{"seed": run.seed, "tokens_per_s": run.tokens_per_s} for run in runs],
    }


def figures_text(measured: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures of `figures_json` as text, by title."""
    speed = measured["tokens_per_s"]
    half = f" ±{(speed['ci95'][1] - speed['ci95'][0]) / 2:,.0f}" if speed["ci95"] else ""
    return {
        "real tokens/s": f"{speed['mean']:,.0f}{half}",
        "padding": f"{measured['padding_share']:.0%}",
        "peak memory": f"{measured['peak_memory_mb']:,.0f} MB",
        **{f"time: {name.replace('_', ' ')}": f"{measured['step_time_shares'][name]:.0%}" for name in SHARES},
    }
