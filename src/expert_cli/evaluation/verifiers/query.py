"""What SQL and Cypher have in common: an answer's rows against those of the expected queries, on one source."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field

from expert_cli.errors import ExpertError, InputError
from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers.case import Case
from expert_cli.evaluation.verifiers.compare_rows import Result, judge_rows
from expert_cli.evaluation.verifiers.query_text import Dialect, orders_lists, orders_rows, split
from expert_cli.evaluation.verifiers.sandbox.limits import GOLD_TIMEOUT_S, Stopped, readable


class QueryEngine(Protocol):
    """What answers queries over one source."""

    def run(self, query: str, *, timeout_s: float) -> list[tuple[Any, ...]]:
        """Return the rows of one query. Raises `Stopped`."""

    def prepare(self, query: str, *, timeout_s: float) -> None:
        """Find out whether a statement is allowed, without its rows. Raises `Stopped`."""


@dataclass
class Source:
    """A database or graph, opened once for many answers; expected queries run once.

    where: as messages name it. refuse: raises `Stopped` for a statement that the engine must not see.
    """

    where: str
    engine: QueryEngine
    dialect: Dialect
    max_bytes: int
    refuse: Callable[[str], None] = lambda _: None
    known: dict[str, tuple[Result, ...]] = field(default_factory=dict)

    def check(self, answer: str, expected: str, *, timeout_s: float) -> Grade:
        """Judge one answer. Raises InputError where an expected query fails."""
        accepted = self._accepted(expected)
        try:
            readable(answer, self.max_bytes)
            return judge_rows(self._answer(answer, timeout_s), accepted)
        except Stopped as stopped:
            return stopped.verdict

    def _answer(self, answer: str, timeout_s: float) -> list[tuple[Any, ...]]:
        if "\0" in answer:
            raise Stopped("invalid", "the answer holds characters that are not text")
        statements = split(answer, self.dialect)
        if not statements:
            raise Stopped("empty", "no query")
        if len(statements) > 1:
            for statement in statements[:MAX_LOOKS]:
                self.refuse(statement)
                self.engine.prepare(statement, timeout_s=timeout_s)
            raise Stopped("invalid", f"{len(statements)} statements, one query expected")
        return self._run(statements[0], timeout_s)

    def _run(self, statement: str, timeout_s: float) -> list[tuple[Any, ...]]:
        self.refuse(statement)
        return self.engine.run(statement, timeout_s=timeout_s)

    def _accepted(self, expected: str) -> tuple[Result, ...]:
        if expected not in self.known:
            dialect = self.dialect
            queries = split(expected, dialect)
            if not queries:
                raise InputError("no expected query", "write the query whose rows are right")
            self.known[expected] = tuple(
                Result(self._gold(query), orders_rows(query, dialect), dialect != "cypher" or orders_lists(query))
                for query in queries
            )
        return self.known[expected]

    def _gold(self, query: str) -> list[tuple[Any, ...]]:
        try:
            return self._run(query, GOLD_TIMEOUT_S)
        except Stopped as stopped:
            message = f"the expected query fails on {self.where}: {stopped.verdict.detail}"
            raise InputError(message, f"correct the case's query: {query[:200]}") from stopped


MAX_LOOKS = 10


class QueryCase(Case):
    """A query whose rows must be those of the expected one."""

    expected: str = Field(min_length=1, description="One or more accepted queries, each ended by a semicolon.")

    @property
    def expected_text(self) -> str:
        """The accepted queries."""
        return self.expected

    @abstractmethod
    def source(self, file: Path, size: int, mtime_ns: int) -> Source:
        """Return what is asked: the one of before, where the file, its size and its time are the same."""

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:
        """Compare the rows of the answer with those of the accepted queries.

        Where the expected query orders them, rows are compared in order, also where several orders would satisfy it. The
        engine has a process of its own, kept for the next answer; the file is read once, and never written.

        Raises InputError where the file cannot be read or an expected query fails, EnvironmentProblem without the engine.
        """
        if file is None:
            raise ExpertError("a case without its file")
        try:
            facts = file.stat()
        except OSError as error:
            raise InputError(f"{file}: {error.strerror}", "give the path of a file that is there") from error
        source = self.source(file, facts.st_size, facts.st_mtime_ns)
        return source.check(answer, self.expected, timeout_s=timeout_s)
