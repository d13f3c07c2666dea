"""A against B as an experiment: short runs in fresh processes, A B B A ..., and what they say with their uncertainty.

Both variants of a pair have the same seed: the same rows, the same order, the same first adapter. A run's speed is that of its
optimizer steps after the warm-up, in real tokens, so that loading, tokenizing ahead and the first steps count for neither
variant; what a variant does in its loop counts in full.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

from expert_cli.benchmark.experiment.environment import data_facts, machine_facts
from expert_cli.benchmark.experiment.measurement import RunMeasurement, setting_differences
from expert_cli.benchmark.experiment.parity import Parity, parity
from expert_cli.benchmark.experiment.subprocess_run import STOCK_WAYS, StepCounts, Variant, run_once
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides, require_data
from expert_cli.config.run_config import RunConfig
from expert_cli.errors import CTRL_C, TERMINATED, EnvironmentProblem, InputError, Interrupted
from expert_cli.hardware.machine import Machine, has_package
from expert_cli.runs.metrics import SHARES
from expert_cli.training.signals import Terminated, raising_sigterm
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.statistics import Estimate, mean_of, paired_ratio

METHOD = (
    "fresh processes, A B B A ...; speed of the steps after the warm-up, real tokens only; ratio: mean of the pairs' log "
    "ratios, 95 % interval by Student's t; loss: means over the same trained tokens, the second half of those all reached"
)
BUSY_PERCENT = 10.0
"""So much of the machine's CPU in other hands is worth a word."""
Run = Callable[[Variant, Overrides, StepCounts, Path, int, Callable[[int, float], None]], RunMeasurement]


@dataclass(frozen=True)
class ExperimentSpec:
    """What is asked for. Repeat r runs with `seed` + r. gate: the least ratio, None = none."""

    a: Variant
    b: Variant
    overrides: Overrides
    step_counts: StepCounts
    repeats: int
    seed: int
    gate: float | None = None


@dataclass(frozen=True)
class ExperimentResult:
    """The runs that were finished, in the order of their repeats.

    interrupted: the exit code of what ended it before all were, 130 for Ctrl-C and 143 for SIGTERM; 0 where nothing did.
    """

    spec: ExperimentSpec
    machine: Machine
    a: tuple[RunMeasurement, ...]
    b: tuple[RunMeasurement, ...]
    interrupted: int

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
        ratio, same, gate = self.ratio, self.parity, self.spec.gate
        if gate is None:
            return ""
        if ratio is None or same is None:
            return "no pair of runs was finished"
        if not same.holds:
            return f"broken: at equal trained tokens the loss is {words_of(same)}"
        return f"the ratio {ratio.mean:.2f} is below {gate:g}" if ratio.mean < gate else ""

    def as_json(self) -> dict[str, Any]:
        """Return the document of `benchmark --json` (docs/INTERFACE.md), kind "experiment"."""
        spec, same, ratio = self.spec, self.parity, self.ratio
        both = bool(self.a and self.b)
        return {
            "kind": "experiment",
            "machine": machine_facts(self.machine),
            "versions": dict(self.machine.versions),
            "steps": spec.step_counts.steps,
            "warmup": spec.step_counts.warmup,
            "repeats": spec.repeats,
            "method": METHOD,
            "a": side_json(spec.a, self.a, same.a if same else None) if self.a else None,
            "b": side_json(spec.b, self.b, same.b if same else None) if self.b else None,
            "ratio": ratio.as_json() if ratio else None,
            "median_ratio": self.median_ratio,
            "loss_parity": same.as_json() if same else None,
            "differences": setting_differences(self.a[0].config, self.b[0].config) if both else {},
            "gate": {"ratio": spec.gate, "passed": not self.missed(), "reason": self.missed()} if spec.gate else None,
            "interrupted": bool(self.interrupted),
            "notes": notes_on([*self.a, *self.b]),
        }

    def _pairs(self) -> list[tuple[RunMeasurement, RunMeasurement]]:
        return list(zip(self.a, self.b, strict=False))


def order(repeats: int) -> str:
    """Return which variant runs when: "abba..." spreads whatever changes with time evenly over both."""
    return "".join("ba" if repeat % 2 else "ab" for repeat in range(repeats))


def make_job(
    manifest: Path,
    against: str,
    overrides: Overrides,
    step_counts: StepCounts,
    repeats: int,
    machine: Machine,
    gate: float | None = None,
) -> ExperimentSpec:
    """Return the experiment, both manifests read. against: one of `STOCK_WAYS`, or another manifest.

    Raises ManifestError, InputError, EnvironmentProblem.
    """
    plan = decided(manifest, overrides, machine)
    b = Variant(against, manifest, against) if against in STOCK_WAYS else Variant(against, Path(against))
    if b.way == "trl" and not has_package("trl"):
        raise EnvironmentProblem("--against trl: trl is not installed", "pip install trl")
    if not b.manifest.is_file():
        raise InputError(f"--against {against}: no such manifest", f"name a manifest, or {', '.join(STOCK_WAYS)}")
    decided(b.manifest, overrides, machine)
    return ExperimentSpec(Variant(str(manifest), manifest), b, overrides, step_counts, repeats, plan.seed, gate)


def decided(manifest: Path, overrides: Overrides, machine: Machine) -> RunConfig:
    """Return what a manifest comes to, its data there. Raises ManifestError, InputError, EnvironmentProblem."""
    run = make_plan(manifest, machine, overrides).run
    require_data(run)
    return run


def experiment(spec: ExperimentSpec, machine: Machine, report: Reporter, run: Run = run_once) -> ExperimentResult:
    """Run both sides in turn. Ctrl-C and SIGTERM end the run under way and return those before it.

    Raises the error of a run that fails, with its variant's name; KeyboardInterrupt or Interrupted before the first is done.
    """
    sides = {"a": spec.a, "b": spec.b}
    done: dict[str, list[RunMeasurement]] = {"a": [], "b": []}
    turns = order(spec.repeats)
    with run_session(spec.overrides, spec.step_counts, len(turns), report, run) as session:
        for number, name in enumerate(turns):
            found = session.go(sides[name], spec.seed + number // 2)
            done[name].append(found)
            report.info(f"{name}  {sides[name].name}  seed {found.seed}  {found.tokens_per_s:,.0f} tokens/s")
    return ExperimentResult(spec, machine, tuple(done["a"]), tuple(done["b"]), session.interrupted)


@dataclass
class Session:
    """Runs one after another. interrupted: the exit code of what ended them before all were done, 0 where nothing did."""

    go: Callable[[Variant, int], RunMeasurement]
    interrupted: int = 0


@contextmanager
def run_session(
    overrides: Overrides, step_counts: StepCounts, turns: int, report: Reporter, run: Run
) -> Iterator[Session]:
    """Yield what runs (variant, seed) and measures it, under one progress bar; nothing of the runs is left.

    Ctrl-C ends the block, and so does SIGTERM, which by itself would leave the run under way alone. Raises
    KeyboardInterrupt or Interrupted where no run was done by then.
    """
    each, started, done = step_counts.steps + step_counts.warmup, 0, 0
    with (
        raising_sigterm(),
        TemporaryDirectory(prefix="expert-cli-benchmark-", ignore_cleanup_errors=True) as temporary,
        report.progress("running", turns * each, "steps") as bar,
    ):

        def go(variant: Variant, seed: int) -> RunMeasurement:
            nonlocal started, done
            before, folder = started * each, Path(temporary) / f"run-{started}"
            started += 1
            head = f"run {started} of {turns}: {variant.name}"
            bar.update(before, f"{head}  loading")

            def show(step: int, speed: float) -> None:
                bar.update(before + step, f"{head}  {speed:,.0f} tokens/s")

            try:
                found = run(variant, overrides, step_counts, folder, seed, show)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            done += 1
            return found

        session = Session(go)
        try:
            yield session
        except KeyboardInterrupt as error:
            session.interrupted = TERMINATED if isinstance(error, Terminated) else CTRL_C
            if not done and session.interrupted == TERMINATED:
                raise Interrupted("ended by SIGTERM", "", TERMINATED) from error
            if not done:
                raise


def side_json(variant: Variant, runs: Sequence[RunMeasurement], loss: float | None) -> dict[str, Any]:
    """Return one variant's figures: means over its runs, of the memory the largest. loss: the one that is compared."""
    first = runs[0]
    return {
        "name": variant.name,
        "manifest": str(variant.manifest),
        "stock": variant.stock,
        "model": {**first.facts["model"], "quantization": first.config["model"]["quantization"]},
        "data": data_facts(first.config, first.facts["train_sha256"]),
        **figures_json(runs),
        "loss": loss,
        "kernels": first.facts["kernels"],
        "runs": [run.as_json() for run in runs],
    }


def figures_json(runs: Sequence[RunMeasurement]) -> dict[str, Any]:
    """Return what several runs of the same settings measured."""
    epochs = [seconds for run in runs if (seconds := run.seconds_per_epoch) is not None]
    padding = [run.padding_share for run in runs if run.padding_share is not None]
    busy = {name: [v for run in runs if (v := run.utilization[name]) is not None] for name in runs[0].utilization}
    return {
        "tokens_per_s": mean_of([run.tokens_per_s for run in runs]).as_json(),
        "tokens_per_step": fmean(run.tokens_per_step for run in runs),
        "seconds_per_epoch": fmean(epochs) if epochs else None,
        "padding_share": fmean(padding) if padding else None,
        "step_time_shares": {name: fmean(run.shares.get(name, 0.0) for run in runs) for name in SHARES},
        "peak_memory_mb": max(run.peak_memory_mb for run in runs),
        "utilization": {name: fmean(values) if values else None for name, values in busy.items()},
    }


def words_of(same: Parity) -> str:
    """Return a parity as words that follow "the loss is"."""
    if same.a is None or same.b is None:
        return "not finite"
    shown = f"{same.a:.4f} against {same.b:.4f}"
    return f"{same.verdict}: {shown}, {abs(same.difference):.4f} apart, {same.noise + same.tolerance:.4f} allowed"


def notes_on(runs: Sequence[RunMeasurement]) -> list[str]:
    """Return what a reader must know about the runs."""
    notes = [
        f"adjusted to fit the memory: {text}" for text in dict.fromkeys(t for r in runs for t in r.facts["adjusted"])
    ]
    others = [share for run in runs if (share := run.utilization["others"]) is not None]
    if others and fmean(others) > BUSY_PERCENT:
        taken = fmean(others)
        notes.append(
            f"other programs took {taken:.0f} % of the machine's CPU: speeds are too low, ratios of pairs hold"
        )
    return notes
