"""A manifest against another manifest, or the stock Trainer, in pairs of fresh processes: how fast, and the same losses?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, Literal

from expert_cli.benchmark.measured_run import (
    PRESETS,
    Curve,
    Measure,
    Run,
    RunMeasurement,
    StepCounts,
    Variant,
    figures_json,
    notes_on,
    run_in_turn,
    run_once,
    setting_differences,
)
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides, require_data
from expert_cli.config.run_config import RunConfig
from expert_cli.errors import InputError, ThresholdNotMet
from expert_cli.hardware.machine import Machine, cpu_name
from expert_cli.runs.metrics import items, part
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.statistics import Estimate, paired_ratio

METHOD = (
    "fresh processes, A B B A ...; speed of the steps after the warm-up, real tokens only; ratio: mean of the pairs' log "
    "ratios, 95 % interval by Student's t; loss: means over the same trained tokens, the second half of those all reached"
)
TOLERANCE = 0.02
"""Losses that differ by less than this share count as equal whatever the noise: precision and order of summing differ."""
STANDARD_ERRORS = 2.0


@dataclass(frozen=True)
class Parity:
    """Whether A loses the same as B at equal trained tokens.

    a, b: mean losses of the runs between `tokens`, None where one is not finite. difference: a - b; the losses are equal if
    it is not larger than tolerance + noise. All are in the loss's own unit.
    """

    verdict: Literal["equal", "higher", "lower", "not finite"]
    a: float | None
    b: float | None
    difference: float
    noise: float
    tolerance: float
    tokens: tuple[int, int]

    @property
    def holds(self) -> bool:
        """Whether the losses are the same: one that is too low is no better sign than one that is too high."""
        return self.verdict == "equal"

    def __str__(self) -> str:
        """The words that follow "the loss is"."""
        if self.a is None or self.b is None:
            return "not finite"
        allowed = self.noise + self.tolerance
        return f"{self.verdict}: {self.a:.4f} against {self.b:.4f}, {abs(self.difference):.4f} apart, {allowed:.4f} allowed"

    def as_json(self) -> dict[str, Any]:
        """Return the values, with what they come to."""
        return {"holds": self.holds, **asdict(self), "band": self.noise + self.tolerance, "tokens": list(self.tokens)}


def parity(a: Sequence[Curve], b: Sequence[Curve]) -> Parity:
    """Compare the losses of pairs of runs that began with the same adapter and saw the same rows in the same order.

    Steps need not hold the same number of tokens, so losses are compared over the same trained tokens, the second half of
    those that every run reached: in the first half nobody has learned much. The noise is two standard errors of the mean of
    the smallest spread from repeat to repeat: of A, of B, or of the pairs' differences. The smallest, because a side that
    is broken is often wild as well, and must not be excused by its own spread.
    """
    stop = min(sum(curve.tokens) for curve in (*a, *b))
    window = (stop // 2, stop)
    losses = [[curve.mean_loss(*window) for curve in side] for side in (a, b)]
    if not all(math.isfinite(loss) for side in losses for loss in side):
        finite = [fmean(side) if all(map(math.isfinite, side)) else None for side in losses]
        return Parity("not finite", finite[0], finite[1], 0.0, 0.0, 0.0, window)
    differences = [x - y for x, y in zip(*losses, strict=True)]
    spread = min(map(stdev, (*losses, differences))) if len(differences) > 1 else 0.0
    mean_a, mean_b, difference = map(fmean, (*losses, differences))
    noise, tolerance = STANDARD_ERRORS * spread / math.sqrt(len(differences)), TOLERANCE * mean_b
    if abs(difference) <= noise + tolerance:
        return Parity("equal", mean_a, mean_b, difference, noise, tolerance, window)
    return Parity("higher" if difference > 0 else "lower", mean_a, mean_b, difference, noise, tolerance, window)


@dataclass
class Experiment:
    """What is asked for, and the runs of A and of B that were finished, in the order of their repeats.

    Repeat r runs with `seed` + r. gate: the least ratio, None = none. interrupted: the exit code of what ended it before all
    runs were done, 130 for Ctrl-C and 143 for SIGTERM; 0 where nothing did.
    """

    a: Variant
    b: Variant
    overrides: Overrides
    step_counts: StepCounts
    repeats: int
    seed: int
    machine: Machine
    gate: float | None = None
    runs: tuple[list[RunMeasurement], list[RunMeasurement]] = field(default_factory=lambda: ([], []))
    interrupted: int = 0

    @property
    def ratio(self) -> Estimate | None:
        """A's speed over B's; None without a pair."""
        pairs = self._pairs()
        return paired_ratio([a.tokens_per_s for a, _ in pairs], [b.tokens_per_s for _, b in pairs]) if pairs else None

    @property
    def median_ratio(self) -> float | None:
        """The median of the pairs' ratios: one disturbed pair does not move it. None without a pair."""
        pairs = self._pairs()
        return median(a.tokens_per_s / b.tokens_per_s for a, b in pairs) if pairs else None

    @property
    def parity(self) -> Parity | None:
        """Whether the losses are the same; None without a pair."""
        pairs = self._pairs()
        return parity([a.curve for a, _ in pairs], [b.curve for _, b in pairs]) if pairs else None

    def missed(self) -> str:
        """Return why the gate is missed, "" where it is reached or there is none."""
        ratio, same, gate = self.ratio, self.parity, self.gate
        if gate is None:
            return ""
        if ratio is None or same is None:
            return "no pair of runs was finished"
        if not same.holds:
            return f"broken: at equal trained tokens the loss is {same}"
        return f"the ratio {ratio.mean:.2f} is below {gate:g}" if ratio.mean < gate else ""

    @property
    def exit_code(self) -> int:
        """What it ends with: where nothing interrupted it, by whether its gate is missed."""
        return self.interrupted or (ThresholdNotMet.exit_code if self.missed() else 0)

    def as_json(self) -> dict[str, Any]:
        """Return the document of `benchmark --json` (docs/INTERFACE.md), kind "experiment"."""
        (a, b), same, ratio = self.runs, self.parity, self.ratio
        return {
            "kind": "experiment",
            **conditions(self.machine, self.step_counts),
            "repeats": self.repeats,
            "method": METHOD,
            "a": side_json(self.a, a, same.a if same else None) if a else None,
            "b": side_json(self.b, b, same.b if same else None) if b else None,
            "ratio": ratio.as_json() if ratio else None,
            "median_ratio": self.median_ratio,
            "loss_parity": same.as_json() if same else None,
            "differences": setting_differences(a[0].config, b[0].config) if a and b else {},
            "gate": {"ratio": self.gate, "passed": not self.missed(), "reason": self.missed()} if self.gate else None,
            "interrupted": bool(self.interrupted),
            "notes": notes_on([*a, *b]),
        }

    def _pairs(self) -> list[tuple[RunMeasurement, RunMeasurement]]:
        return list(zip(*self.runs, strict=False))


def make_job(
    manifest: Path,
    against: str,
    overrides: Overrides,
    step_counts: StepCounts,
    repeats: int,
    machine: Machine,
    gate: float | None = None,
) -> Experiment:
    """Return the experiment, both manifests read. against: one of `PRESETS`, or another manifest.

    Raises ManifestError, InputError, EnvironmentProblem.
    """
    plan = decided(manifest, overrides, machine)
    b = Variant(against, manifest, against) if against in PRESETS else Variant(against, Path(against))
    if not b.manifest.is_file():
        raise InputError(f"--against {against}: no such manifest", f"name a manifest, or {', '.join(PRESETS)}")
    decided(b.manifest, overrides, machine)
    return Experiment(Variant(str(manifest), manifest), b, overrides, step_counts, repeats, plan.seed, machine, gate)


def decided(manifest: Path, overrides: Overrides, machine: Machine) -> RunConfig:
    """Return what a manifest comes to, its data there. Raises ManifestError, InputError, EnvironmentProblem."""
    run = make_plan(manifest, machine, overrides).run
    require_data(run)
    return run


def run_experiment(asked: Experiment, report: Reporter, run: Run = run_once) -> Experiment:
    """Return the experiment with its runs, both sides in turn. Ctrl-C and SIGTERM end the run under way, those before it stay.

    Raises the error of a run that fails, with its variant's name; KeyboardInterrupt or Interrupted before the first is done.
    """
    sides = (asked.a, asked.b)

    def take(number: int, measure: Measure) -> None:
        asked.runs[number].append(found := measure())
        report.info(f"{'ab'[number]}  {sides[number].name}  seed {found.seed}  {found.tokens_per_s:,.0f} tokens/s")

    repeats, counts = asked.repeats, asked.step_counts
    asked.interrupted = run_in_turn(sides, asked.seed, repeats, asked.overrides, counts, report, take, run)
    return asked


def conditions(machine: Machine, step_counts: StepCounts) -> dict[str, Any]:
    """Return what a result was measured with: the machine without its name, versions, steps."""
    facts = {
        "system": machine.system,
        "cpu": cpu_name(),
        "cores": machine.cores,
        "memory_gb": round(machine.memory_bytes / 2**30),
        "gpus": [gpu.name for gpu in machine.gpus],
        "cpu_bf16": machine.cpu_bf16,
    }
    return {"machine": facts, "versions": dict(machine.versions), **asdict(step_counts)}


def side_json(variant: Variant, runs: Sequence[RunMeasurement], loss: float | None) -> dict[str, Any]:
    """Return one variant's figures: means over its runs, of the memory the largest. loss: the one that is compared."""
    first = runs[0]
    return {
        "name": variant.name,
        "manifest": str(variant.manifest),
        "stock": bool(variant.preset),
        "model": {**first.facts["model"], "quantization": first.config["model"]["quantization"]},
        "data": data_facts(first.config, first.facts["train_sha256"]),
        **figures_json(runs),
        "loss": loss,
        "kernels": first.facts["kernels"],
        "runs": [run.as_json() for run in runs],
    }


def data_facts(config: Mapping[str, Any], sha256: str) -> dict[str, Any]:
    """Return which rows a run trains on: the hash of its sources' content, and which part of them.

    train: what they are called, for people: files by their path below the project, wherever that lies.
    """
    sources = [part(source) for source in items(config, "data", "train")]
    return {
        "train": [_source_name(source, str(config.get("root", ""))) for source in sources],
        "sha256": sha256,
        "parts": [[source.get("split", ""), source.get("weight", 1.0)] for source in sources],
        "held_out": part(config, "data").get("validation_share", 0.0),
        "filters": part(config, "data", "filters"),
    }


def _source_name(source: Mapping[str, Any], root: str) -> str:
    path = str(source.get("path", ""))
    if root and source.get("kind") != "hub" and Path(path).is_relative_to(root):
        path = Path(path).relative_to(root).as_posix()
    words = "::".join(filter(None, (path, str(source.get("split", "")), str(source.get("config", "")))))
    return words if source.get("weight", 1.0) == 1.0 else f"{words} x {source['weight']:g}"
