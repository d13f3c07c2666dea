"""A against B as an experiment: short runs in fresh processes, A B B A ..., and what they say with their uncertainty.

Both variants of a pair have the same seed: the same rows, the same order, the same first adapter. A run's speed is that of its
optimizer steps after the warm-up, in real tokens, so that loading, tokenizing ahead and the first steps count for neither
variant; what a variant does in its loop counts in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from expert_cli.benchmark.experiment.facts import data_facts, machine_facts
from expert_cli.benchmark.experiment.measurement import RunMeasurement, figures_json, notes_on, setting_differences
from expert_cli.benchmark.experiment.parity import Parity, parity
from expert_cli.benchmark.experiment.subprocess_run import (
    PRESETS,
    Measure,
    Run,
    StepCounts,
    Variant,
    run_in_turn,
    run_once,
)
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides, require_data
from expert_cli.config.run_config import RunConfig
from expert_cli.errors import InputError, ThresholdNotMet
from expert_cli.hardware.machine import Machine
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.statistics import Estimate, paired_ratio

METHOD = (
    "fresh processes, A B B A ...; speed of the steps after the warm-up, real tokens only; ratio: mean of the pairs' log "
    "ratios, 95 % interval by Student's t; loss: means over the same trained tokens, the second half of those all reached"
)


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
            return f"broken: at equal trained tokens the loss is {words_of(same)}"
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
            "machine": machine_facts(self.machine),
            "versions": dict(self.machine.versions),
            "steps": self.step_counts.steps,
            "warmup": self.step_counts.warmup,
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
        words = f"{sides[number].name}  seed {found.seed}  {found.tokens_per_s:,.0f} tokens/s"
        report.info(f"{'ab'[number]}  {words}")

    repeats, counts = asked.repeats, asked.step_counts
    asked.interrupted = run_in_turn(sides, asked.seed, repeats, asked.overrides, counts, report, take, run)
    return asked


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


def words_of(same: Parity) -> str:
    """Return a parity as words that follow "the loss is"."""
    if same.a is None or same.b is None:
        return "not finite"
    shown = f"{same.a:.4f} against {same.b:.4f}"
    return f"{same.verdict}: {shown}, {abs(same.difference):.4f} apart, {same.noise + same.tolerance:.4f} allowed"
