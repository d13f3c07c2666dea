"""Short training runs in processes of their own, measured: of this tool, or of the stock Trainer.

`python -m expert_cli.benchmark.measured_run JOB.json` is such a process of the stock Trainer.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from expert_cli.benchmark.gauges import gpu_of, main_gpu, values_of
from expert_cli.benchmark.sampler import MonitorSample, Sampler
from expert_cli.config.resolve import Overrides
from expert_cli.config.run_identity import SETTINGS
from expert_cli.console.terminal import Console
from expert_cli.errors import CTRL_C, TERMINATED, ExpertError, Interrupted
from expert_cli.hardware import nvml
from expert_cli.pipeline.options import (
    QUIET_SETTINGS,
    Lines,
    child_environment,
    run_train_subprocess,
    train_command,
    with_settings,
)
from expert_cli.runs.metrics import SHARES, mean_shares, number, numbers, padding_share, part, read_json
from expert_cli.runs.run_paths import RunPaths
from expert_cli.runs.signals import Terminated, raising_sigterm
from expert_cli.utils.files import write_json
from expert_cli.utils.process_setup import prepare_process
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.statistics import mean_of

LOOK_EVERY_S = 1.0
PRESETS = ("padded", "flattening", "unoptimized")
"""The ways in which the stock Trainer trains a manifest; `stock_trainer.py` says what each is."""
BUSY_PERCENT = 10.0
"""So much of the machine's CPU in other hands is worth a word."""


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


@dataclass(frozen=True)
class Curve:
    """The loss of a run over what it has learned from: trained tokens of each optimizer step, mean loss per one of them."""

    tokens: tuple[int, ...]
    losses: tuple[float, ...]

    def mean_loss(self, start: float, stop: float) -> float:
        """Return the mean loss per trained token from the `start`th to the `stop`th; a step at the edge counts in part."""
        total = 0.0
        for end, tokens, loss in zip(accumulate(self.tokens), self.tokens, self.losses, strict=True):
            if share := max(0.0, min(stop, end) - max(start, end - tokens)):
                total += share * loss
        return total / (stop - start)


@dataclass(frozen=True)
class RunMeasurement:
    """One run: N optimizer steps after the warm-up steps; `curve` and `padding_share` are of the warm-up, too.

    seconds, tokens_per_s (real tokens), shares: of the N steps, as the run itself logged them. peak_memory_mb: what torch
    allocated on a GPU, else the largest resident set seen in the N steps. utilization: per cent, means over the N steps:
    "gpu", "cpu" (100 = one core) and "others", the share of the machine's CPU that other programs took; None where nothing
    was sampled. config: the blocks of the run's settings. facts: base model, hash of the training rows' sources,
    adjustments, tokens of an epoch.
    """

    seed: int
    seconds: float
    tokens_per_s: float
    tokens_per_step: float
    padding_share: float | None
    shares: dict[str, float]
    peak_memory_mb: float
    utilization: dict[str, float | None]
    curve: Curve
    config: dict[str, Any]
    facts: dict[str, Any]

    @property
    def seconds_per_epoch(self) -> float | None:
        """How long all rows take once, at this speed; the first steps and what lies around the loop are not in it."""
        tokens = number(self.facts, "epoch_tokens")
        return tokens / self.tokens_per_s if tokens else None

    def as_json(self) -> dict[str, Any]:
        """Return what a saved result keeps of a run; its loss curve can be compared with another result's."""
        kept = ("seed", "seconds", "tokens_per_s", "peak_memory_mb", "utilization")
        losses = [loss if abs(loss) < float("inf") else None for loss in self.curve.losses]
        return {
            **{name: getattr(self, name) for name in kept},
            "trained_tokens": list(self.curve.tokens),
            "losses": losses,
        }


Run = Callable[[Variant, Overrides, StepCounts, Path, int, Callable[[int, float], None]], RunMeasurement]
Measure = Callable[[], RunMeasurement]


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
    asked = with_settings(overrides, *variant.settings, *QUIET_SETTINGS)
    asked = replace(asked, seed=seed, max_steps=steps, output=folder)
    words = train_command(variant.manifest, asked)
    if variant.preset:
        job = folder.with_name(f"{folder.name}.json")
        manifest = str(variant.manifest.resolve())
        write_json(job, {"preset": variant.preset, "manifest": manifest, "overrides": asdict(asked)})
        words = ["-m", "expert_cli.benchmark.measured_run", str(job)]
    look = StepSamples(RunPaths(folder), step_counts.warmup, show)
    lines = run_train_subprocess(variant.name, words, folder, look, LOOK_EVERY_S)
    gpu_index = next(iter(nvml.visible(child_environment())), None)
    return measure_run(RunPaths(folder), lines, seed, step_counts.warmup, look.samples, gpu_index)


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
                for turn in range(len(variants))[:: -1 if repeat % 2 else 1]:
                    take(turn, partial(measure, variants[turn], seed + repeat))
        except KeyboardInterrupt as error:
            if done:
                return TERMINATED if isinstance(error, Terminated) else CTRL_C
            if isinstance(error, Terminated):
                raise Interrupted("ended by SIGTERM", "", TERMINATED) from error
            raise
    return 0


def measure_run(
    paths: RunPaths,
    lines: Sequence[dict[str, Any]],
    seed: int,
    warmup: int,
    samples: Sequence[MonitorSample],
    gpu_index: int | None = None,
) -> RunMeasurement:
    """Read a finished run. lines: the metrics of its steps; samples: those taken after its warm-up; gpu_index: of its GPU.

    Raises ExpertError if it did not log every step.
    """
    report, run = read_json(paths.report_json), read_json(paths.run_json)
    start: dict[str, Any] = {"seconds": 0.0, "tokens_real": 0, **(lines[warmup - 1] if 0 < warmup < len(lines) else {})}
    steady = lines[warmup:]
    if not steady or [line.get("step") for line in lines] != list(range(1, len(lines) + 1)):
        raise ExpertError(f"{paths.metrics}: {len(lines)} steps are logged, more than {warmup} were to be")
    seconds, tokens = (steady[-1][key] - start[key] for key in ("seconds", "tokens_real"))
    trained = [0, *(int(line["tokens_trained"]) for line in lines)]
    peak_mb = number(report, "peak_memory_mb") or 0.0
    if part(run, "config", "compute").get("device", "cpu") == "cpu":
        resident = [rss_mb * 1e6 / 2**20 for rss_mb in values_of(samples, "rss_mb")]
        peak_mb = max(*resident, *(number(line, "memory_mb") or 0.0 for line in steady), 0.0)
    store = part(report, "store")
    return RunMeasurement(
        seed=seed,
        seconds=seconds,
        tokens_per_s=tokens / max(seconds, 1e-3),
        tokens_per_step=tokens / len(steady),
        padding_share=padding_share(lines),
        shares=mean_shares(steady, start if warmup else None),
        peak_memory_mb=peak_mb,
        utilization=_utilization(samples, number(run, "machine", "cores"), gpu_index),
        curve=Curve(tuple(b - a for a, b in pairwise(trained)), tuple(float(line["loss"]) for line in lines)),
        config=part(run, "config"),
        facts={
            "model": part(run, "model"),
            "train_sha256": str(part(run, "store", "parts").get("train data", "")),
            "adjusted": report.get("adjusted", []),
            "kernels": {name: line.get("used") for name, line in part(run, "kernels").items()},
            "epoch_tokens": (number(store, "tokens") or 0.0) - (number(store, "packing", "truncated_tokens") or 0.0),
        },
    )


def _utilization(
    samples: Sequence[MonitorSample], cores: float | None, gpu_index: int | None
) -> dict[str, float | None]:
    index = main_gpu(samples, gpu_index)
    others = [
        max(0.0, s.machine_cpu_percent - s.cpu_percent / cores)
        for s in samples
        if cores and s.cpu_percent is not None and s.machine_cpu_percent is not None
    ]
    gpu = values_of((gpu_of(sample, index) for sample in samples), "utilization")
    return {"gpu": _mean(gpu), "cpu": _mean(values_of(samples, "cpu_percent")), "others": _mean(others)}


def figures_json(runs: Sequence[RunMeasurement]) -> dict[str, Any]:
    """Return what several runs of the same settings measured: means, of the memory the largest."""
    return {
        "tokens_per_s": mean_of([run.tokens_per_s for run in runs]).as_json(),
        "tokens_per_step": fmean(run.tokens_per_step for run in runs),
        "seconds_per_epoch": _mean(run.seconds_per_epoch for run in runs),
        "padding_share": _mean(run.padding_share for run in runs),
        "step_time_shares": {name: fmean(run.shares.get(name, 0.0) for run in runs) for name in SHARES},
        "peak_memory_mb": max(run.peak_memory_mb for run in runs),
        "utilization": {name: _mean(run.utilization[name] for run in runs) for name in runs[0].utilization},
    }


def notes_on(runs: Sequence[RunMeasurement]) -> list[str]:
    """Return what a reader must know about the runs."""
    adjusted = dict.fromkeys(text for run in runs for text in run.facts["adjusted"])
    notes = [f"adjusted to fit the memory: {text}" for text in adjusted]
    taken = _mean(run.utilization["others"] for run in runs) or 0.0
    if taken > BUSY_PERCENT:
        notes.append(
            f"other programs took {taken:.0f} % of the machine's CPU: speeds are too low, ratios of pairs hold"
        )
    return notes


def setting_differences(a: dict[str, Any], b: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the settings of two runs that are not the same: name -> [A's, B's]."""
    first, second = (
        {f"{block}.{key}": value for block in SETTINGS for key, value in part(config, block).items()}
        | {"data.max_seq_length": part(config, "data").get("max_seq_length")}
        for config in (a, b)
    )
    return {key: [value, second.get(key)] for key, value in first.items() if value != second.get(key)}


def _mean(values: Iterable[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return fmean(told) if told else None


def train_stock(job: Path) -> int:
    """Train with the stock Trainer as a file of `run_once` says; return the exit code. A failure is printed as JSON."""
    told = json.loads(job.read_text(encoding="utf-8"))
    asked = told["overrides"]
    overrides = Overrides(**{**asked, "output": Path(asked["output"]), "settings": tuple(asked["settings"])})
    try:
        prepare_process()
        from expert_cli.benchmark.stock_trainer import train_baseline

        train_baseline(told["preset"], Path(told["manifest"]), overrides)
    except ExpertError as error:
        Console("train", as_json=True).fail(error.message, error.hint, error.exit_code)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(train_stock(Path(sys.argv[1])))
