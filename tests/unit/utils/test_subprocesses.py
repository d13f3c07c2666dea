"""Processes that are spoken to in lines, on small programs, and how a process is set up."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from expert_cli.utils.process_setup import usable_cores
from expert_cli.utils.subprocesses import JsonLinesWorker, LineProcess

ECHO = """
import json, os, sys, time
print("ready", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "sleep" in asked:
        time.sleep(asked["sleep"])
    if "exit" in asked:
        os.close(1)  # the end of its lines comes before its own
        time.sleep(0.5)
        os._exit(asked["exit"])
    print(json.dumps({"pid": os.getpid(), **asked}), flush=True)
"""
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""
LOUD = "print('x' * 100_000, flush=True); print('more', flush=True)"
LARGE = "kept = bytearray(300_000_000); print('ready', flush=True); import time; time.sleep(600)"
Start = Callable[..., LineProcess]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    return lambda program, **how: LineProcess([sys.executable, "-c", program], cwd=tmp_path, **how)


@pytest.fixture
def worker(start: Start) -> JsonLinesWorker:
    def ready() -> LineProcess:
        process = start(ECHO)
        assert process.receive(60).strip() == b"ready"
        return process

    return JsonLinesWorker(ready)


def gone(pid: int) -> bool:
    """Whether a process has ended, or does so within seconds."""
    end = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def test_one_process_answers_many_questions(worker: JsonLinesWorker) -> None:
    first, second = worker.ask({"text": "é\n"}, 60), worker.ask({}, 60)
    assert first == {**second, "text": "é\n"}
    worker.close()
    worker.close()
    assert gone(first["pid"])
    assert worker.ask({}, 60)["pid"] != first["pid"]
    worker.close()


def test_what_is_late_is_ended_and_answers_nothing_else(worker: JsonLinesWorker) -> None:
    known = worker.ask({}, 60)["pid"]
    with pytest.raises(TimeoutError):
        worker.ask({"sleep": 1, "late": True}, 0.1)
    assert gone(known)
    assert "late" not in worker.ask({}, 60)
    worker.close()


def test_what_ends_says_how_and_is_started_again(worker: JsonLinesWorker) -> None:
    known = worker.ask({}, 60)["pid"]
    with pytest.raises(EOFError, match=r"^3$"):
        worker.ask({"exit": 3}, 60)
    assert worker.ask({}, 60)["pid"] != known
    worker.close()


@pytest.mark.parametrize("own_session", [False, True])
def test_what_a_process_started_ends_with_it(start: Start, own_session: bool) -> None:
    process = start(PARENT, own_session=own_session)
    grandchild = int(process.receive(60))
    assert process.kill() != 0
    assert gone(grandchild)


def test_a_process_ends_with_its_object(start: Start) -> None:
    process = start(PARENT)
    grandchild = int(process.receive(60))
    del process
    gc.collect()
    assert gone(grandchild)


def test_no_more_is_read_than_allowed(start: Start) -> None:
    process = start(LOUD, max_bytes=1_000)
    assert process.receive(60) == b"x" * 1_000
    assert process.receive(60) == b""
    process.kill()


def test_what_holds_too_much_memory_is_noticed(start: Start) -> None:
    process = start(LARGE)
    assert process.receive(60).strip() == b"ready"
    with pytest.raises(TimeoutError):
        process.receive(0.1, max_memory_bytes=10_000_000_000)
    with pytest.raises(MemoryError):
        process.receive(60, max_memory_bytes=100_000_000)
    process.kill()


HERE = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
SET_UP = "from expert_cli.utils.process_setup import prepare_process; prepare_process(); import torch"


@pytest.mark.skipif(sys.platform != "linux", reason="libgomp is Linux's")
@pytest.mark.parametrize(("code", "sleeps"), [(SET_UP, True), ("import torch", False)], ids=["prepared", "as it is"])
def test_threads_that_wait_sleep_soon(code: str, *, sleeps: bool) -> None:
    """libgomp prints what it read when it was loaded."""
    ours = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "GOMP_SPINCOUNT")
    kept = {name: value for name, value in os.environ.items() if name not in ours} | {"OMP_DISPLAY_ENV": "verbose"}
    done = subprocess.run([sys.executable, "-c", code], env=kept, capture_output=True, text=True, check=True)
    assert ("GOMP_SPINCOUNT = '1000'" in done.stderr) == sleeps


@pytest.mark.parametrize(
    ("quota", "cores"), [("max", HERE), ("20000", 1), ("100000", 1), ("150000", min(2, HERE)), ("1000000000", HERE)]
)
def test_a_container_gets_as_many_threads_as_its_share_of_time(tmp_path: Path, quota: str, cores: int) -> None:
    limit = tmp_path / "cpu.max"
    assert usable_cores(limit) == HERE
    limit.write_text(f"{quota} 100000\n")
    assert usable_cores(limit) == cores
