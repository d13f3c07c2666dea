"""Watches a run: finds it, takes samples, reads its log, and reports what slows it down."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from expert_cli.benchmark.diagnosis import diagnose
from expert_cli.benchmark.evidence import collect_evidence, judged_lines
from expert_cli.benchmark.sampler import GAUGES, Gauge, MonitorSample, Sampler, main_gpu, series, spread
from expert_cli.errors import EnvironmentProblem
from expert_cli.hardware import nvml
from expert_cli.hardware.nvml import GpuSample
from expert_cli.runs.lock import running
from expert_cli.runs.metrics import SHARES, MetricsTail, numbers, rates, read_json, require_run
from expert_cli.runs.run_paths import RunPaths
from expert_cli.runs.status import ELSEWHERE, RUNNING, standing
from expert_cli.utils.text import aligned

AskGpus = Callable[[], Sequence[GpuSample]]
SPREAD = ["mean", "min", "max"]
SPEED = Gauge("", "tokens_per_s", "tokens/s", "", "")
"""From the run's own log lines, not from samples."""


@dataclass(frozen=True)
class MonitoredRun:
    """The run to watch; if it is over, only its files are read. pid None: its process is unknown."""

    paths: RunPaths
    pid: int | None
    is_over: bool = False


@dataclass
class MonitorSession:
    """The observation of a run. earlier: metric lines from before; ended: the run has finished during it."""

    target: MonitoredRun
    samples: list[MonitorSample] = field(default_factory=list)
    earlier: list[dict[str, Any]] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    ended: bool = False
    interrupted: bool = False

    @property
    def seconds(self) -> float:
        """Seconds of observation."""
        return self.samples[-1].seconds if self.samples else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the document of `benchmark --json` (docs/INTERFACE.md), kind "monitor"."""
        index = main_gpu(self.samples)
        blocks: dict[str, dict[str, Any]] = {"gpu": {}, "process": {}}
        for gauge in GAUGES:
            blocks[gauge.block][gauge.key] = spread(series(gauge, self.samples, index))
        run = read_json(self.target.paths.run_json)
        evidence = collect_evidence(self.samples, self.earlier, self.lines, run)
        return {
            "kind": "monitor",
            "run": str(self.target.paths.output),
            "seconds": round(self.seconds, 3),
            "samples": len(self.samples),
            "gpu": {"index": index, **blocks["gpu"]} if index is not None else None,
            "process": blocks["process"] if blocks["process"]["rss_mb"] else None,
            "tokens_per_s": spread(*rates(judged_lines(self.earlier, self.lines), "tokens_per_s")),
            "step_time_shares": dict(evidence.shares) or None,
            **diagnose(evidence).as_json(),
            "notes": self.notes(),
            "ended": self.ended,
        }

    def notes(self) -> list[str]:
        """Return notes about the figures."""
        told = []
        if self.target.is_over:
            told.append("the run is over: judged by what it logged")
        elif self.ended:
            told.append(f"the run ended after {self.seconds:.0f} s of watching")
        elif self.target.pid is None:
            told.append("no process of this run is known here: its CPU and memory are not told")
        if self.samples and not numbers(self.lines, "loss"):
            before = len(numbers(self.earlier, "loss"))
            told.append(f"no step was logged while it was watched; {before} steps were logged before")
        return told


def find_run(folder: Path | None) -> MonitoredRun:
    """Return the run in a folder, or the newest active one. Raises InputError; EnvironmentProblem if nothing runs."""
    runs = running()
    if folder is not None:
        paths = require_run(folder)
        pid = next((run.pid for run in runs if run.output.resolve() == paths.output), None)
        state = standing(paths.status, is_complete=paths.complete.exists()).state
        return MonitoredRun(paths, pid, is_over=pid is None and state not in (RUNNING, ELSEWHERE))
    if not runs:
        hint = "start one with expert-cli train, or name the folder of a run with --run DIR"
        raise EnvironmentProblem("no training run is active on this machine", hint)
    return MonitoredRun(RunPaths(runs[-1].output), runs[-1].pid)


def monitor_run(
    target: MonitoredRun,
    duration: float,
    interval: float,
    show: Callable[[MonitorSession], None],
    ask_gpus: AskGpus = nvml.sample,
) -> MonitorSession:
    """Take a sample every `interval` seconds, until `duration`, the run's end or Ctrl-C, and call `show` each time."""
    tail = MetricsTail(target.paths.metrics)
    seen = MonitorSession(target, earlier=tail.read())
    if target.is_over:
        return seen
    with nvml.nvml_session():
        sampler = Sampler(target.pid, ask_gpus)
        try:
            while not seen.ended and seen.seconds < duration - interval / 2:
                time.sleep(min(interval, duration))
                seen.samples.append(sampler.take())
                seen.ended = seen.samples[-1].alive is False or target.paths.complete.exists()
                seen.lines += tail.read()
                show(seen)
        except KeyboardInterrupt:
            seen.interrupted = True
    seen.lines += tail.read()
    return seen


# What a terminal shows, as text; nothing is printed here ---------------------------------------------------------------


def progress_note(seen: MonitorSession) -> str:
    """Return the newest figures in one line: progress, and the load of GPU and CPU."""
    lines, index = seen.lines or seen.earlier, main_gpu(seen.samples)
    parts = [f"step {step:,.0f}" for step in numbers(lines, "step")[-1:]]
    parts += [f"loss {loss:.3f}" for loss in numbers(lines, "loss")[-1:]]
    parts += [f"{rate:,.0f} tokens/s" for rate in numbers(lines, "tokens_per_s")[-1:]]
    use = [(gauge, series(gauge, seen.samples[-1:], index)) for gauge in GAUGES if gauge.unit == "%"]
    return "  ".join([*parts, *(f"{gauge.label} {gauge.text(value)}" for gauge, values in use for value in values)])


def summary(document: Mapping[str, Any]) -> str:
    """Return a finished observation as lines: figures, shares, verdict, evidence, advice, notes."""
    told = [f"{document['run']}: {document['samples']} samples in {document['seconds']:.0f} s"]
    wholes = [(SPEED, document["tokens_per_s"]), *((g, (document[g.block] or {}).get(g.key)) for g in GAUGES)]
    known = [[gauge.label, *(gauge.text(whole[name]) for name in SPREAD)] for gauge, whole in wholes if whole]
    told += aligned(["", *SPREAD], known)
    if shares := document["step_time_shares"]:
        parts = [f"{name.replace('_', ' ')} {shares[name]:.0%}" for name in SHARES if shares[name] >= 0.005]
        told.append(f"time of a step: {', '.join(parts)}")
    told += ["", f"verdict: {document['verdict']}", *(f"  {text}" for text in document["evidence"])]
    if document["advice"]:
        told += ["change:", *(f"  {one['text']}" for one in document["advice"])]
    return "\n".join([*told, *(f"note: {text}" for text in document["notes"])])
