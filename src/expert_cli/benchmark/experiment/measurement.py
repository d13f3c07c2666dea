"""What one short training run came to, read from its run directory and from what its parent saw meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from expert_cli.benchmark.experiment.parity import Curve
from expert_cli.benchmark.monitor.gauges import gpu_of, main_gpu, values_of
from expert_cli.benchmark.monitor.sampler import MonitorSample
from expert_cli.config.run_identity import SETTINGS
from expert_cli.errors import ExpertError
from expert_cli.runs.metrics import SHARES, mean_shares, number, padding_share, part, read_json
from expert_cli.runs.paths import RunPaths
from expert_cli.utils.statistics import mean_of

BUSY_PERCENT = 10.0
"""So much of the machine's CPU in other hands is worth a word."""


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
        return {
            "seed": self.seed,
            "seconds": self.seconds,
            "tokens_per_s": self.tokens_per_s,
            "peak_memory_mb": self.peak_memory_mb,
            "utilization": self.utilization,
            "trained_tokens": list(self.curve.tokens),
            "losses": [loss if abs(loss) < float("inf") else None for loss in self.curve.losses],
        }


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
    real = part(report, "store")
    cut = number(real, "packing", "truncated_tokens") or 0.0
    return RunMeasurement(
        seed=seed,
        seconds=seconds,
        tokens_per_s=tokens / max(seconds, 1e-3),
        tokens_per_step=tokens / len(steady),
        padding_share=padding_share(lines),
        shares=mean_shares(steady, start if warmup else None),
        peak_memory_mb=_peak(report, run, steady, samples),
        utilization=_utilization(samples, number(run, "machine", "cores"), gpu_index),
        curve=_curve(lines),
        config=part(run, "config"),
        facts={
            "model": part(run, "model"),
            "train_sha256": str(part(run, "store", "parts").get("train data", "")),
            "adjusted": report.get("adjusted", []),
            "kernels": {name: line.get("used") for name, line in part(run, "kernels").items()},
            "epoch_tokens": (number(real, "tokens") or 0.0) - cut,
        },
    )


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
    flat = [
        {f"{block}.{key}": value for block in SETTINGS for key, value in part(config, block).items()}
        | {"data.max_seq_length": part(config, "data").get("max_seq_length")}
        for config in (a, b)
    ]
    return {key: [flat[0].get(key), flat[1].get(key)] for key in flat[0] if flat[0].get(key) != flat[1].get(key)}


def _curve(lines: Sequence[dict[str, Any]]) -> Curve:
    trained = [0, *(int(line["tokens_trained"]) for line in lines)]
    return Curve(tuple(b - a for a, b in pairwise(trained)), tuple(float(line["loss"]) for line in lines))


def _peak(report: Any, run: Any, steady: Sequence[dict[str, Any]], samples: Sequence[MonitorSample]) -> float:
    if part(run, "config", "compute").get("device", "cpu") != "cpu":
        return number(report, "peak_memory_mb") or 0.0
    sampled = [rss_mb * 1e6 / 2**20 for rss_mb in values_of(samples, "rss_mb")]
    return max((*sampled, *(number(line, "memory_mb") or 0.0 for line in steady)))


def _utilization(
    samples: Sequence[MonitorSample], cores: float | None, gpu_index: int | None
) -> dict[str, float | None]:
    index = main_gpu(samples, gpu_index)
    others = [
        max(0.0, s.machine_cpu_percent - s.cpu_percent / cores)
        for s in samples
        if cores and s.cpu_percent is not None and s.machine_cpu_percent is not None
    ]
    return {
        "gpu": _mean(values_of((gpu_of(sample, index) for sample in samples), "utilization")),
        "cpu": _mean(values_of(samples, "cpu_percent")),
        "others": _mean(others),
    }


def _mean(values: Iterable[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return fmean(told) if told else None
