"""Asking a run to stop: by signal, by file, from other threads and processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from expert_cli import errors
from expert_cli.runs.signals import StopRequest

SOURCE = Path(errors.__file__).parents[1]
posix = pytest.mark.skipif(os.name != "posix", reason="signals cannot be sent to one process on Windows")
# Ends by itself with what was asked after the second line it is sent; what comes in between finds it at work.
CHILD = """
import os, pathlib, sys, time
from expert_cli import cli
from expert_cli.errors import Interrupted
from expert_cli.runs.signals import StopRequest

def work(forks: bool = False) -> None:
    with StopRequest(pathlib.Path("run")) as stop:
        begun, begins = os.pipe()
        worker = os.fork() if forks else 1
        if worker == 0:
            os.write(begins, b".")  # Python forgets what signals came before: a forked process may begin late
            for _ in range(200):
                time.sleep(0.05)
            os._exit(0)
        if forks:
            os.read(begun, 1)
        print(worker, flush=True)
        while not stop.asked():
            time.sleep(0.01)
        print(stop.reason, flush=True)
        if forks:
            print(os.waitpid(worker, os.WNOHANG)[0], flush=True)
            os.kill(worker, 15)
            print(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]), flush=True)
        sys.stdin.readline()
    raise Interrupted("stopped: checkpoint-3 is saved", "go on: expert-cli train --resume auto", stop.exit_code)

cli.app.command("work")(work)
cli.main()
"""


@contextmanager
def child(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", CHILD, "work", *arguments]
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        encoding="utf-8",
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


@posix
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"])
def test_the_first_signal_asks(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with child(tmp_path) as process:
        process.send_signal(number)
        assert said(process) == number.name
        _, err = process.communicate("\n", timeout=30)
    assert process.returncode == code
    assert err == "error: stopped: checkpoint-3 is saved\n  go on: expert-cli train --resume auto\n"


@posix
@pytest.mark.parametrize(
    ("first", "second", "code", "words"),
    [
        pytest.param(signal.SIGINT, signal.SIGINT, 130, "error: interrupted\n", id="SIGINT twice"),
        pytest.param(signal.SIGINT, signal.SIGTERM, -signal.SIGTERM, "", id="SIGINT, SIGTERM"),
    ],
)
def test_the_second_ends_at_once(
    tmp_path: Path, first: signal.Signals, second: signal.Signals, code: int, words: str
) -> None:
    with child(tmp_path) as process:
        process.send_signal(first)
        assert said(process) == first.name
        process.send_signal(second)
        assert process.wait(10) == code
        assert process.stderr
        assert process.stderr.read() == words


@posix
@pytest.mark.parametrize("send", [os.killpg, os.kill], ids=["as a terminal does, to all", "to the run alone"])
def test_workers_are_left_to_their_parent(tmp_path: Path, send: Callable[[int, int], None]) -> None:
    with child(tmp_path, "--forks") as process:
        send(process.pid, signal.SIGINT)
        assert said(process) == "SIGINT"
        assert said(process) == "0"  # the worker goes on
        assert said(process) == "-15"  # and ends when its parent says so
        process.communicate("\n", timeout=30)
    assert process.returncode == 130


def test_a_file_asks_too(tmp_path: Path) -> None:
    stop = StopRequest(tmp_path)
    assert not stop.asked()
    (tmp_path / "STOP").touch()
    assert stop.asked()
    assert (stop.exit_code, stop.reason) == (130, f"the file {tmp_path / 'STOP'}")
    assert not (tmp_path / "STOP").exists()
    assert stop.asked()


def test_handlers_are_put_back_and_another_thread_has_the_file_only(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    asked = []

    def work() -> None:
        with StopRequest(tmp_path) as stop:
            asked.append(stop.asked())

    with StopRequest(tmp_path):
        assert signal.getsignal(signal.SIGINT) != before[0]
    (tmp_path / "STOP").touch()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert asked == [True]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
