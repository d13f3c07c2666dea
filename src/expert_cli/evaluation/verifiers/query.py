"""What SQL and Cypher have in common: an answer's rows against those of the expected queries, on one source."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from expert_cli.errors import InputError
from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers.compare_rows import Result, judge_rows
from expert_cli.evaluation.verifiers.query_text import Dialect, orders_lists, orders_rows, split
from expert_cli.evaluation.verifiers.sandbox.limits import GOLD_TIMEOUT_S, Stopped, readable


class QueryEngine(Protocol):
    """What answers queries over one source."""

    def run(self, query: str, *, timeout_s: float) -> list[tuple[Any, ...]]:
        """Return the rows of one query. Raises `Stopped`."""

    def prepare(self, query: str, *, timeout_s: float) -> None:
        """Find out whether a statement is allowed, without its rows. Raises `Stopped`."""


class Source:
    """A database or graph, opened once for many answers; expected queries run once."""

    def __init__(self, where: str, engine: QueryEngine, dialect: Dialect) -> None:
        """Name the source as messages should."""
        self._where = where
        self._engine = engine
        self._dialect: Dialect = dialect
        self._known: dict[str, tuple[Result, ...]] = {}

    def check(self, answer: str, expected: str, *, timeout_s: float, max_bytes: int) -> Grade:
        """Judge one answer. Raises InputError where an expected query fails."""
        accepted = self._accepted(expected)
        try:
            readable(answer, max_bytes)
            return judge_rows(self._answer(answer, timeout_s), accepted)
        except Stopped as stopped:
            return stopped.verdict

    def _answer(self, answer: str, timeout_s: float) -> list[tuple[Any, ...]]:
        statements = split(answer, self._dialect)
        if not statements:
            raise Stopped("empty", "no query")
        if len(statements) > 1:
            for statement in statements[:MAX_LOOKS]:
                self._engine.prepare(statement, timeout_s=timeout_s)
            raise Stopped("invalid", f"{len(statements)} statements, one query expected")
        return self._engine.run(statements[0], timeout_s=timeout_s)

    def _accepted(self, expected: str) -> tuple[Result, ...]:
        if expected not in self._known:
            queries = split(expected, self._dialect)
            if not queries:
                raise InputError("no expected query", "write the query whose rows are right")
            self._known[expected] = tuple(
                Result(self._gold(query), orders_rows(query, self._dialect), self._lists_count(query))
                for query in queries
            )
        return self._known[expected]

    def _lists_count(self, query: str) -> bool:
        return self._dialect != "cypher" or orders_lists(query)

    def _gold(self, query: str) -> list[tuple[Any, ...]]:
        try:
            return self._engine.run(query, timeout_s=GOLD_TIMEOUT_S)
        except Stopped as stopped:
            message = f"the expected query fails on {self._where}: {stopped.verdict.detail}"
            raise InputError(message, f"correct the case's query: {query[:200]}") from stopped


MAX_LOOKS = 10


def state_of(path: Path) -> tuple[int, int]:
    """Return what changes when the file does. Raises InputError where it is missing."""
    try:
        facts = path.stat()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", "give the path of a file that is there") from error
    return facts.st_size, facts.st_mtime_ns
