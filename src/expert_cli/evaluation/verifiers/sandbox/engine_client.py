"""A query engine in a process of its own, for engines that can hang or crash: it is ended, and started again when needed.

The two talk in lines of JSON over the child's standard streams. {"query", "timeout_s", "look"} asks one, or with "of" and
"places" a query of several contents in turn; {"make": of} makes those of a case first. {"results"}, the rows of each,
{"contents"}, how many there are, {"made": false} or {"kind", "detail"} come back.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.verifiers.query_text import Dialect
from expert_cli.evaluation.verifiers.requirements import require_packages
from expert_cli.evaluation.verifiers.sandbox.limits import GOLD_TIMEOUT_S, Stopped
from expert_cli.utils.subprocesses import JsonLinesWorker, LineProcess

Engine = Literal["sqlite", "graphqlite"]

_ENGINES: dict[Engine, tuple[str, tuple[str, ...]]] = {
    "sqlite": ("sqlite_engine:SqliteEngine", ("apsw",)),
    "graphqlite": ("graphqlite_engine:GraphQLiteEngine", ("apsw", "graphqlite")),
}
"""The class of each, and the packages that it needs."""
START_S = 120.0
GRACE_S = 1.0
"""An engine that keeps its own time limit answers within this; what does not is ended."""


@dataclass(frozen=True)
class Contents:
    """Contents made for a case: so many, or fewer where its queries tell nothing on more. They depend on nothing else."""

    queries: tuple[str, ...]
    dialect: Dialect
    count: int


class EngineProcess:
    """An engine over scripts of graphs, or SQLite databases; all but one question ask the first of them."""

    def __init__(self, engine: Engine, *sources: Path) -> None:
        """Start nothing yet. Raises EnvironmentProblem where the engine is not installed."""
        require_packages(*_ENGINES[engine][1])
        self.sources = sources
        self._worker = JsonLinesWorker(partial(_start, engine, sources))

    def run(self, statement: str, *, timeout_s: float) -> list[tuple[Any, ...]]:
        """Return the rows of a query. Raises `Stopped`."""
        return self.run_in(statement, (0,), None, timeout_s=timeout_s)[0]

    def prepare(self, statement: str, *, timeout_s: float) -> None:
        """Compile a query without running it. Raises `Stopped`."""
        self._ask({"query": statement, "timeout_s": timeout_s, "look": True})

    def make(self, contents: Contents) -> int:
        """Make the contents of a case and return how many there are. Raises `Stopped`."""
        reply = self._ask({"make": asdict(contents), "timeout_s": GOLD_TIMEOUT_S})
        return int(reply["contents"])

    def run_in(
        self, statement: str, places: Sequence[int], contents: Contents | None, *, timeout_s: float
    ) -> list[list[tuple[Any, ...]]]:
        """Return the rows of a query in several contents, all within the time: the sources, then those made for a case.

        Raises `Stopped`.
        """
        question: dict[str, Any] = {"query": statement, "timeout_s": timeout_s, "look": False, "places": list(places)}
        question |= {"of": asdict(contents)} if contents else {}
        reply = self._ask(question)
        if contents and "made" in reply:  # the process is a new one, or has seen many cases since
            self.make(contents)
            reply = self._ask(question)
        return [[tuple(row) for row in rows] for rows in reply["results"]]

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


def _start(engine: Engine, sources: Sequence[Path]) -> LineProcess:
    """Start an engine. Raises InputError where it cannot open a source, EnvironmentProblem where it does not start."""
    server, entry = f"{__package__}.engine_server", f"{__package__}.{_ENGINES[engine][0]}"
    paths = [str(source.resolve()) for source in sources]
    # -m looks in the working folder first, and must find this very package
    process = LineProcess([sys.executable, "-m", server, entry, *paths], cwd=Path(__file__).parents[4])
    try:
        line = process.receive(START_S)
    except TimeoutError:
        line = b""
    reply = json.loads(line) if line else None
    if reply != {}:
        process.kill()
        if reply is None:
            raise EnvironmentProblem(f"{engine} does not start on {', '.join(paths)}", "expert-cli doctor")
        raise InputError(f"{reply['source']}: {reply['detail']}", "correct the file that the case names")
    return process
