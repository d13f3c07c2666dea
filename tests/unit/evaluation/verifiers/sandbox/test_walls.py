"""What the kernel keeps a program from that gets past everything else."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from expert_cli.evaluation.verifiers.sandbox import child_process, walls
from expert_cli.evaluation.verifiers.sandbox.walls import DENIED, MACHINES, program

if sys.platform != "linux" or os.uname().machine not in MACHINES or walls.landlock_version() < 6:
    pytest.skip("this system has not all walls", allow_module_level=True)

DONE = "reached"
PYTHON_ACTS = {
    "reads a file": "open('{folder}/canary').read()",
    "writes a file": "open('{folder}/new', 'w')",
    "links a file": "os.link('{folder}/canary', '{folder}/new')",
    "connects to a port": "socket.create_connection(('127.0.0.1', {port}))",
    "connects to a socket": "socket.socket(socket.AF_UNIX).connect('{folder}/socket')",
    "connects to an abstract socket": "socket.socket(socket.AF_UNIX).connect('\\0{abstract}')",
    "listens": "socket.create_server(('127.0.0.1', 0))",
    "sends a datagram": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
    "lists a folder": "os.listdir('{folder}')",
    "removes a file": "os.unlink('{folder}/canary')",
    "reads another process": "open('/proc/{pid}/environ').read()",
    "pairs of datagram sockets": "socket.socketpair(type=socket.SOCK_DGRAM)",
    "starts a process": "subprocess.run(['/bin/true'])",
    "forks": "os.fork() or os._exit(0)",
    "signals a process": "os.kill({pid}, 0)",
}


@pytest.fixture
def around(tmp_path: Path) -> Iterator[dict[str, object]]:
    """A file, servers on a port, on a path and on an abstract name, a process to signal."""
    (tmp_path / "canary").write_text("alive", encoding="utf-8")
    abstract = f"expert-cli-{os.getpid()}"
    servers = [socket.socket(socket.AF_INET), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
    for server, place in zip(servers, [("127.0.0.1", 0), str(tmp_path / "socket"), f"\0{abstract}"], strict=True):
        server.bind(place)
        server.listen()
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield {"folder": tmp_path, "port": servers[0].getsockname()[1], "abstract": abstract, "pid": sleeper.pid}
    sleeper.kill()
    sleeper.wait()
    for server in servers:
        server.close()


def outcome(command: list[str], folder: Path) -> str:
    """Return what a program writes: DONE, or why it could not."""
    env = {"PATH": os.environ["PATH"], "OPENSSL_CONF": os.devnull}
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False
    ).stdout.strip()


def of_python(act: str) -> list[str]:
    text = (
        "import os, socket, subprocess\n"
        f"try:\n    {act}\n    print('{DONE}')\n"
        "except OSError as error:\n    print({1: 'EPERM', 13: 'EACCES'}.get(error.errno, error.errno))\n"
    )
    return [sys.executable, "-I", "-S", "-c", text]


@pytest.mark.parametrize("act", PYTHON_ACTS.values(), ids=PYTHON_ACTS.keys())
def test_a_program_of_python_reaches_nothing(tmp_path: Path, around: dict[str, object], act: str) -> None:
    command = of_python(act.format(**around))
    kept_out = ("EPERM", "EACCES")
    assert outcome(child_process.shut_in(command, [sys.base_prefix, sys.prefix]), tmp_path) in kept_out
    if os.geteuid() == 0:
        assert outcome(command, tmp_path) not in kept_out, "without walls another answer comes"


def test_what_may_be_read_may_not_be_changed(tmp_path: Path, around: dict[str, object]) -> None:
    reads = {"reads a file", "lists a folder"}
    for name in (*reads, "writes a file", "removes a file"):
        command = child_process.shut_in(of_python(PYTHON_ACTS[name].format(**around)), [sys.base_prefix, str(tmp_path)])
        assert outcome(command, tmp_path) in ({DONE} if name in reads else {"EACCES", "EFBIG", "27"})


def test_all_walls_stand_here() -> None:
    assert set(child_process.standing_walls()) >= {"limits", "files", "syscalls"}


def test_threads_and_what_a_program_does_to_itself_work(tmp_path: Path) -> None:
    act = "import threading, signal; t = threading.Thread(target=print, args=('thread',)); t.start(); t.join(); "
    act += "signal.signal(signal.SIGUSR1, lambda *_: print('signal')); signal.raise_signal(signal.SIGUSR1)"
    command = child_process.shut_in(of_python(act), [sys.base_prefix, sys.prefix])
    assert outcome(command, tmp_path).split() == ["thread", "signal", DONE]


def test_memory_and_processor_time_end(tmp_path: Path) -> None:
    greedy = of_python("bytearray(2_000_000_000)")
    ended = subprocess.run(
        child_process.shut_in(greedy, [sys.base_prefix]), capture_output=True, text=True, check=False
    )
    assert "MemoryError" in ended.stderr
    busy = subprocess.run(
        child_process.shut_in(of_python("exec('while True: pass')"), [sys.base_prefix], cpu_s=1),
        check=False,
        timeout=60,
    )
    assert busy.returncode < 0


ENDLESS = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\ntime.sleep(600)"


@pytest.mark.parametrize("path", [os.environ["PATH"], ""], ids=["namespaces", "no namespaces"])
def test_a_program_ends_when_its_judge_is_killed(path: str) -> None:
    judge = "import sys; from expert_cli.evaluation.cases import read_case; "
    judge += "read_case('here', {'verifier': 'python', 'tests': 'assert 1'}).verdict(sys.argv[1], None, 600)"
    parent = psutil.Popen([sys.executable, "-c", judge, ENDLESS], env={**os.environ, "PATH": path})
    left, runs = set[psutil.Process](), False
    while not runs and parent.poll() is None:
        with suppress(psutil.NoSuchProcess):
            left = {*parent.children(recursive=True)}
            runs = any(one.num_threads() == 2 for one in left)  # the program has started its thread
    parent.kill()
    parent.wait()
    end = time.monotonic() + 60
    while left and time.monotonic() < end:
        left &= {one for one in psutil.process_iter(["status"]) if one.info["status"] != psutil.STATUS_ZOMBIE}
    for one in left:
        one.kill()
    assert (runs, left) == (True, set())


def test_a_filter_answers_every_number_as_its_table_says() -> None:
    """Each step of it, as the kernel runs it, on both machines."""
    for machine in MACHINES.values():
        steps = program(machine, 77)
        column, architecture, clone, clone3, tgkill, socketpair = machine
        denied = {numbers[column] for numbers in DENIED.values()}
        allowed, refused, unknown = 0x7FFF0000, 0x00050001, 0x00050026
        for number in range(-1, 500):
            wanted = refused if number in denied and number >= 0 else allowed
            if number not in (clone, clone3, tgkill, socketpair):
                assert run(steps, architecture, number % 2**32, 0) == (refused if number < 0 else wanted)
        assert run(steps, architecture, clone3, 0) == unknown
        assert [run(steps, architecture, clone, flags) for flags in (0x10000, 0x11, 0)] == [allowed, refused, refused]
        assert [run(steps, architecture, tgkill, process) for process in (77, 78)] == [allowed, refused]
        assert [run(steps, architecture, socketpair, 1, kind) for kind in (1, 2, 5)] == [allowed, refused, refused]
        assert run(steps, architecture ^ 1, 0, 0) == 0x80000000
        assert run(steps, architecture, 0x40000000 + 41, 0) == refused


def run(steps: list[tuple[int, int, int, int]], architecture: int, number: int, argument: int, second: int = 0) -> int:
    """Run a filter on a call, as the kernel does."""
    at, loaded, place = 0, 0, {0: number, 4: architecture, 16: argument, 24: second}
    tests = {0x15: lambda k: loaded == k, 0x35: lambda k: loaded >= k, 0x45: lambda k: bool(loaded & k)}
    while True:
        code, true, false, operand = steps[at]
        at += 1
        if code == 0x06:
            return operand
        if code == 0x20:
            loaded = place[operand]
        else:
            at += true if tests[code](operand) else false
