"""A few real steps in a process of their own: what they take and how fast they go. Nothing of them is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from expert_cli.config.resolve import Overrides
from expert_cli.config.run_config import RunConfig
from expert_cli.errors import (
    EnvironmentProblem,
    ExpertError,
    InputError,
    IntegrityError,
    TrainingFailed,
)
from expert_cli.runs.paths import RunPaths

STEPS = 4
_POLL_S = 0.02
_NEVER = 10**6
_ERRORS: dict[int, type[ExpertError]] = {
    error.exit_code: error for error in (InputError, EnvironmentProblem, TrainingFailed, IntegrityError)
}


@dataclass(frozen=True)
class ProbeResult:
    """What the steps came to.

    spread_pct: half of what lies between the slowest step and the fastest. resident_bytes: the
    process at its largest, loading included. allocated_mb: what PyTorch held at most, on a GPU.
    """

    tokens_per_s: float
    spread_pct: float
    resident_bytes: int
    allocated_mb: float


def probe(run: RunConfig, overrides: Overrides) -> ProbeResult:
    """Train a few micro-steps with the run's settings and measure all but the first. Raises what training raises."""
    with tempfile.TemporaryDirectory(prefix="expert-cli-probe-", ignore_cleanup_errors=True) as folder:
        output = Path(folder) / "run"
        log = Path(folder) / "stderr.txt"
        with log.open("wb") as stderr:
            child = subprocess.Popen(
                command(run, overrides, output),
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONIOENCODING": "utf-8"},
                encoding="utf-8",
            )
        try:
            resident = _largest(child)
            answer = child.communicate()[0]
        finally:
            child.kill()
            child.wait()
        document = answered(answer, child.returncode, log)
        lines = [json.loads(line) for line in RunPaths(output).metrics.read_text(encoding="utf-8").splitlines()]
    tokens_per_s, spread_pct = speed([(line["tokens_real"], line["seconds"]) for line in lines if "loss" in line])
    return ProbeResult(tokens_per_s, spread_pct, resident, document["peak_memory_mb"])


def speed(steps: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return tokens a second after the first step, and the spread in per cent, from (tokens, seconds) up to each step."""
    rates = [(now[0] - before[0]) / max(1e-3, now[1] - before[1]) for before, now in pairwise(steps)]
    (first_tokens, first_s), (last_tokens, last_s) = steps[0], steps[-1]
    return (last_tokens - first_tokens) / max(1e-3, last_s - first_s), 50 * (max(rates) / min(rates) - 1)


def command(run: RunConfig, overrides: Overrides, output: Path) -> list[str]:
    """Return the command line of the probe: the same run, one micro-step a step, without evaluations."""
    said = {
        "--dataset": overrides.dataset,
        "--validation": overrides.validation,
        "--base-model": overrides.base_model,
        "--device": run.compute.device,
        "--seed": overrides.seed,
        "--max-steps": STEPS,
        "--output": output,
    }
    changed: dict[str, Any] = {
        "logging_steps": 1,
        "gradient_accumulation_steps": 1,
        "load_best_model_at_end": "false",
        "early_stopping_patience": "null",
        "report_to": "none",
    }
    if run.watch.eval_strategy != "no":  # without it the store would have other rows
        changed |= {"eval_strategy": "steps", "eval_steps": _NEVER, "save_strategy": "no"}
    quiet = (*(f"training.config.{name}={value}" for name, value in changed.items()), "evaluation.every_steps=null")
    settings = [*overrides.settings, *quiet]
    return [
        *(sys.executable, "-m", "expert_cli", "train", "--manifest", str(run.manifest), "--json", "--quiet"),
        *(str(word) for name, value in said.items() if value is not None for word in (name, value)),
        *(word for setting in settings for word in ("--set", setting)),
        *(("--offline",) if overrides.offline else ()),
    ]


def _largest(child: subprocess.Popen[str]) -> int:
    """Watch a process until it ends; return its largest resident set in bytes."""
    largest = 0
    process = psutil.Process(child.pid)
    while child.poll() is None:
        try:
            memory = process.memory_info()
            largest = max(largest, getattr(memory, "peak_wset", memory.rss))
        except psutil.Error:
            break
        try:
            child.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            continue
    return largest


def answered(answer: str, code: int, log: Path) -> dict[str, Any]:
    """Return what the child printed. Raises the error that it ended with."""
    try:
        document: dict[str, Any] = json.loads(answer)
    except ValueError as error:
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise EnvironmentProblem(
            f"the probe ended with exit code {code}: {' '.join(last)[:300]}", "leave --probe out"
        ) from error
    if "error" in document:
        failed = document["error"]
        kind = _ERRORS.get(failed["exit_code"], ExpertError)
        raise kind(f"the probe failed: {failed['message']}", failed["hint"])
    return document
