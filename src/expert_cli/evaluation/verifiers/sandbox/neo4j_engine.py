"""A Neo4j server instead of graphqlite: queries in transactions that can only read, and are never committed.

NEO4J_URI, NEO4J_USERNAME, NEO4J_PASSWORD and NEO4J_DATABASE say where; the case's script must have been loaded there.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

from expert_cli.errors import EnvironmentProblem
from expert_cli.evaluation.verifiers.query_text import code_words
from expert_cli.evaluation.verifiers.sandbox.limits import Stopped, bounded
from expert_cli.hardware.machine import has_package

_ENDINGS = ("TransactionTimedOut", "TransactionTimedOutClientConfiguration")
_WRITES = ("AccessMode", "Forbidden")


class Neo4jEngine:
    """A connection to one database of a server."""

    def __init__(self, uri: str) -> None:
        """Connect. Raises EnvironmentProblem."""
        if not has_package("neo4j"):
            raise EnvironmentProblem("NEO4J_URI is set, but the driver is not installed", "pip install neo4j")
        import neo4j

        self._neo4j: Any = neo4j
        account = (os.environ.get("NEO4J_USERNAME", "neo4j"), os.environ.get("NEO4J_PASSWORD", ""))
        self._driver = neo4j.GraphDatabase.driver(uri, auth=account)
        self._uri = uri
        try:
            self._driver.verify_connectivity()
        except (neo4j.exceptions.Neo4jError, neo4j.exceptions.DriverError) as error:
            raise self._unreachable(error) from error

    def run(self, query: str, *, timeout_s: float) -> list[tuple[Any, ...]]:
        """Return the rows. Raises `Stopped`; EnvironmentProblem where the server has gone."""
        _refuse_procedures(query)
        errors = self._neo4j.exceptions
        reading = {"default_access_mode": self._neo4j.READ_ACCESS, "database": os.environ.get("NEO4J_DATABASE")}
        try:
            with (
                self._driver.session(**reading) as session,
                session.begin_transaction(timeout=timeout_s) as transaction,
            ):
                rows = bounded([_plain(value) for value in record.values()] for record in transaction.run(query))
                transaction.rollback()
                return rows
        except errors.Neo4jError as error:
            raise _stopped(error, timeout_s) from error
        except errors.DriverError as error:
            raise self._unreachable(error) from error

    def prepare(self, query: str, *, timeout_s: float) -> None:
        """Let the server plan the statement, which refuses what writes. Raises `Stopped`."""
        self.run(f"EXPLAIN {query}", timeout_s=timeout_s)

    def _unreachable(self, error: Exception) -> EnvironmentProblem:
        return EnvironmentProblem(f"{self._uri}: {error}", "see NEO4J_URI, NEO4J_USERNAME and NEO4J_PASSWORD")


def _refuse_procedures(query: str) -> None:
    """Refuse CALL of a procedure that is not the database's own: others read files and the network."""
    if "\\u" in query:  # the server turns these into characters before it looks for words
        raise Stopped("refused", "a Unicode escape")
    code = [word for word, _ in code_words(query, "cypher")]
    for word, following in pairwise(code):
        if word == "CALL" and following not in ("{", "(", "DB"):
            raise Stopped("refused", f"CALL {following}")


def _stopped(error: Any, timeout_s: float) -> Stopped:
    code = str(error.code).rpartition(".")[2]
    if code in _ENDINGS:
        return Stopped("timeout", f"not done after {timeout_s:g} s")
    if code in _WRITES:
        return Stopped("refused", str(error.message))
    return Stopped("too_large" if "OutOfMemory" in code else "invalid", f"{code}: {error.message}")


def _plain(value: Any) -> Any:
    """Return nodes and relationships as maps, dates and the like as text."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "element_id"):
        return {"id": value.element_id, "properties": {key: _plain(item) for key, item in value.items()}}
    if hasattr(value, "nodes"):
        return [_plain(item) for item in (*value.nodes, *value.relationships)]
    return str(value)
