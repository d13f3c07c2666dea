"""Sets limits for answers, and runs the processes for them: sandboxed programs, and workers that run queries.

`Worker` is this side; `main` runs in the worker's process, a new interpreter with a nearly empty environment. They exchange
lines of JSON. Before the first question, that process gives up opening files and writing files, and its memory is limited.
"""

from __future__ import annotations

import functools
import json
import math
import os
import pkgutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.verifiers.case import Stopped
from expert_cli.hardware.machine import has_package
from expert_cli.utils.subprocesses import JsonLinesWorker, LineProcess

MAX_SQL_BYTES = 100_000
MAX_CYPHER_BYTES = 8_192  # graphqlite 0.12 overruns a buffer if one token of a query has more than 16 kB
MAX_ROWS, MAX_RESULT_BYTES, MAX_VALUE_BYTES = 50_000, 16 << 20, 250_000
HEAP_BYTES, ADDRESS_SPACE_BYTES = 64 << 20, 3 << 30  # of a query in SQLite; of a worker
MEMORY_BYTES, MAX_OUTPUT_BYTES = 1_000_000_000, 64_000_000  # of a program
GOLD_TIMEOUT_S, PREPARE_S = 60.0, 300.0  # for an expected query; for all contents of a case
START_S, GRACE_S = 60.0, 1.0  # for a process to start; added to a time limit that the process itself enforces
SYSTEM_FILES = (
    *("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/dev/null", "/dev/urandom"),
    *("/nix/store", "/gnu/store", "/snap", "/home/linuxbrew/.linuxbrew"),
)
"""Paths that programs need to start: libraries, also of other package managers, and the source of random numbers."""


def bounded(rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Collect rows. Raises `Stopped` beyond `MAX_ROWS` or `MAX_RESULT_BYTES`."""
    kept, size = list[tuple[Any, ...]](), 0
    for row in rows:
        kept.append(tuple(row))
        size += sum(len(value) if isinstance(value, str | bytes | list | dict) else 8 for value in row)
        if len(kept) > MAX_ROWS or size > MAX_RESULT_BYTES:
            raise Stopped("too_large", f"the result has more than {MAX_ROWS:,} rows, or {MAX_RESULT_BYTES:,} bytes")
    return kept


def require_packages(*packages: str, extra: str = "evaluate") -> None:
    """Raise EnvironmentProblem for the first package that is not installed. extra: the extra that installs it."""
    for package in packages:
        if not has_package(package):
            hint = f'pip install "expert-cli[{extra}]"'
            raise EnvironmentProblem(f"the package {package}, which runs answers, is not installed", hint)


@functools.cache
def namespace_isolation() -> tuple[str, ...]:
    """Return the command that isolates a process from the network and other processes, and ends it with our thread that starts
    it (if there is `setpriv`); () if the system cannot.
    """
    starts = (("setpriv", "--pdeathsig", "KILL", "unshare"), ("unshare",)) if sys.platform == "linux" else ()
    for start, user in product(starts, ((), ("--user", "--map-root-user"))):
        command = (*start, *user, "--net", "--ipc", "--pid", "--fork", "--kill-child")
        with suppress(OSError):  # there is no such program
            if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
                return command
    return ()


@functools.cache
def standing_walls() -> tuple[str, ...]:
    """Return the names of the sandbox parts that this system supports, which are tested in a process."""
    if os.name != "posix":
        return ()
    done = subprocess.run(shut_in(()), capture_output=True, text=True, timeout=60, check=False)
    return (*(("namespaces",) if namespace_isolation() else ()), *done.stdout.split())


def shut_in(program: Sequence[str], readable: Sequence[str] = (), cpu_s: int = 10) -> list[str]:
    """Return the command that runs `program` in the sandbox; `program` itself if the system is not POSIX."""
    if os.name != "posix":
        return list(program)
    limits = {"CORE": 0, "FSIZE": 0, "DATA": MEMORY_BYTES, "CPU": cpu_s}
    settings = {"limits": limits, "read": [*SYSTEM_FILES, *readable]}
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("walls.py")), json.dumps(settings), *program]


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a process: the variables that it needs to start, and `more`."""
    kept = {name: os.environ[name] for name in ("SYSTEMROOT", "PATH") if name in os.environ}
    return {**kept, "OPENSSL_CONF": os.devnull, **more}  # the system's configuration cannot be opened in the sandbox


def run_program(
    words: Sequence[str],
    readable: Sequence[str],
    limit_s: float,
    files: Mapping[str, str],
    *,
    asked: str = "",
    **how: Any,
) -> tuple[str, int, Path]:
    """Run a sandboxed program in a folder with `files`. Return its output, its exit status and the folder.

    readable: paths that it may open, "." is its folder. asked: a line that is sent when it has written "ready"; then its time
    starts. how: `stderr`, and more `env`. Raises `Stopped`, EnvironmentProblem.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        folder = Path(made).resolve()
        for name, text in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8", newline="")
        walls = shut_in(words, readable, math.ceil(limit_s) + 10 + len(files) // 4)
        how = {**how, "env": environment(**how.get("env", {})), "own_session": True, "max_bytes": MAX_OUTPUT_BYTES}
        child = LineProcess([*namespace_isolation(), *walls], cwd=made, **how)
        try:
            lines = [child.receive(START_S, MEMORY_BYTES)] if asked else []
            if asked and lines != [b"ready\n"]:
                raise EnvironmentProblem(f"{words[0]} does not start under its limits", "expert-cli doctor")
            child.send(asked, last=True)
            end = time.monotonic() + limit_s
            while not lines or lines[-1]:
                lines.append(child.receive(max(0.0, end - time.monotonic()), MEMORY_BYTES))
            status = child.exit_code()
        except TimeoutError as error:
            raise Stopped("timeout", f"it took more than {limit_s:g} s") from error
        except MemoryError as error:
            raise Stopped("too_large", "it took more memory than allowed") from error
        finally:
            child.kill()
    if status == -9:  # SIGKILL
        raise Stopped("timeout", "it took more processor time than allowed")
    return b"".join(lines).decode(errors="replace"), status, folder


def reply_of(output: str, status: int, nonce: str) -> dict[str, Any]:
    """Return the JSON object that a program wrote after its nonce; {} for another text, which an answer may have written.
    Raises `Stopped` if there is no such line.
    """
    said = [line.removeprefix(nonce) for line in output.splitlines() if line.startswith(nonce)]
    if not said:
        too_large = Stopped("too_large", "its process ended: out of memory, or of its stack")
        raise Stopped("wrong", "its process ended before its tests did") if status in (0, 1) else too_large
    with suppress(ValueError, RecursionError):
        if isinstance(reply := json.loads(said[-1]), dict):
            return reply
    return {}


class Worker:
    """Processes that answer questions with one function, one process for each thread that asks at the same time."""

    def __init__(self, entry: str, *packages: str, arguments: Callable[[], Sequence[Any]] = list) -> None:
        """Start no process yet. entry: "module:function", which is called there with `arguments` and returns the function."""
        self._entry, self._packages, self._arguments = entry, packages, arguments
        self._processes = JsonLinesWorker(self._start)

    def _start(self) -> LineProcess:
        """Start a fresh interpreter that runs `main` of this installation. Raises EnvironmentProblem."""
        code = (
            f"import sys; sys.path.insert(0, {str(Path(__file__).parents[4])!r}); import expert_cli; del sys.path[0]; "
        )
        words = [sys.executable, "-I", "-c", f"{code}from {__name__} import main; main()", self._entry]
        process = LineProcess(words, cwd=tempfile.gettempdir(), env=environment(), own_session=True)
        process.send(json.dumps(self._arguments()))
        with suppress(TimeoutError):
            if process.receive(START_S) == b"{}\n":
                return process
        process.kill()
        raise EnvironmentProblem("the process that judges answers does not start", "expert-cli doctor")

    def ask(self, question: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Return the reply of one process. Raises Stopped, InputError, EnvironmentProblem."""
        require_packages(*self._packages)
        try:
            reply = self._processes.ask(question, timeout_s + GRACE_S)
        except TimeoutError as error:
            raise Stopped("timeout", f"not done after {timeout_s:g} s") from error
        except EOFError as error:
            raise Stopped("invalid", f"the engine crashed (exit code {error})") from error
        if "stopped" in reply:
            raise Stopped(*reply["stopped"])
        if "fault" in reply:
            raise InputError(*reply["fault"])
        return reply


def main() -> None:
    """Reply to each line of stdin with one line. This runs in the worker's process."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # output printed by an engine must not be taken for a reply
    answer = pkgutil.resolve_name(sys.argv[1])(*json.loads(sys.stdin.readline()))
    set_rlimits(getattr(answer, "sockets", 0))
    print("{}", file=replies, flush=True)
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Stopped as stopped:
            reply = {"stopped": [stopped.kind, stopped.detail]}
        except InputError as error:
            reply = {"fault": [error.message, error.hint]}
        except RecursionError:
            reply = {"stopped": ["too_large", "a value is nested too deep"]}
        print(json.dumps(reply), file=replies, flush=True)


def set_rlimits(sockets: int = 0) -> None:
    """Set limits if the system has them: `sockets` more sockets but no file, no byte written, no core dump, bounded memory."""
    if os.name == "posix":
        from expert_cli.evaluation.verifiers.sandbox.walls import set_limits

        os.close(lowest_free := os.dup(0))
        set_limits({"NOFILE": lowest_free + sockets, "FSIZE": 0, "CORE": 0, "AS": ADDRESS_SPACE_BYTES})
