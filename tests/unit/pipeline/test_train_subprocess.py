"""A process that trains: what it is started with, what comes back, how it ends."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from expert_cli.errors import EnvironmentProblem, ExpertError, InputError, TrainingFailed
from expert_cli.pipeline.options import Lines, child_error, run_train_subprocess

STEPS = """
import pathlib, sys, time
metrics = pathlib.Path(sys.argv[1]) / "metrics.jsonl"
metrics.parent.mkdir()
with metrics.open("w") as file:
    for line in ('{"step": 1, "loss": 2.0}', '{"step": 1, "eval_loss": 3.0}', '{"step": 2, "loss": 1.0}'):
        print(line, file=file, flush=True)
        time.sleep(0.2)
"""
FAMILY = """
import pathlib, subprocess, sys, time
metrics = pathlib.Path(sys.argv[1]) / "metrics.jsonl"
metrics.parent.mkdir()
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
metrics.write_text(f'{{"other": {other.pid}}}\\n')
time.sleep(60)
"""


def test_steps_come_back_and_are_seen_on_the_way(tmp_path: Path) -> None:
    seen: Lines = []

    def look(pid: int, lines: Lines) -> None:
        seen.extend(lines)

    steps = run_train_subprocess("a", ["-c", STEPS, str(tmp_path / "run")], tmp_path / "run", look, 0.05)
    assert steps == [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]
    assert seen == [{"step": 1, "loss": 2.0}, {"step": 1, "eval_loss": 3.0}, {"step": 2, "loss": 1.0}]


def test_whoever_interrupts_ends_the_whole_family(tmp_path: Path) -> None:
    family: list[int] = []

    def look(pid: int, lines: Lines) -> None:
        if lines:
            family.extend([pid, lines[0]["other"]])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_train_subprocess("a", ["-c", FAMILY, str(tmp_path / "run")], tmp_path / "run", look, 0.05)
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
        pytest.param(-9, "", "", TrainingFailed, "b: killed by the system, most likely for want of memory", id="killed"),
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
