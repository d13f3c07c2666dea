"""Judges a Cypher query by what it returns from the case's graph."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers.query import QueryEngine, Source, state_of
from expert_cli.evaluation.verifiers.query_text import code_words
from expert_cli.evaluation.verifiers.sandbox.engine_client import EngineProcess
from expert_cli.evaluation.verifiers.sandbox.limits import MAX_CYPHER_BYTES, Stopped

_WRITES = frozenset(("CREATE", "MERGE", "SET", "DELETE", "DETACH", "REMOVE", "DROP", "FOREACH"))
_BEFORE_NAMES = frozenset((":", ".", "|", "&", "!"))


def check(answer: str, script: Path, expected: str, *, timeout_s: float = 2.0) -> Grade:
    """Run `answer` on the graph that `script` makes and compare its rows with those of the expected queries.

    Rows are compared in order where the expected query orders them, lists unless it collects them unordered. The graph is
    graphqlite's, in a process of its own; with NEO4J_URI set it is the one on that server, asked in a transaction that
    can only read: the script must have been loaded there.

    Raises InputError where the script or an expected query fails, EnvironmentProblem where the engine is missing.
    """
    source = _source(script, *state_of(script), os.environ.get("NEO4J_URI", ""))
    return source.check(answer, expected, timeout_s=timeout_s, max_bytes=MAX_CYPHER_BYTES)


class _Reading:
    """An engine that is not shown what writes, or reads files or the network: LOAD CSV, and the APOC library."""

    def __init__(self, engine: QueryEngine) -> None:
        self._engine = engine

    def run(self, query: str, *, timeout_s: float) -> list[tuple[Any, ...]]:
        """Return the rows of one query. Raises `Stopped`."""
        _refuse(query)
        return self._engine.run(query, timeout_s=timeout_s)

    def prepare(self, query: str, *, timeout_s: float) -> None:
        """Find out whether a statement is allowed. Raises `Stopped`."""
        _refuse(query)
        self._engine.prepare(query, timeout_s=timeout_s)


def _refuse(statement: str) -> None:
    """Refuse by words: graphqlite passes over some writes in silence, and its LOAD CSV opens files."""
    code = ["", *(word for word, _ in code_words(statement, "cypher")), ""]
    for before, word, after in zip(code, code[1:], code[2:], strict=False):
        is_name = before in _BEFORE_NAMES or after == ":"
        if word == "APOC" or (word, after) == ("LOAD", "CSV") or (word in _WRITES and not is_name):
            raise Stopped("refused", word)


@lru_cache(maxsize=4)
def _source(script: Path, size: int, mtime_ns: int, uri: str) -> Source:  # noqa: ARG001  the file's state
    if uri:
        from expert_cli.evaluation.verifiers.sandbox.neo4j_engine import Neo4jEngine

        return Source(uri, _Reading(Neo4jEngine(uri)), "cypher")
    return Source(str(script), _Reading(EngineProcess("graphqlite", script)), "cypher")
