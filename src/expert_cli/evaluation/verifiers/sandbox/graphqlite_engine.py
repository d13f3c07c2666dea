"""A graph in memory, asked in Cypher through graphqlite. Runs in the process of `engine_server.py`: it can hang and crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import graphqlite

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.query_text import split
from expert_cli.evaluation.verifiers.sandbox.limits import MAX_RESULT_BYTES, TOO_DEEP, Stopped, bounded
from expert_cli.evaluation.verifiers.sandbox.sqlite_guard import ReadOnlySqlite

_CALL = "SELECT cypher(?)"
_TOO_LARGE = ("string or blob too big", "out of memory")


class GraphQLiteEngine:
    """The graph that a script makes; nothing changes it afterwards."""

    def __init__(self, script: Path) -> None:
        """Run the script. Raises InputError with the statement at fault."""
        connection = apsw.Connection(":memory:")
        connection.enable_load_extension(True)
        connection.load_extension(graphqlite.loadable_path())
        for number, statement in enumerate(split(script.read_text(encoding="utf-8"), "cypher"), start=1):
            try:
                connection.execute(_CALL, (statement,)).fetchall()
            except apsw.Error as error:
                raise InputError(f"statement {number}: {_message(str(error))}", statement[:200]) from error
        self._guard = ReadOnlySqlite(connection, also=(apsw.SQLITE_SAVEPOINT,), value_bytes=MAX_RESULT_BYTES)

    def run(self, query: str, *, timeout_s: float) -> list[tuple[Any, ...]]:
        """Return the rows in the order of the columns. Raises `Stopped`."""
        try:
            ((document,),) = self._guard.run(_CALL, (query,), timeout_s=timeout_s)
        except Stopped as stopped:
            message = _message(stopped.detail)
            kind = "too_large" if stopped.kind == "invalid" and message in _TOO_LARGE else stopped.kind
            raise Stopped(kind, message) from stopped
        return bounded(_rows(document))

    def prepare(self, query: str, *, timeout_s: float) -> None:
        """Run the query: graphqlite has no other way to compile it, and the guard refuses what writes."""
        self.run(query, timeout_s=timeout_s)


class _Members(list[tuple[str, Any]]):
    """An object as its members in order: two columns may have one name."""


def _rows(document: Any) -> list[list[Any]]:
    try:
        rows = json.loads(document, object_pairs_hook=_Members)
        if not isinstance(rows, list) or isinstance(rows, _Members):
            return []  # counts of a statement that returns no rows
        return [[_plain(value) for _, value in row] if isinstance(row, _Members) else [_plain(row)] for row in rows]
    except RecursionError as error:
        raise Stopped("too_large", TOO_DEEP) from error
    except (TypeError, ValueError) as error:
        raise Stopped("invalid", f"the result cannot be read: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, _Members):
        return {key: _plain(item) for key, item in value}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _message(text: str) -> str:
    """Return the words of an error, which graphqlite wraps into JSON."""
    try:
        return str(json.loads(text)["error"])
    except (ValueError, TypeError, KeyError):
        return text
