"""Processes that are spoken to in lines, on small programs."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from expert_cli.utils.subprocesses import JsonLinesWorker, LineProcess, cancel_with

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


def test_threads_that_ask_at_once_have_a_process_each(worker: JsonLinesWorker) -> None:
    def ask(number: int) -> dict[str, Any]:
        found = worker.ask({"number": number}, 60)
        return {**worker.ask({"number": number, "sleep": 0.5}, 60), "before": found["pid"]}

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(ask, range(2)))
    assert [one["number"] for one in found] == [0, 1]
    assert found[0]["pid"] != found[1]["pid"]
    known = {one["pid"] for one in found}
    assert {worker.ask({}, 60)["pid"] for _ in range(5)} <= known
    worker.close()
    assert all(map(gone, known))


def test_what_a_thread_waits_for_ends_when_it_is_cancelled(worker: JsonLinesWorker) -> None:
    cancel = threading.Event()

    def ask() -> None:
        cancel_with(cancel)
        worker.ask({"sleep": 600}, 600)

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)
        cancel.set()
        with pytest.raises(CancelledError):
            asked.result(60)
    assert worker.ask({}, 60)


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
