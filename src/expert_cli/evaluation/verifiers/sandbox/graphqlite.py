"""Graphs in memory, asked in Cypher through graphqlite. Runs in the worker's process: it can hang and crash."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import apsw
import graphqlite

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.contents import GraphContents
from expert_cli.evaluation.verifiers.cypher_text import DISTINCT, for_graphqlite, lacking, unknown_name
from expert_cli.evaluation.verifiers.query_text import code_words, split
from expert_cli.evaluation.verifiers.sandbox import isolation
from expert_cli.evaluation.verifiers.sandbox.isolation import Stopped
from expert_cli.evaluation.verifiers.sandbox.query_judge import Engine, QueryJudge
from expert_cli.evaluation.verifiers.sandbox.sqlite import ReadOnly

_OPEN: list[Any] = []
_CALL = "SELECT cypher(?)"
_NOT_HERE = "graphqlite, asked in place of Neo4j, has no {}"
_WRITES = frozenset(("CREATE", "MERGE", "SET", "DELETE", "DETACH", "REMOVE", "DROP", "FOREACH"))
_BEFORE_NAMES = frozenset((":", ".", "|", "&", "!"))
_TOO_LARGE = ("string or blob too big", "out of memory")


def judge() -> QueryJudge:
    """Return what judges Cypher."""
    _OPEN.append(_connected())  # holds the library, which can be loaded while files may be opened
    return QueryJudge(GraphQLiteEngine, "cypher", isolation.MAX_CYPHER_BYTES)


class GraphQLiteEngine(Engine):
    """The graph that a script makes; nothing changes it afterwards."""

    def __init__(self, file: bytes) -> None:
        """Run the script. Raises InputError with the statement at fault."""
        connection = _connected()
        try:
            statements = split(file.decode(), "cypher")
        except UnicodeDecodeError as error:
            raise InputError(f"not UTF-8: {error}") from error
        for number, statement in enumerate(statements, start=1):
            try:
                connection.execute(_CALL, (statement,)).fetchall()
            except apsw.Error as error:
                raise InputError(f"statement {number}: {_message(str(error))}", statement[:200]) from error
        for name, (parameters, function) in _AS_NEO4J.items():
            connection.create_scalar_function(name, function, parameters, deterministic=True)
        connection.create_aggregate_function("sum", _Sum, 1)
        self._content = bytes(connection.serialize("main"))
        self._contents = GraphContents(self._content)
        self._guard = ReadOnly(connection, also=(apsw.SQLITE_SAVEPOINT,), value_bytes=isolation.MAX_RESULT_BYTES)
        self._shown = [(self._content, False)]
        self._reverse = False

    def perturbed(self, queries: Sequence[str], number: int) -> tuple[GraphQLiteEngine, GraphQLiteEngine]:
        """Return another content of the same graph, and it once more: there, unordered rows come the other way round."""
        one, other = copy(self), copy(self)
        one._content = other._content = self._contents.content(queries, number)
        other._reverse = True
        return one, other

    def run(self, query: str, *, timeout_s: float) -> list[tuple[Any, ...]]:
        """Return the rows in the order of the columns. Raises `Stopped`."""
        _refuse(query)
        shown = [(self._content, self._reverse)]
        if self._shown != shown:  # graphqlite crashes a process that has had many connections
            self._guard.show(self._content, reverse=self._reverse)
            self._shown[:] = shown
        try:
            ((document,),) = self._guard.run(_CALL, (for_graphqlite(query),), timeout_s=timeout_s)
        except Stopped as stopped:
            message = _message(stopped.detail)
            kind = "too_large" if stopped.kind == "invalid" and message in _TOO_LARGE else stopped.kind
            if kind == "invalid" and (missing := lacking(query, refused=True)):
                raise Stopped("parsed_only", _NOT_HERE.format(missing)) from stopped
            raise Stopped(kind, message) from stopped
        if wrong := lacking(query, refused=False):
            raise Stopped("parsed_only", _NOT_HERE.format(wrong))
        return isolation.bounded(_rows(document))

    def unknown(self, query: str) -> str:
        """Return the first label, type or property that the graph has nowhere: such a query runs, and finds nothing."""
        return unknown_name(query, self._contents.names)


def _connected() -> Any:
    connection = apsw.Connection(":memory:")
    connection.enable_load_extension(True)
    connection.load_extension(graphqlite.loadable_path())
    return connection


def _refuse(statement: str) -> None:
    """Refuse by words what writes, or reads files or the network: LOAD CSV, and the APOC library.

    graphqlite passes over some writes in silence, and its LOAD CSV opens files.
    """
    code = ["", *code_words(statement, "cypher"), ""]
    for before, word, after in zip(code, code[1:], code[2:], strict=False):
        is_name = before in _BEFORE_NAMES or after == ":"
        if word == "APOC" or (word, after) == ("LOAD", "CSV") or (word in _WRITES and not is_name):
            raise Stopped("refused", word)


class _Sum:
    """What Cypher means by sum: 0 where there is nothing to add."""

    def __init__(self) -> None:
        self.so_far: int | float = 0

    def step(self, value: Any) -> None:
        """Take one more value."""
        self.so_far += value if isinstance(value, int | float) else 0

    def final(self) -> int | float:
        """Return a number that SQLite can hold."""
        return self.so_far if isinstance(self.so_far, float) or abs(self.so_far) < 1 << 63 else float(self.so_far)


def _matches(pattern: Any, text: Any) -> bool | None:
    """What Cypher means by =~: the pattern fits the whole text."""
    if not isinstance(pattern, str) or not isinstance(text, str):
        return None
    try:
        return re.fullmatch(pattern, text) is not None
    except re.error as error:
        raise apsw.SQLError(f"a pattern of =~: {error}") from error


def _reversed(value: Any) -> Any:
    """Turn a text or a list round; of a list that `cypher_text` marked, return the second item without repetitions."""
    if not isinstance(value, str):
        return None
    items = json.loads(value) if value.startswith("[") else value
    if items[:1] == [DISTINCT]:
        items = list({json.dumps(item): item for item in items[1]}.values())[::-1]
    return json.dumps(items[::-1]) if isinstance(items, list) else items[::-1]


_AS_NEO4J: dict[str, tuple[int, Callable[..., Any]]] = {
    "regexp": (2, _matches),
    "round": (1, lambda value: float(math.floor(value + 0.5)) if isinstance(value, int | float) else None),  # a half up
    "reverse": (1, _reversed),
}
"""What SQL functions that graphqlite writes for Cypher's mean in Neo4j, with the number of their parameters."""


class _Members(list[tuple[str, Any]]):
    """An object as its members in order: two columns may have one name."""


def _rows(document: Any) -> list[list[Any]]:
    try:
        rows = json.loads(document, object_pairs_hook=_Members)
        if not isinstance(rows, list) or isinstance(rows, _Members):
            return []  # counts of a statement that returns no rows
        return [[_plain(value) for _, value in row] if isinstance(row, _Members) else [_plain(row)] for row in rows]
    except RecursionError as error:
        raise Stopped("too_large", "a value of the result is nested too deep") from error
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
