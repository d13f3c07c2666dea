"""Options of a run besides its settings, the command line with the same options, and runs in other processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

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
from expert_cli.runs.metrics import MetricsTail, read_json
from expert_cli.runs.run_paths import RunPaths
from expert_cli.runs.signals import Terminated
from expert_cli.utils.subprocesses import end_family, how_it_ended, last_words
from expert_cli.utils.text import quoted

if TYPE_CHECKING:
    from transformers import TrainerCallback

    from expert_cli.evaluation.grade import Permissions


_NO_OPTIONS = ("resume", "overwrite", "command", "callbacks", "stored_at", "written")
_OPTIONS = {"settings": "set", "init_adapter": "from"}
"""Fields whose command-line option has another name."""


@dataclass(frozen=True)
class RunOptions:
    """Options of a run besides its settings: the arguments of `api.train`, which explains them.

    command: starts the run from a shell, without --resume and --overwrite. stored_at: the URL of the run directory, "" for
    none. written: called after the run's status was written, at each checkpoint and stage.
    """

    overwrite: bool = False
    resume: str = ""
    allow_drift: tuple[str, ...] = ()
    locked: Path | None = None
    trust_store: bool = False
    stage: Path | None = None
    max_forget: float | None = None
    allow_commands: bool = False
    without_walls: bool = False
    callbacks: tuple[TrainerCallback, ...] = ()
    command: str = "expert-cli train"
    stored_at: str = ""
    written: Callable[[], object] = lambda: None

    @property
    def permissions(self) -> Permissions:
        """What judging may do in this run."""
        from expert_cli.evaluation.grade import Permissions

        return Permissions(self.allow_commands, self.without_walls)


def train_words(manifest: Path, *options: Overrides | RunOptions) -> list[str]:
    """Return the arguments of `expert-cli` that start this run, without options about an earlier one."""
    words = ["train", "--manifest", str(manifest)]
    for block in options:
        for field in fields(block):
            value = getattr(block, field.name)
            if field.name in _NO_OPTIONS or value == field.default:
                continue
            option = "--" + _OPTIONS.get(field.name, field.name).replace("_", "-")
            for one in value if isinstance(value, tuple) else (value,):
                words += [option] if one is True else [option, str(one)]
    return words


def command_line(manifest: Path, overrides: Overrides, options: RunOptions) -> str:
    """Return the command that starts this run from a shell; `--resume auto` can be appended."""
    return quoted("expert-cli", *train_words(manifest, overrides, options))


Lines = list[dict[str, Any]]
QUIET_SETTINGS = (
    *("training.config.method=sft", "training.config.logging_steps=1", "training.config.report_to=none"),
    *("training.config.save_strategy=no", "training.config.save_every=null", "training.config.eval_strategy=no"),
    *("training.config.load_best_model_at_end=false", "training.config.early_stopping_patience=null"),
    *("evaluation.every_steps=null", "evaluation.sample_answers=0"),
)
"""Settings for measuring steps: every step is logged, and there is one training, without rounds, evaluation or saving."""
_ERRORS = {error.exit_code: error for error in (InputError, EnvironmentProblem, TrainingFailed, IntegrityError)}


def with_settings(asked: Overrides, *settings: str) -> Overrides:
    """Return the overrides with more settings, which replace earlier ones of the same key."""
    by_key = {setting.partition("=")[0]: setting for setting in (*asked.settings, *settings)}
    return replace(asked, settings=tuple(by_key.values()))


def train_subprocess(
    name: str, manifest: Path, asked: Overrides, look: Callable[[int], object] = lambda _: None, every_s: float = 1.0
) -> tuple[Lines, dict[str, Any]]:
    """Train a manifest in a separate process and a temporary folder; return the metrics of its steps, and its report.

    look: called with the process's id every `every_s` seconds. Raises the errors of `run_subprocess`.
    """
    with TemporaryDirectory(prefix="expert-cli-", ignore_cleanup_errors=True) as folder:
        paths = RunPaths(Path(folder) / "run")
        asked_words = train_words(manifest, replace(asked, output=paths.output))
        run_subprocess(name, ["-m", "expert_cli", *asked_words, "--json", "--quiet"], Path(folder), look, every_s)
        steps = [line for line in MetricsTail(paths.metrics).read() if "loss" in line]
        return steps, read_json(paths.report_json)


def run_subprocess(
    name: str, words: Sequence[str], folder: Path, look: Callable[[int], object], every_s: float
) -> None:
    """Run `python WORDS`; its output goes to files in `folder`.

    Raises the error that ended the process, with `name` before its message. Any other error, such as one in `look`, kills the
    process and all processes that it started.
    """
    logs = folder / "out", folder / "err"
    with logs[0].open("wb") as out, logs[1].open("wb") as err:
        child: subprocess.Popen[Any] = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=child_environment()
        )
        try:
            while child.returncode is None:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=every_s)
                look(child.pid)
        finally:
            end_family(child)
    if child.returncode:
        raise child_error(name, child.returncode, *logs)


def child_environment() -> dict[str, str]:
    """Return the environment of such a process: with this package, and one GPU, because the stock Trainer would use all."""
    package = str(Path(__file__).parents[2])
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", "")))),
        "PYTHONIOENCODING": "utf-8",
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0],
    }


def child_error(name: str, code: int, out: Path, err: Path) -> BaseException:
    """Return the error that ended a process, as one of our exceptions. out, err: the files with its output."""
    if code in (CTRL_C, TERMINATED):
        return Terminated() if code == TERMINATED else KeyboardInterrupt()
    try:
        told = json.loads(out.read_text(encoding="utf-8").splitlines()[-1])["error"]
        message, hint = str(told["message"]), str(told["hint"])
    except (ValueError, KeyError, TypeError, IndexError):
        message, hint = f"{how_it_ended(code)}: {last_words(err)}", ""
    if code == -9:
        message, hint = (
            "killed by the system, probably because memory ran out",
            "a smaller batch_size or max_seq_length",
        )
        code = TrainingFailed.exit_code
    return _ERRORS.get(code, ExpertError)(f"{name}: {message}", hint)
