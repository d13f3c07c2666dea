"""A query engine in a process of its own, for engines that can hang or crash: it is ended, and started again when needed.

The two talk in lines of JSON over the child's standard streams: {"query", "timeout_s", "look"} one way, {"rows"} or
{"kind", "detail"} the other.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import IO, Any, Literal

from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.verifiers.requirements import require_packages
from expert_cli.evaluation.verifiers.sandbox.limits import Stopped

Engine = Literal["sqlite", "graphqlite", "duckdb"]

_PACKAGES: dict[Engine, tuple[str, ...]] = {
    "sqlite": ("apsw",),
    "graphqlite": ("apsw", "graphqlite"),
    "duckdb": ("apsw", "duckdb", "pytz"),
}
START_S = 120.0
GRACE_S = 1.0
"""An engine that keeps its own time limit answers within this; what does not is ended."""


class EngineProcess:
    """An engine over one source: the script of a graph, or an SQLite database."""

    def __init__(self, engine: Engine, source: Path) -> None:
        """Start nothing yet. Raises EnvironmentProblem where the engine is not installed."""
        require_packages(*_PACKAGES[engine])
        self._engine = engine
        self._source = source
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def run(self, statement: str, *, timeout_s: float) -> list[tuple[Any, ...]]:
        """Return the rows of a query. Raises `Stopped`."""
        return [tuple(row) for row in self._ask({"query": statement, "timeout_s": timeout_s, "look": False})["rows"]]

    def prepare(self, statement: str, *, timeout_s: float) -> None:
        """Compile a query without running it. Raises `Stopped`."""
        self._ask({"query": statement, "timeout_s": timeout_s, "look": True})

    def close(self) -> None:
        """End the process; another question starts a new one."""
        if self._process is not None:
            _end(self._process)
            self._process = None

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        process = self._started()
        if process.stdin is None:
            raise AssertionError("a child without a stdin")
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
        except OSError:
            return self._fail("invalid", "the engine broke off")
        line = self._line(question["timeout_s"] + GRACE_S)
        if line is None:
            return self._fail("timeout", f"not done after {question['timeout_s']:g} s")
        if not line:
            return self._fail("invalid", f"the engine broke off (exit code {process.wait()})")
        reply: dict[str, Any] = json.loads(line)
        if "kind" in reply:
            raise Stopped(reply["kind"], reply["detail"])
        return reply

    def _fail(self, kind: Literal["invalid", "timeout"], detail: str) -> dict[str, Any]:
        self.close()
        raise Stopped(kind, detail)

    def _line(self, wait_s: float) -> str | None:
        """Return the next line of the child, "" where it has ended, None where it is still at work."""
        try:
            return self._lines.get(timeout=wait_s)
        except queue.Empty:
            return None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is not None:
            return self._process
        self._process = process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "expert_cli.evaluation.verifiers.sandbox.engine_server",
                self._engine,
                str(self._source.resolve()),
            ],
            cwd=Path(__file__).parents[4],  # -m looks there first, and must find this very package
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )
        weakref.finalize(self, _end, process)
        self._lines = queue.SimpleQueue()
        threading.Thread(target=_read, args=(process.stdout, self._lines), daemon=True).start()
        line = self._line(START_S)
        if not line:
            self.close()
            raise EnvironmentProblem(f"{self._engine} does not start on {self._source}", "expert-cli doctor")
        reply = json.loads(line)
        if "detail" in reply:
            self.close()
            raise InputError(f"{self._source}: {reply['detail']}", "correct the file that the case names")
        return process


def _read(stream: IO[str], lines: queue.SimpleQueue[str]) -> None:
    with stream:
        for line in stream:
            lines.put(line)
        lines.put("")


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    if process.stdin is not None:
        try:
            process.stdin.close()
        except OSError:
            return
