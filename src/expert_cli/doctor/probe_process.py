"""Probes run in a process of their own, so that a crash or a hang in a native library costs one line, not the report.

The child prints one JSON line a finished probe. A child that dies or hangs in a probe is replaced by another one for the rest.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from expert_cli.doctor.check_result import CheckResult
from expert_cli.doctor.probes import PROBES, Probe
from expert_cli.utils.subprocesses import LineProcess, how_it_ended, last_words

_ENTRY = "from expert_cli.doctor.probes import main; main()"


def run_probes(probes: Sequence[Probe] = PROBES, entry: str = _ENTRY) -> Iterator[list[CheckResult]]:
    """Yield the lines of each probe in turn; `entry` is the program that runs those named in its arguments."""
    done = 0
    with tempfile.TemporaryDirectory(prefix="expert-cli-doctor-", ignore_cleanup_errors=True) as folder:
        while done < len(probes):
            for lines in _one_child(probes[done:], entry, Path(folder)):
                done += 1
                yield lines


def _one_child(probes: Sequence[Probe], entry: str, folder: Path) -> Iterator[list[CheckResult]]:
    """Yield lines probe by probe; the last may be the one in which the child died or was ended."""
    log = folder / "stderr.txt"
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", entry, *(probe.name for probe in probes)]
    with log.open("wb") as stderr:
        child = LineProcess(command, cwd=folder, env=_environment(folder), stderr=stderr)
    try:
        for probe in probes:
            try:
                answer = child.receive(probe.limit_s)
            except TimeoutError:
                yield [CheckResult(probe.name, probe.severity, f"no answer within {probe.limit_s:.0f} s", probe.fix)]
                return
            if not answer:
                found, said = how_it_ended(child.exit_code()), last_words(log)
                yield [CheckResult(probe.name, probe.severity, f"{found}: {said}" if said else found, probe.fix)]
                return
            yield [CheckResult(**line) for line in json.loads(answer)]
    finally:
        child.kill()


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
