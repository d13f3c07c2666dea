"""What keeps a program of a stranger to itself here: which walls this system builds, and how a process starts behind them."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from expert_cli.errors import EnvironmentProblem
from expert_cli.evaluation.verifiers.sandbox import walls
from expert_cli.utils.subprocesses import LineProcess

MEMORY_BYTES = 1_000_000_000
START_S = 60.0
ANY_TIME = 10**6
MAX_REPLY_BYTES = 16_000_000
SYSTEM_FILES = (
    *("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/dev/null", "/dev/urandom"),
    *("/nix/store", "/gnu/store", "/snap", "/home/linuxbrew/.linuxbrew"),
)
"""What programs need to start: libraries, also where other package managers keep them, and where random numbers come from."""


@functools.cache
def namespace_isolation() -> tuple[str, ...]:
    """The command that shuts a process off from network and other processes; empty where the system has none."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return ()
    shut = ("--net", "--ipc", "--pid", "--fork", "--kill-child")
    for user in ((), ("--user", "--map-root-user")):
        command = ("unshare", *user, *shut)
        try:
            if subprocess.run([*command, "true"], capture_output=True, timeout=30, check=False).returncode == 0:
                return command
        except (OSError, subprocess.TimeoutExpired):
            continue
    return ()


@functools.cache
def standing_walls() -> tuple[str, ...]:
    """Return the names of the walls that this system can build around a program, tried out in a process of its own."""
    names = ("namespaces",) if namespace_isolation() else ()
    if os.name != "posix":
        return names
    done = subprocess.run(shut_in(()), capture_output=True, text=True, timeout=60, check=False)
    return (*names, *done.stdout.split())


def is_network_shut() -> bool:
    """Whether any wall here keeps a program from the network."""
    return bool({"syscalls", "namespaces"}.intersection(standing_walls()))


def shut_in(program: Sequence[str], readable: Sequence[str] = (), cpu_s: int = 10) -> list[str]:
    """Return the command that becomes `program` behind walls; where the system has none of them, `program` itself."""
    if os.name != "posix":
        return list(program)
    settings = {"memory_bytes": MEMORY_BYTES, "cpu_s": cpu_s, "read": [*SYSTEM_FILES, *readable]}
    return [sys.executable, "-I", "-S", walls.__file__, json.dumps(settings), *program]


def start(
    command: Sequence[str],
    folder: str,
    max_bytes: int,
    env: Mapping[str, str] | None = None,
    errors: int = subprocess.DEVNULL,
) -> LineProcess:
    """Start a process that gets nothing of our environment but what it needs to start, and `env`."""
    kept = ("SYSTEMROOT", "PATH") if os.name == "nt" else ("PATH",)
    given = {name: os.environ[name] for name in kept if name in os.environ} | dict(env or {})
    given["OPENSSL_CONF"] = os.devnull  # the system's cannot be opened from behind the walls
    return LineProcess(command, cwd=folder, env=given, stderr=errors, own_session=True, max_bytes=max_bytes)


def require_ready(child: LineProcess, ready: str, problem: str, hint: str) -> LineProcess:
    """Return a process that has said it is ready. Raises EnvironmentProblem, and ends it, where it does not."""
    try:
        line = child.receive(START_S)
    except TimeoutError:
        line = b""
    if line.decode(errors="replace").strip() != ready:
        child.kill()
        raise EnvironmentProblem(problem, hint)
    return child


def start_server(script: str, packages: Sequence[str], problem: str) -> LineProcess:
    """Start a Python file of ours behind walls; of packages it can load those named, and says "{}" when it has.

    Raises EnvironmentProblem with `problem` where it does not start.
    """
    origins = [str((spec := importlib.util.find_spec(name)) and spec.origin) for name in packages]
    folders = list(dict.fromkeys(str(Path(origin).parents[1]) for origin in origins))
    readable = [sys.prefix, sys.base_prefix, *folders, script]
    command = shut_in([sys.executable, "-I", script, *folders], readable, cpu_s=ANY_TIME)
    return require_ready(start(command, tempfile.gettempdir(), MAX_REPLY_BYTES), "{}", problem, "expert-cli doctor")
