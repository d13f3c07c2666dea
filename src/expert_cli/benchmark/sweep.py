"""Every combination of some settings at the same effective batch, each in a fresh process: which is fastest and fits?"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Literal

from expert_cli.benchmark.experiment import conditions, decided
from expert_cli.benchmark.measured_run import (
    Measure,
    Run,
    RunMeasurement,
    StepCounts,
    Variant,
    figures_json,
    notes_on,
    run_in_turn,
    run_once,
)
from expert_cli.config.resolve import Overrides
from expert_cli.errors import EnvironmentProblem, ExpertError, InputError, TrainingFailed
from expert_cli.hardware.machine import Machine
from expert_cli.utils.reporter import Reporter

Status = Literal["ran", "does not fit", "failed", "not run"]
SIZES = ("batch_size", "gradient_accumulation_steps")
_LACKS_MEMORY = re.compile(r"\b(?:out of|fit|want of)\b.*\bmemory\b")
"""What errors for want of memory say: the training's, the loading's, and that of a process the system killed."""
STRICT = "training.config.on_oom=error"
"""A setting that would have to be changed to fit does not fit."""


@dataclass
class Trial:
    """One combination: manifest keys -> values, the accumulation that keeps the effective batch among them."""

    settings: dict[str, Any]
    status: Status = "not run"
    reason: str = ""
    runs: list[RunMeasurement] = field(default_factory=list)

    @property
    def flags(self) -> list[str]:
        """The settings as `--set` takes them."""
        return [f"training.config.{key}={as_written(value)}" for key, value in self.settings.items()]

    @property
    def name(self) -> str:
        """What messages call it."""
        return " ".join(f"{key}={as_written(value)}" for key, value in self.settings.items())

    @property
    def speed(self) -> float:
        """Real tokens a second, -1 if nothing was measured."""
        return sum(run.tokens_per_s for run in self.runs) / len(self.runs) if self.runs else -1.0

    def as_json(self) -> dict[str, Any]:
        """Return its row."""
        return {
            "settings": self.settings,
            "set": self.flags,
            "status": self.status,
            "reason": self.reason,
            "measured": figures_json(self.runs) if self.runs else None,
        }


@dataclass(frozen=True)
class Swept:
    """All combinations, the fastest first, those that did not run last. interrupted: as that of an Experiment."""

    manifest: Path
    machine: Machine
    step_counts: StepCounts
    effective_batch: int
    trials: tuple[Trial, ...]
    interrupted: int

    @property
    def fastest(self) -> Trial | None:
        """The fastest that fits, None if none ran."""
        return self.trials[0] if self.trials and self.trials[0].runs else None

    @property
    def exit_code(self) -> int:
        """What it ends with: where nothing ran, by whether the settings did not allow it or every run failed."""
        if self.interrupted or self.fastest:
            return self.interrupted
        tried = any(trial.status != "not run" for trial in self.trials)
        return TrainingFailed.exit_code if tried else InputError.exit_code

    def as_json(self) -> dict[str, Any]:
        """Return the document."""
        best = self.fastest
        runs = [run for trial in self.trials for run in trial.runs]
        return {
            "kind": "sweep",
            "manifest": str(self.manifest),
            **conditions(self.machine, self.step_counts),
            "effective_batch": self.effective_batch,
            "trials": [trial.as_json() for trial in self.trials],
            "fastest": best and {"set": best.flags, "manifest": {"training": {"config": best.settings}}},
            "interrupted": bool(self.interrupted),
            "notes": [*notes_on(runs), *self._notes()],
        }

    def _notes(self) -> list[str]:
        ran = [trial for trial in self.trials if trial.runs]
        if len(ran) < 2 or ran[1].speed < 0.95 * ran[0].speed:
            return []
        return [
            f"the first two are {1 - ran[1].speed / ran[0].speed:.1%} apart: more --steps and --repeats tell which is faster"
        ]


def as_written(value: Any) -> str:
    """Return a value as `--set` reads it."""
    return value if isinstance(value, str) else json.dumps(value)


def parse_sweep(asked: Sequence[str]) -> dict[str, list[Any]]:
    """Read `KEY=a,b,c` of each `--sweep`; the key may have `training.config.` before it. Raises InputError."""
    swept: dict[str, list[Any]] = {}
    for text in asked:
        key, equals, listed = text.partition("=")
        key = key.strip().removeprefix("training.config.")
        words = [word.strip() for word in listed.split(",")]
        if not key or not equals or not all(words):
            raise InputError(f'--sweep "{text}" is not of the form KEY=a,b,c', "for example --sweep batch_size=2,4,8")
        if key in swept:
            raise InputError(f"--sweep {key} is there twice", f"--sweep {key}=a,b,c takes all its values")
        if len(set(words)) < len(words):
            raise InputError(f'--sweep "{text}" names a value twice')
        swept[key] = [_value(word) for word in words]
    return swept


def combinations(swept: Mapping[str, Sequence[Any]], batch_size: int, accumulation: int) -> list[Trial]:
    """Return every combination at the effective batch `batch_size` x `accumulation`, one that cannot keep it as not run.

    Whichever of the two is not swept is adjusted to the other.
    """
    effective = batch_size * accumulation
    trials = [Trial(dict(zip(swept, values, strict=True))) for values in product(*swept.values())]
    for trial in trials:
        given = {key: trial.settings[key] for key in SIZES if key in trial.settings}
        if any(type(value) is not int or value < 1 for value in given.values()):
            raise InputError(f"--sweep: {trial.name}: must be whole numbers greater than 0")
        size = prod(given.values())
        if len(given) == 2 and size != effective:
            trial.reason = f"its effective batch is {size}, not {effective}"
        elif len(given) == 1 and effective % size:
            trial.reason = f"{' '.join(given)} {size} does not divide the effective batch {effective}"
        elif len(given) == 1:
            trial.settings |= {key: effective // size for key in SIZES if key not in given}
    return trials


def sweep(
    manifest: Path,
    asked: Sequence[str],
    overrides: Overrides,
    step_counts: StepCounts,
    repeats: int,
    machine: Machine,
    report: Reporter,
    run: Run = run_once,
) -> Swept:
    """Run every combination `repeats` times, in turn; one that does not fit is not tried again.

    Ctrl-C and SIGTERM end the run under way and return those before it. Raises InputError, ManifestError before anything
    runs, and errors of a run that have nothing to do with its settings.
    """
    written = decided(manifest, overrides, machine)
    optim = written.optim
    trials = combinations(parse_sweep(asked), optim.batch_size, optim.gradient_accumulation_steps)
    runnable = [trial for trial in trials if not trial.reason]
    for trial in runnable:
        decided(manifest, replace(overrides, settings=(*overrides.settings, *trial.flags)), machine)

    def take(number: int, measure: Measure) -> None:
        trial = runnable[number]
        if trial.status in ("not run", "ran"):
            _try(trial, measure)
            report.info(f"{trial.name}: {f'{trial.speed:,.0f} tokens/s' if trial.runs else trial.status}")

    variants = [Variant(trial.name, manifest, settings=(*trial.flags, STRICT)) for trial in runnable]
    interrupted = run_in_turn(variants, written.seed, repeats, overrides, step_counts, report, take, run)
    for trial in runnable:
        trial.reason = trial.reason or ("interrupted before it ran" if trial.status == "not run" else "")
    ranked = sorted(trials, key=lambda trial: -trial.speed)
    effective = optim.batch_size * optim.gradient_accumulation_steps
    return Swept(manifest, machine, step_counts, effective, tuple(ranked), interrupted)


def _try(trial: Trial, measure: Measure) -> None:
    """Run once. Raises what has nothing to do with the settings: a missing model, a package."""
    try:
        trial.runs.append(measure())
        trial.status = "ran"
    except (TrainingFailed, EnvironmentProblem) as error:
        trial.status = "does not fit" if is_memory(error, trial.name) else "failed"
        trial.reason = error.message
        trial.runs.clear()
        if isinstance(error, EnvironmentProblem) and trial.status == "failed":
            raise


def is_memory(error: ExpertError, name: str) -> bool:
    """Whether memory was what a run lacked. name: the variant's, which stands before the message and may speak of memory."""
    return _LACKS_MEMORY.search(error.message.removeprefix(f"{name}: ")) is not None


def _value(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        return word
