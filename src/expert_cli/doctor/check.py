"""What a check is and what it answers, and how it is made: here, or in a process of its own, so that a crash or a hang in a
native library costs one line, not the report.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal, get_args

from expert_cli.errors import EnvironmentProblem
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.subprocesses import JsonLinesWorker, LineProcess, how_it_ended, last_words
from expert_cli.utils.text import first_line

State = Literal["ok", "warn", "fail"]
"""From best to worst."""
_PROGRAM = "from expert_cli.doctor.probes import main; main()"
_STDERR = "stderr.txt"


@dataclass(frozen=True)
class CheckResult:
    """One row of the report. warn: training works, but worse than it could; fail: it will not work. `fix` may be empty."""

    name: str
    state: State
    found: str
    fix: str = ""


@dataclass(frozen=True)
class Check:
    """One row of the tables: what finds it out, and how bad it is and what to do where that raises.

    run: returns what it found where all is well, or lines of its own; an EnvironmentProblem's remedy goes before `fix`.
    limit_s: of what is tried in a process of its own, after how long it counts as hung; 0: it is made here.
    """

    name: str
    run: Callable[[], str | CheckResult | list[CheckResult]]
    severity: State = "warn"
    fix: str = "this is a bug in expert-cli: report this line"
    limit_s: float = 0.0


def judged(name: str, found: str, *problems: tuple[object, State, str]) -> CheckResult:
    """Return a check's line: the first of `problems` (whether it is there, how bad it is, the remedy) decides, none is ok."""
    for is_there, state, fix in problems:
        if is_there:
            return CheckResult(name, state, found, fix)
    return CheckResult(name, "ok", found)


def worst(lines: Sequence[CheckResult]) -> State:
    """Return the state of all lines together."""
    return max((line.state for line in lines), key=get_args(State).index, default="ok")


def attempt(check: Check) -> list[CheckResult]:
    """Make a check in this process; what it raises is its line."""
    try:
        found = check.run()
    except EnvironmentProblem as problem:
        return [CheckResult(check.name, check.severity, problem.message, problem.hint or check.fix)]
    except Exception as error:  # noqa: BLE001  a trial finds out what breaks, and the report must go on
        words = f"{type(error).__name__}: {first_line(error)}"
        words = words if check.limit_s else f"this check broke: {words}"
        return [CheckResult(check.name, check.severity, words, check.fix)]
    if isinstance(found, str):
        found = CheckResult(check.name, "ok", found)
    return found if isinstance(found, list) else [found]


def check_up(report: Reporter, facts: Sequence[Check], probes: Sequence[Check]) -> list[CheckResult]:
    """Make all checks in turn and return their lines; the probes, which load torch, come last."""
    answers, lines = chain(map(attempt, facts), run_probes(probes)), []
    with report.progress("checking", None, "checks done") as bar:
        for done, check in enumerate((*facts, *probes)):
            bar.update(done, f"now {check.name}" + (f", up to {check.limit_s:.0f} s" if check.limit_s else ""))
            lines += next(answers, [])
        bar.update(len(facts) + len(probes))
    return lines


def run_probes(probes: Sequence[Check], program: str = _PROGRAM) -> Iterator[list[CheckResult]]:
    """Yield the lines of each probe in turn; one that dies or hangs ends the process, which is replaced for the rest.

    program: answers each line {"probe": name} with a line, that probe's CheckResult.
    """
    try:
        with (
            tempfile.TemporaryDirectory(prefix="expert-cli-doctor-", ignore_cleanup_errors=True) as name,
            closing(JsonLinesWorker(partial(_start, program, Path(name)))) as worker,
        ):
            for probe in probes:
                yield [_answer(worker, probe, Path(name, _STDERR))]
    except OSError as error:
        found = f"no process can be started to try torch: {error}"
        yield [CheckResult("probes", "fail", found, "look at memory and disk space")]


def _answer(worker: JsonLinesWorker, probe: Check, log: Path) -> CheckResult:
    try:
        return CheckResult(**worker.ask({"probe": probe.name}, probe.limit_s))
    except TimeoutError:
        found = f"no answer within {probe.limit_s:.0f} s"
    except EOFError as error:
        found = ": ".join(filter(None, (how_it_ended(*error.args), last_words(log))))
    return CheckResult(probe.name, probe.severity, found, probe.fix)


def _start(program: str, folder: Path) -> LineProcess:
    """Start the child with our import path and no network, where nothing compiled earlier is used again."""
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", program]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONIOENCODING": "utf-8",
        "HF_HUB_OFFLINE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    with (folder / _STDERR).open("wb") as stderr:
        return LineProcess(command, cwd=folder, env=environment, stderr=stderr)
