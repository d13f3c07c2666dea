"""Short training runs in processes of their own, measured: of this tool, or of the stock Trainer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from expert_cli.benchmark.experiment.measurement import RunMeasurement, measure_run
from expert_cli.benchmark.monitor.sampler import MonitorSample, Sampler
from expert_cli.config.resolve import Overrides
from expert_cli.errors import CTRL_C, TERMINATED, Interrupted
from expert_cli.hardware import nvml
from expert_cli.pipeline.train_subprocess import (
    QUIET_SETTINGS,
    Lines,
    child_environment,
    run_train_subprocess,
    train_command,
    with_settings,
)
from expert_cli.runs.metrics import numbers
from expert_cli.runs.paths import RunPaths
from expert_cli.runs.signals import Terminated, raising_sigterm
from expert_cli.utils.files import write_json
from expert_cli.utils.reporter import Reporter

LOOK_EVERY_S = 1.0
PRESETS = ("padded", "flattening", "unoptimized")
"""The ways in which the stock Trainer trains a manifest; what each is, `baseline.py` says."""


@dataclass(frozen=True)
class Variant:
    """What is run. name: what messages call it. preset: of the stock Trainer, one of `PRESETS`; "" is this tool."""

    name: str
    manifest: Path
    preset: str = ""
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepCounts:
    """Optimizer steps that are measured, and those before them that are not."""

    steps: int
    warmup: int


def run_once(
    variant: Variant,
    overrides: Overrides,
    step_counts: StepCounts,
    folder: Path,
    seed: int,
    show: Callable[[int, float], None],
) -> RunMeasurement:
    """Train in a fresh process, with `folder` as its run directory, and return what was measured.

    show: is called now and then with the steps done and the real tokens/s of the last one. Raises the error that ended the
    process, with the variant's name before it; KeyboardInterrupt ends the process.
    """
    steps = step_counts.steps + step_counts.warmup
    asked = replace(
        with_settings(overrides, *variant.settings, *QUIET_SETTINGS), seed=seed, max_steps=steps, output=folder
    )
    look = StepSamples(RunPaths(folder), step_counts.warmup, show)
    lines = run_train_subprocess(variant.name, _words(variant, asked, folder), folder, look, LOOK_EVERY_S)
    gpu_index = next(iter(nvml.visible(child_environment())), None)
    return measure_run(RunPaths(folder), lines, seed, step_counts.warmup, look.samples, gpu_index)


Run = Callable[[Variant, Overrides, StepCounts, Path, int, Callable[[int, float], None]], RunMeasurement]
Measure = Callable[[], RunMeasurement]


def run_in_turn(
    variants: Sequence[Variant],
    seed: int,
    repeats: int,
    overrides: Overrides,
    step_counts: StepCounts,
    report: Reporter,
    take: Callable[[int, Measure], None],
    run: Run,
) -> int:
    """Have every variant run `repeats` times under one progress bar: A B B A ... spreads what changes with time evenly.

    take: gets the number of the variant and what makes its run with `seed` + repeat; nothing of the run is left. Ctrl-C ends
    them all, and so does SIGTERM, which by itself would leave the run under way alone: returns the exit code of what ended
    them, 0 where nothing did. Raises KeyboardInterrupt or Interrupted where no run was done by then.
    """
    each, turns, started, done = step_counts.steps + step_counts.warmup, len(variants) * repeats, 0, 0
    with (
        raising_sigterm(),
        TemporaryDirectory(prefix="expert-cli-benchmark-", ignore_cleanup_errors=True) as temporary,
        report.progress("running", turns * each, "steps") as bar,
    ):

        def measure(variant: Variant, seed: int) -> RunMeasurement:
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

        try:
            for repeat in range(repeats):
                for number in range(len(variants))[:: -1 if repeat % 2 else 1]:
                    take(number, partial(measure, variants[number], seed + repeat))
        except KeyboardInterrupt as error:
            if done:
                return TERMINATED if isinstance(error, Terminated) else CTRL_C
            if isinstance(error, Terminated):
                raise Interrupted("ended by SIGTERM", "", TERMINATED) from error
            raise
    return 0


def _words(variant: Variant, asked: Overrides, folder: Path) -> list[str]:
    """Return what stands behind `python`; the stock Trainer gets its job as a file."""
    if not variant.preset:
        return train_command(variant.manifest, asked)
    job = folder.with_name(f"{folder.name}.json")
    write_json(job, {"preset": variant.preset, "manifest": str(variant.manifest.resolve()), "overrides": asdict(asked)})
    return ["-m", "expert_cli.benchmark.experiment.baseline_main", str(job)]


@dataclass
class StepSamples:
    """Samples of the machine and of a run's process after its warm-up, and after its first step: before, it loads."""

    paths: RunPaths
    warmup: int
    show: Callable[[int, float], None]
    step: int = 0
    sampler: Sampler | None = None
    samples: list[MonitorSample] = field(default_factory=list)

    def __call__(self, pid: int, lines: Lines) -> None:
        """Look at the process once. lines: what metrics.jsonl gained since the last time."""
        self.sampler = self.sampler or Sampler(pid)
        sample = self.sampler.take()
        if self.step >= max(1, self.warmup) and not self.paths.report_json.exists():
            self.samples.append(sample)
        for step, speed in zip(numbers(lines, "step"), numbers(lines, "tokens_per_s"), strict=False):
            self.step = int(step)
            self.show(self.step, speed)
