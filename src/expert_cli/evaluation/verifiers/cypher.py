"""Judges a Cypher query by what it returns from the case's graph."""

from __future__ import annotations

import os
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from expert_cli.errors import InputError
from expert_cli.evaluation.verdict import Verdict
from expert_cli.evaluation.verifiers.child import Child
from expert_cli.evaluation.verifiers.compare import Result, judge_rows
from expert_cli.evaluation.verifiers.limits import GOLD_TIMEOUT_S, MAX_CYPHER_BYTES, Stopped, readable
from expert_cli.evaluation.verifiers.statements import orders_lists, orders_rows, split, words


class _Engine(Protocol):
    def run(self, query: str, *, timeout_s: float) -> list[tuple[Any, ...]]:
        """Return the rows. Raises `Stopped`."""


def check(answer: str, script: Path, expected: str, *, timeout_s: float = 2.0) -> Verdict:
    """Run `answer` on the graph that `script` makes and compare its rows with those of the expected queries.

    Rows are compared in order where the expected query orders them, lists where it orders what it collects. The graph is
    graphqlite's, in a process of its own; with NEO4J_URI set it is the one on that server, asked in a transaction that
    can only read: the script must have been loaded there.

    Raises InputError where the script or an expected query fails, EnvironmentProblem where the engine is missing.
    """
    try:
        facts = script.stat()
    except OSError as error:
        raise InputError(f"{script}: {error.strerror}", "give the path of a Cypher script") from error
    graph = _graph(script, facts.st_size, facts.st_mtime_ns, os.environ.get("NEO4J_URI", ""))
    accepted = graph.accepted(expected)
    try:
        readable(answer, MAX_CYPHER_BYTES)
        return judge_rows(graph.answer(answer, timeout_s), accepted)
    except Stopped as stopped:
        return stopped.verdict


class _Graph:
    """A graph, opened once for many answers."""

    def __init__(self, where: str, engine: _Engine) -> None:
        self._where = where
        self._engine = engine
        self._known: dict[str, tuple[Result, ...]] = {}

    def accepted(self, expected: str) -> tuple[Result, ...]:
        """Return what the expected queries return; they run once."""
        if expected not in self._known:
            queries = split(expected, "cypher")
            if not queries:
                raise InputError("no expected query", "write the query whose rows are right")
            self._known[expected] = tuple(
                Result(self._gold(query), orders_rows(query, "cypher"), orders_lists(query)) for query in queries
            )
        return self._known[expected]

    def answer(self, answer: str, timeout_s: float) -> list[tuple[Any, ...]]:
        """Return the rows of an answer. Raises `Stopped`."""
        statements = split(answer, "cypher")
        if not statements:
            raise Stopped("empty", "no query")
        for statement in statements:
            _refuse_reaching_out(statement)
        if len(statements) > 1:
            raise Stopped("invalid", f"{len(statements)} statements, one query expected")
        return self._engine.run(statements[0], timeout_s=timeout_s)

    def _gold(self, query: str) -> list[tuple[Any, ...]]:
        try:
            return self._engine.run(query, timeout_s=GOLD_TIMEOUT_S)
        except Stopped as stopped:
            message = f"the expected query fails on {self._where}: {stopped.verdict.detail}"
            raise InputError(message, f"correct the case's query: {query[:200]}") from stopped


def _refuse_reaching_out(statement: str) -> None:
    """Refuse what reads files or the network though it writes nothing: LOAD CSV, and the APOC library."""
    code = [word for word, _ in words(statement, "cypher")]
    if "APOC" in code or ("LOAD", "CSV") in pairwise(code):
        raise Stopped("refused", "LOAD CSV" if "APOC" not in code else "APOC")


@lru_cache(maxsize=4)
def _graph(script: Path, size: int, mtime_ns: int, uri: str) -> _Graph:  # noqa: ARG001  the state of the file
    if uri:
        from expert_cli.evaluation.verifiers.neo4j_server import Server

        return _Graph(uri, Server(uri))
    return _Graph(str(script), Child("graphqlite", script))
