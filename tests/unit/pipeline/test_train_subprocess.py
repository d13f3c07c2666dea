"""A process that trains: how it ends."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from expert_cli.errors import EnvironmentProblem, ExpertError, InputError, TrainingFailed
from expert_cli.pipeline.options import child_error, run_subprocess

FAMILY = """
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid, flush=True)
time.sleep(60)
"""


def test_whoever_interrupts_ends_the_whole_family(tmp_path: Path) -> None:
    family: list[int] = []

    def look(pid: int) -> None:
        if other := (tmp_path / "out").read_text(encoding="utf-8"):
            family.extend([pid, int(other)])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_subprocess("a", ["-c", FAMILY], tmp_path, look, 0.05)
    assert len(family) == 2
    late = time.monotonic() + 30  # a signal reaches a busy process when it is its turn
    while not all(map(has_ended, family)):
        assert time.monotonic() < late
        time.sleep(0.05)


def has_ended(pid: int) -> bool:
    try:  # a grandchild is nobody's to wait for: it may be left as a zombie
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("code", "out", "err", "kind", "message"),
    [
        pytest.param(2, '{"error": {"message": "m", "hint": "h"}}', "", InputError, "b: m", id="input"),
        pytest.param(3, 'words\n{"error": {"message": "no model", "hint": ""}}', "", EnvironmentProblem, "b: no model",
                     id="last line"),
        pytest.param(1, "", "Traceback\n  x\nValueError: odd", ExpertError, "b: ended with exit code 1: ValueError: odd",
                     id="a bug"),
        pytest.param(-9, "", "", TrainingFailed, "b: killed by the system, probably because memory ran out", id="killed"),
        pytest.param(130, "", "", KeyboardInterrupt, "^$", id="interrupted"),
    ],
)  # fmt: skip
def test_a_failing_side_is_named(
    tmp_path: Path, code: int, out: str, err: str, kind: type[BaseException], message: str
) -> None:
    logs = tmp_path / "out", tmp_path / "err"
    for log, text in zip(logs, (out, err), strict=True):
        log.write_text(text, encoding="utf-8")
    with pytest.raises(kind, match=message) as raised:
        raise child_error("b", code, *logs)
    assert type(raised.value) is kind
