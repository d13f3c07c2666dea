"""A few real steps in a process of their own: what they take and how fast they go. Nothing of them is kept."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import psutil

from expert_cli.config.resolve import Overrides
from expert_cli.config.run_config import RunConfig
from expert_cli.estimate.throughput import ERROR_PCT, Figure
from expert_cli.pipeline.train_subprocess import (
    QUIET_SETTINGS,
    Lines,
    run_train_subprocess,
    train_command,
    with_settings,
)
from expert_cli.runs.metrics import read_json
from expert_cli.runs.paths import RunPaths

STEPS = 4
_POLL_S = 0.02
_NEVER = 10**6


@dataclass(frozen=True)
class ProbeResult:
    """What the steps came to.

    speed: tokens a second. resident_bytes: the process at its largest, loading included. allocated_mb: what PyTorch held at
    most, on a GPU.
    """

    speed: Figure
    resident_bytes: int
    allocated_mb: float


def probe(run: RunConfig, overrides: Overrides) -> ProbeResult:
    """Train a few micro-steps with the run's settings and measure all but the first. Raises what training raises."""
    resident = [0]

    def look(pid: int, _: Lines) -> None:
        with suppress(psutil.Error):
            memory = psutil.Process(pid).memory_info()
            resident.append(getattr(memory, "peak_wset", memory.rss))

    with tempfile.TemporaryDirectory(prefix="expert-cli-probe-", ignore_cleanup_errors=True) as folder:
        output = Path(folder) / "run"
        words = train_command(run.manifest, replace(probe_overrides(run, overrides), output=output))
        lines = run_train_subprocess("the probe failed", words, output, look, _POLL_S)
        allocated_mb = read_json(RunPaths(output).report_json)["peak_memory_mb"]
    tokens_per_s, spread_pct = speed([(line["tokens_real"], line["seconds"]) for line in lines])
    figure = Figure(tokens_per_s, max(ERROR_PCT["probe"], round(spread_pct)), "probe: real steps, just now")
    return ProbeResult(figure, max(resident), allocated_mb)


def speed(steps: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return tokens a second after the first step, and half of what lies between the slowest step and the fastest, in per cent.

    steps: (tokens, seconds) up to each.
    """
    rates = [(now[0] - before[0]) / max(1e-3, now[1] - before[1]) for before, now in pairwise(steps)]
    (first_tokens, first_s), (last_tokens, last_s) = steps[0], steps[-1]
    return (last_tokens - first_tokens) / max(1e-3, last_s - first_s), 50 * (max(rates) / min(rates) - 1)


def probe_overrides(run: RunConfig, overrides: Overrides) -> Overrides:
    """Return how the probe trains: the same run, one micro-step a step, without evaluations."""
    sizes = {"batch_size": run.optim.batch_size, "gradient_accumulation_steps": 1}
    settings = [*QUIET_SETTINGS, *(f"training.config.{key}={value}" for key, value in sizes.items())]
    if run.watch.eval_strategy != "no":  # without it the store would have other rows
        settings += ["training.config.eval_strategy=steps", f"training.config.eval_steps={_NEVER}"]
    return with_settings(replace(overrides, device=run.compute.device, max_steps=STEPS), *settings)
