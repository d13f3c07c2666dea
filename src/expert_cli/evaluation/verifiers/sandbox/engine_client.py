"""A query engine in a process of its own, for engines that can hang or crash: it is ended, and started again when needed.

The two talk in lines of JSON over the child's standard streams: {"query", "timeout_s", "look"} one way, {"rows"} or
{"kind", "detail"} the other.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any, Literal

from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.verifiers.requirements import require_packages
from expert_cli.evaluation.verifiers.sandbox.limits import Stopped
from expert_cli.utils.subprocesses import JsonLinesWorker, LineProcess

Engine = Literal["sqlite", "graphqlite", "duckdb"]

_ENGINES: dict[Engine, tuple[str, tuple[str, ...]]] = {
    "sqlite": ("sqlite_engine:SqliteEngine", ("apsw",)),
    "graphqlite": ("graphqlite_engine:GraphQLiteEngine", ("apsw", "graphqlite")),
    "duckdb": ("duckdb_engine:DuckDBEngine", ("apsw", "duckdb", "pytz")),
}
"""The class of each, and the packages that it needs."""
START_S = 120.0
GRACE_S = 1.0
"""An engine that keeps its own time limit answers within this; what does not is ended."""


class EngineProcess:
    """An engine over one source: the script of a graph, or an SQLite database."""

    def __init__(self, engine: Engine, source: Path) -> None:
        """Start nothing yet. Raises EnvironmentProblem where the engine is not installed."""
        require_packages(*_ENGINES[engine][1])
        self._worker = JsonLinesWorker(partial(_start, engine, source))

    def run(self, statement: str, *, timeout_s: float) -> list[tuple[Any, ...]]:
        """Return the rows of a query. Raises `Stopped`."""
        return [tuple(row) for row in self._ask({"query": statement, "timeout_s": timeout_s, "look": False})["rows"]]

    def prepare(self, statement: str, *, timeout_s: float) -> None:
        """Compile a query without running it. Raises `Stopped`."""
        self._ask({"query": statement, "timeout_s": timeout_s, "look": True})

    def close(self) -> None:
        """End the process; another question starts a new one."""
        self._worker.close()

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        try:
            reply = self._worker.ask(question, question["timeout_s"] + GRACE_S)
        except TimeoutError as error:
            raise Stopped("timeout", f"not done after {question['timeout_s']:g} s") from error
        except EOFError as error:
            raise Stopped("invalid", f"the engine broke off (exit code {error})") from error
        if "kind" in reply:
            raise Stopped(reply["kind"], reply["detail"])
        return reply


def _start(engine: Engine, source: Path) -> LineProcess:
    """Start an engine. Raises InputError where it cannot open the source, EnvironmentProblem where it does not start."""
    server, entry = f"{__package__}.engine_server", f"{__package__}.{_ENGINES[engine][0]}"
    # -m looks in the working folder first, and must find this very package
    process = LineProcess([sys.executable, "-m", server, entry, str(source.resolve())], cwd=Path(__file__).parents[4])
    try:
        line = process.receive(START_S)
    except TimeoutError:
        line = b""
    reply = json.loads(line) if line else None
    if reply != {}:
        process.kill()
        if reply is None:
            raise EnvironmentProblem(f"{engine} does not start on {source}", "expert-cli doctor")
        raise InputError(f"{source}: {reply['detail']}", "correct the file that the case names")
    return process
