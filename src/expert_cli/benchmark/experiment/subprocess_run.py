"""One short training run in a process of its own, watched until it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from expert_cli.benchmark.experiment.measurement import RunMeasurement, measure_run
from expert_cli.benchmark.monitor.sampler import MonitorSample, Sampler
from expert_cli.config.resolve import Overrides
from expert_cli.errors import (
    CTRL_C,
    TERMINATED,
    EnvironmentProblem,
    ExpertError,
    InputError,
    IntegrityError,
    TrainingFailed,
)
from expert_cli.hardware import nvml
from expert_cli.runs.metrics import MetricsTail, numbers
from expert_cli.runs.paths import RunPaths
from expert_cli.utils.files import write_json
from expert_cli.utils.subprocesses import end_family, how_it_ended, last_words

LOOK_EVERY_S = 1.0
_QUIET_CONFIG = (
    *("logging_steps=1", "report_to=none", "save_strategy=no", "save_every=null", "eval_strategy=no"),
    *("load_best_model_at_end=false", "early_stopping_patience=null"),
)
QUIET_SETTINGS = (*(f"training.config.{setting}" for setting in _QUIET_CONFIG), "evaluation.every_steps=null")
"""Every step is logged, and nothing but steps is timed."""
_ERRORS = {error.exit_code: error for error in (InputError, EnvironmentProblem, TrainingFailed, IntegrityError)}


class TerminationRequest(KeyboardInterrupt):
    """A request to end by SIGTERM: taken as Ctrl-C, but for the exit code."""


@dataclass(frozen=True)
class Variant:
    """What is run: this tool on a manifest, or the stock libraries on it. name: what messages call it."""

    name: str
    manifest: Path
    stock: bool = False
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
        overrides, settings=(*overrides.settings, *variant.settings, *QUIET_SETTINGS), seed=seed, max_steps=steps
    )
    logs = folder.with_name(f"{folder.name}.out"), folder.with_name(f"{folder.name}.err")
    with logs[0].open("wb") as out, logs[1].open("wb") as err:
        child: subprocess.Popen[Any] = subprocess.Popen(
            _command(variant, replace(asked, output=folder)),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=_environment(),
        )
        try:
            samples = _watch(child, RunPaths(folder), step_counts.warmup, show)
        finally:
            end_family(child)
    if child.returncode:
        raise _error(variant, child.returncode, *logs)
    return measure_run(
        RunPaths(folder), seed, step_counts.warmup, samples, next(iter(nvml.visible(_environment())), None)
    )


def _command(variant: Variant, asked: Overrides) -> list[str]:
    """Return the command line of the run; the stock libraries get their job as a file."""
    assert asked.output is not None  # noqa: S101  set above
    if variant.stock:
        job = asked.output.with_name(f"{asked.output.name}.json")
        write_json(job, {"manifest": str(variant.manifest.resolve()), "overrides": asdict(asked)})
        return [sys.executable, "-m", "expert_cli.benchmark.experiment.baseline_main", str(job)]
    named = {
        "--output": asked.output,
        "--dataset": asked.dataset,
        "--validation": asked.validation,
        "--base-model": asked.base_model,
        "--device": asked.device,
        "--seed": asked.seed,
        "--max-steps": asked.max_steps,
    }
    words = [f"{option}={value}" for option, value in named.items() if value is not None]
    words += [f"--set={setting}" for setting in asked.settings]
    words += ["--offline"] * asked.offline
    return [sys.executable, "-m", "expert_cli", "train", f"--manifest={variant.manifest}", *words, "--json", "--quiet"]


def _environment() -> dict[str, str]:
    """Return the environment of both sides: this very package, and one GPU, or the stock Trainer would take them all."""
    package = str(Path(__file__).parents[3])
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", "")))),
        "PYTHONIOENCODING": "utf-8",
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0],
    }


def _watch(
    child: subprocess.Popen[Any], paths: RunPaths, warmup: int, show: Callable[[int, float], None]
) -> list[MonitorSample]:
    """Wait for the process; return the samples taken after its warm-up, and after its first step: before, it loads."""
    sampler, tail = Sampler(child.pid), MetricsTail(paths.metrics)
    samples: list[MonitorSample] = []
    step = 0
    while True:
        try:
            child.wait(timeout=LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            sample, lines = sampler.take(), tail.read()
            if step >= max(1, warmup) and not paths.report_json.exists():
                samples.append(sample)
            for done, speed in zip(numbers(lines, "step"), numbers(lines, "tokens_per_s"), strict=False):
                step = int(done)
                show(step, speed)
        else:
            return samples


def _error(variant: Variant, code: int, out: Path, err: Path) -> BaseException:
    """Return the error that ended a process, as one of ours."""
    if code in (CTRL_C, TERMINATED):
        return TerminationRequest() if code == TERMINATED else KeyboardInterrupt()
    try:
        told = json.loads(out.read_text(encoding="utf-8").splitlines()[-1])["error"]
        message, hint = str(told["message"]), str(told["hint"])
    except (ValueError, KeyError, TypeError, IndexError):
        message, hint = f"{how_it_ended(code)}: {last_words(err)}", ""
    if code == -9:
        message, hint = "killed by the system, most likely for want of memory", "a smaller batch_size or max_seq_length"
        code = TrainingFailed.exit_code
    return _ERRORS.get(code, ExpertError)(f"{variant.name}: {message}", hint)
