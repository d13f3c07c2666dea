"""One short training run in a process of its own, measured: of this tool, or of the stock libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from expert_cli.benchmark.experiment.measurement import RunMeasurement, measure_run
from expert_cli.benchmark.monitor.sampler import MonitorSample, Sampler
from expert_cli.config.resolve import Overrides
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
from expert_cli.utils.files import write_json

LOOK_EVERY_S = 1.0
STOCK_WAYS = ("padded", "flattening", "trl", "unoptimized")
"""The ways in which the stock libraries train a manifest; what each is, `baseline.py` says."""


@dataclass(frozen=True)
class Variant:
    """What is run. name: what messages call it. way: of the stock libraries, one of `STOCK_WAYS`; "" is this tool."""

    name: str
    manifest: Path
    way: str = ""
    settings: tuple[str, ...] = ()

    @property
    def stock(self) -> bool:
        """Whether the stock libraries train it instead of this tool."""
        return bool(self.way)


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
    lines = run_train_subprocess(variant.name, _words(variant, asked), folder, look, LOOK_EVERY_S)
    gpu_index = next(iter(nvml.visible(child_environment())), None)
    return measure_run(RunPaths(folder), lines, seed, step_counts.warmup, look.samples, gpu_index)


def _words(variant: Variant, asked: Overrides) -> list[str]:
    """Return what stands behind `python`; the stock libraries get their job as a file."""
    if not variant.way:
        return train_command(variant.manifest, asked)
    assert asked.output is not None  # noqa: S101  set above
    job = asked.output.with_name(f"{asked.output.name}.json")
    write_json(job, {"way": variant.way, "manifest": str(variant.manifest.resolve()), "overrides": asdict(asked)})
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
