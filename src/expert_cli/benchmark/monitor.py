"""Watch a run: find it, sample beside it, read what it logs, and say what holds it back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from expert_cli.benchmark.diagnosis import diagnose
from expert_cli.benchmark.evidence import collect_evidence
from expert_cli.benchmark.gauges import GAUGES, Gauge, main_gpu, series, sparkline, spread
from expert_cli.benchmark.sampler import MonitorSample, Sampler
from expert_cli.errors import EnvironmentProblem
from expert_cli.hardware import nvml
from expert_cli.hardware.nvml import GpuSample
from expert_cli.runs.lock import is_held, running
from expert_cli.runs.metrics import SHARES, MetricsTail, numbers, rates, read_json, require_run
from expert_cli.runs.run_paths import RunPaths

AskGpus = Callable[[], Sequence[GpuSample]]
SPREAD = ["mean", "min", "max"]
SPEED = Gauge("", "tokens_per_s", "tokens/s", "", lambda *_: None)
"""Of the run's own lines, not of the samples."""


@dataclass(frozen=True)
class MonitoredRun:
    """The run to watch, or to read only where it is over, finished or not.

    pid None: no process of this machine is known to write it. others: further runs under way.
    """

    paths: RunPaths
    pid: int | None
    others: tuple[Path, ...] = ()
    is_over: bool = False


@dataclass
class MonitorSession:
    """What was seen of a run. `earlier`: metric lines from before; `ended`: it finished meanwhile."""

    target: MonitoredRun
    gpu_index: int | None = None
    samples: list[MonitorSample] = field(default_factory=list)
    earlier: list[dict[str, Any]] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    damaged_lines: int = 0
    ended: bool = False
    interrupted: bool = False
    cpu_ms_per_sample: float | None = None

    @property
    def seconds(self) -> float:
        """How long it was watched."""
        return self.samples[-1].seconds if self.samples else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the document of `benchmark --json` (docs/INTERFACE.md), kind "monitor"."""
        index = main_gpu(self.samples, self.gpu_index)
        blocks: dict[str, dict[str, Any]] = {"gpu": {}, "process": {}, "machine": {}}
        for gauge in GAUGES:
            blocks[gauge.block][gauge.key] = spread(series(gauge, self.samples, index))
        run = read_json(self.target.paths.run_json)
        evidence = collect_evidence(self.samples, self.earlier, self.lines, run, self.gpu_index)
        return {
            "kind": "monitor",
            "run": str(self.target.paths.output),
            "seconds": round(self.seconds, 3),
            "samples": len(self.samples),
            "gpu": {"index": index, **blocks["gpu"]} if index is not None else None,
            "process": blocks["process"] if blocks["process"]["rss_mb"] else None,
            "machine": blocks["machine"] if self.samples else None,
            "steps": _steps(self.earlier, self.lines),
            "tokens_per_s": spread(evidence.tokens_per_s, evidence.held_s),
            "step_time_shares": dict(evidence.shares) or None,
            **diagnose(evidence).as_json(),
            "notes": self.notes(),
            "ended": self.ended,
            "cpu_ms_per_sample": self.cpu_ms_per_sample,
        }

    def notes(self) -> list[str]:
        """Return what a reader must know about the numbers."""
        told = []
        if self.target.is_over:
            told.append("the run is over: judged by what it logged")
        elif self.ended:
            told.append(f"the run ended after {self.seconds:.0f} s of watching")
        elif self.target.pid is None:
            told.append("no process of this run is known here: CPU and memory are the machine's alone")
        if self.samples and not numbers(self.lines, "loss"):
            before = len(numbers(self.earlier, "loss"))
            told.append(f"no step was logged while it was watched; {before} steps were logged before")
        if self.damaged_lines:
            told.append(f"{self.damaged_lines} damaged lines of metrics.jsonl were left out")
        return [*told, *_gpu_notes(self.samples)]


def find_run(folder: Path | None) -> MonitoredRun:
    """Return the run of a folder, or the newest one under way on this machine.

    Raises InputError: the folder holds no run; EnvironmentProblem: nothing runs.
    """
    runs = running()
    if folder is not None:
        paths = require_run(folder)
        pid = next((run.pid for run in runs if run.output.resolve() == paths.output), None)
        return MonitoredRun(paths, pid, is_over=pid is None and (paths.complete.exists() or not is_held(paths.output)))
    if not runs:
        hint = "start one with expert-cli train, or name the folder of a run with --run DIR"
        raise EnvironmentProblem("no training runs on this machine", hint)
    newest = runs[-1]
    return MonitoredRun(RunPaths(newest.output), newest.pid, tuple(run.output for run in runs[:-1]))


def monitor_run(
    target: MonitoredRun,
    duration: float,
    interval: float,
    show: Callable[[MonitorSession], None],
    ask_gpus: AskGpus = nvml.sample,
) -> MonitorSession:
    """Sample beside a run for `duration` seconds, one look every `interval`; call `show` after each.

    A look that was missed is left out, and the next, unless it is the last, is at least half an interval away: rates over a
    few ms mean nothing. Ends early with the run, and at Ctrl-C with what it has. A run that is over is only read.
    """
    tail = MetricsTail(target.paths.metrics)
    seen = MonitorSession(target, earlier=tail.read())
    if target.is_over:
        seen.damaged_lines = tail.damaged
        return seen
    with nvml.nvml_session():
        seen.gpu_index = next((holder.gpu for holder in nvml.holders() if holder.pid == target.pid), None)
        sampler = Sampler(target.pid, ask_gpus)
        started, cpu = time.monotonic(), time.process_time()
        try:
            while not seen.ended and seen.seconds < duration:
                passed = time.monotonic() - started
                due = min(interval * (round(passed / interval) + 1), duration)
                time.sleep(max(0.0, due - passed))
                seen.samples.append(sampler.take())
                seen.ended = seen.samples[-1].alive is False or target.paths.complete.exists()
                seen.lines += tail.read()
                show(seen)
        except KeyboardInterrupt:
            seen.interrupted = True
    seen.lines += tail.read()
    seen.damaged_lines = tail.damaged
    if seen.samples:
        seen.cpu_ms_per_sample = round(1000 * (time.process_time() - cpu) / len(seen.samples), 3)
    return seen


def _steps(earlier: Sequence[dict[str, Any]], lines: Sequence[dict[str, Any]]) -> int:
    """Return how many steps were logged while it was watched; before the first line ever, none were done."""
    steps, before = numbers(lines, "step"), numbers(earlier, "step")
    return max(0, int(max(steps) - (before[-1] if before else 0))) if steps else 0


def _gpu_notes(samples: Sequence[MonitorSample]) -> list[str]:
    notes: dict[str, None] = {}
    known: set[int] = set()
    for sample in samples:
        present = {one.index for one in sample.gpus}
        for one in sample.gpus:
            if one.problem:
                notes[f"GPU {one.index}: {one.problem}"] = None
            elif one.utilization is None:
                notes[f"GPU {one.index} does not tell its utilization"] = None
        for index in sorted(known - present):
            notes[f"GPU {index} answers no more"] = None
        known |= present
    return list(notes)


# What a terminal shows: text, nothing is printed here --------------------------------------------------------------------


def progress_line(seen: MonitorSession) -> str:
    """Return how far watching and run have come."""
    lines = seen.lines or seen.earlier
    parts = [f"{seen.seconds:5.0f} s"]
    parts += [f"step {step:,.0f}" for step in numbers(lines, "step")[-1:]]
    parts += [f"loss {loss:.3f}" for loss in numbers(lines, "loss")[-1:]]
    parts += [f"{rate:,.0f} tokens/s" for rate in numbers(lines, "tokens_per_s")[-1:]]
    return "  ".join(parts)


def figures_line(seen: MonitorSession) -> str:
    """Return the newest sample's main figures as part of a line."""
    index = main_gpu(seen.samples, seen.gpu_index)
    return "  ".join(
        f"{gauge.label} {gauge.text(value)}"
        for gauge in GAUGES
        if gauge.block != "machine" or gauge.key.startswith(("cpu", "disk"))
        for value in series(gauge, seen.samples[-1:], index)
    )


def rows(seen: MonitorSession) -> list[list[str]]:
    """Return the table of everything that is known, one row a figure, the time as a row of bars at its end."""
    index = main_gpu(seen.samples, seen.gpu_index)
    over_time = [(SPEED, *rates(seen.lines, "tokens_per_s", seen.earlier))]
    over_time += [(gauge, series(gauge, seen.samples, index), []) for gauge in GAUGES]
    table = [["", "now", *SPREAD, ""]]
    for gauge, values, held in over_time:
        if whole := spread(values, held):
            table.append([gauge.label, *map(gauge.text, [values[-1], *whole.values()]), sparkline(values)])
    return table


def summary(document: Mapping[str, Any]) -> str:
    """Return a finished watch as lines: figures, shares, verdict, evidence, advice, notes."""
    told = [
        f"{document['run']}: {document['samples']} samples in {document['seconds']:.0f} s, {document['steps']} steps"
    ]
    wholes = [(SPEED, document["tokens_per_s"]), *((g, (document[g.block] or {}).get(g.key)) for g in GAUGES)]
    known = [[gauge.label, *(gauge.text(whole[name]) for name in SPREAD)] for gauge, whole in wholes if whole]
    if known:
        told += [
            f"  {label:16}" + "".join(f"{cell:>16}" for cell in cells) for label, *cells in [["", *SPREAD], *known]
        ]
    shares = document["step_time_shares"]
    if shares:
        parts = [f"{name.replace('_', ' ')} {shares[name]:.0%}" for name in SHARES if shares[name] >= 0.005]
        told.append(f"  time of a step: {', '.join(parts)}")
    told += ["", f"verdict: {document['verdict']}", *(f"  {text}" for text in document["evidence"])]
    if document["advice"]:
        told += ["change:", *(f"  {one['text']}" for one in document["advice"])]
    return "\n".join([*told, *(f"note: {text}" for text in document["notes"])])
