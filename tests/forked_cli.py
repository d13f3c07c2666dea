"""Processes forked from one that imported the training libraries once: they start in milliseconds, not after seconds.

A module of its own, so that the fork server can find it by name. Linux only: elsewhere a fork of these libraries may hang.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

PRELOADED = ["expert_cli.pipeline.train", "expert_cli.cli", "accelerate"]


@cache
def _context() -> Any:
    """The processes of this test worker that are forked share one server."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def variables_of(count: int) -> list[dict[str, str]]:
    """Return the variables that torchrun sets for each of `count` processes; a single one is no group and gets none."""
    if count == 1:
        return [{}]
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    group |= {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    return [{**group, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


class Forked:
    """A process that is asked as a subprocess.Popen is.

    words: of the command line. told: the folder for its stdout and stderr. program: what is run with `words` instead.
    """

    def __init__(
        self,
        words: list[str],
        told: Path,
        *,
        program: Path | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        self._told = [told / f"{os.urandom(4).hex()}.{name}" for name in ("out", "err")]
        run = (words, program, dict(env), str(cwd or Path.cwd()), [str(path) for path in self._told])
        self._process = _context().Process(target=_begin, args=run)
        self._process.start()
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        return self._process.exitcode  # type: ignore[no-any-return]

    returncode = property(poll)

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = 600) -> tuple[str, str]:
        """Wait until it has ended; return its stdout and stderr. Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        out, err = (path.read_text(encoding="utf-8") for path in self._told)
        if self.poll() is None:
            raise subprocess.TimeoutExpired(f"a forked process that said {err[-2000:]}", timeout)
        return out, err


def _begin(words: list[str], program: Path | None, env: dict[str, str], cwd: str, told: list[str]) -> None:
    """Be the process: of this environment, folder and arguments, its stdout and stderr in two files."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    for number, path in enumerate(told, start=1):
        with Path(path).open("w") as file:
            os.dup2(file.fileno(), number)
    multiprocessing.set_start_method("fork", force=True)  # data workers, that is; they would import everything again
    if program is not None:
        sys.argv = [str(program), *words]
        runpy.run_path(str(program), run_name="__main__")
        return
    from expert_cli import cli

    sys.argv = ["expert-cli", *words]
    cli.main()
