"""Probes run in a process of their own, so that a crash or a hang in a native library costs one line, not the report.

The child answers {"probe": name} with the line to report. One that dies or hangs in a probe is replaced for the rest.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from expert_cli.doctor.check_result import CheckResult
from expert_cli.doctor.probes import PROBES, Probe
from expert_cli.utils.subprocesses import JsonLinesWorker, LineProcess, how_it_ended, last_words

_ENTRY = "from expert_cli.doctor.probes import main; main()"


def run_probes(probes: Sequence[Probe] = PROBES, entry: str = _ENTRY) -> Iterator[list[CheckResult]]:
    """Yield the lines of each probe in turn; `entry` is the program that runs those it is asked for."""
    with tempfile.TemporaryDirectory(prefix="expert-cli-doctor-", ignore_cleanup_errors=True) as name:
        log = Path(name) / "stderr.txt"
        worker = JsonLinesWorker(partial(_start, entry, log))
        try:
            for probe in probes:
                yield [_answer(worker, probe, log)]
        finally:
            worker.close()


def _answer(worker: JsonLinesWorker, probe: Probe, log: Path) -> CheckResult:
    try:
        return CheckResult(**worker.ask({"probe": probe.name}, probe.limit_s))
    except TimeoutError:
        found = f"no answer within {probe.limit_s:.0f} s"
    except EOFError as error:
        found = ": ".join(filter(None, (how_it_ended(*error.args), last_words(log))))
    return CheckResult(probe.name, probe.severity, found, probe.fix)


def _start(entry: str, log: Path) -> LineProcess:
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", entry]
    with log.open("wb") as stderr:
        return LineProcess(command, cwd=log.parent, env=_environment(log.parent), stderr=stderr)


def _environment(folder: Path) -> dict[str, str]:
    """Return the child's environment: our import path, no network, and nothing compiled earlier is used again."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONIOENCODING": "utf-8",
        "HF_HUB_OFFLINE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
