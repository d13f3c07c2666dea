"""Runs Cypher on graphs in memory with graphqlite, in the worker process, because graphqlite can hang and crash.

Syntax that graphqlite lacks, or runs differently from Neo4j, is reported by name; some of it is rewritten.
"""

from __future__ import annotations

import json
import math
import re
from itertools import pairwise
from typing import Any

import apsw
import graphqlite

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.case import Stopped, unreadable
from expert_cli.evaluation.verifiers.contents import Way, graph_contents
from expert_cli.evaluation.verifiers.query_rows import TEXTS, Row, split, tokens, without, words
from expert_cli.evaluation.verifiers.sandbox import child_process
from expert_cli.evaluation.verifiers.sandbox.sqlite import QueryJudge, ReadOnly
from expert_cli.utils.files import strict_json

_CALL = "SELECT cypher(?)"
_WRITES = frozenset(("CREATE", "MERGE", "SET", "DELETE", "DETACH", "REMOVE", "DROP", "FOREACH"))
_BEFORE_NAMES = frozenset((":", ".", "|", "&", "!"))
_NAME = r"(?:[^\W\d]\w*|`(?:[^`]|``)+`)"
_EXTREME = re.compile(rf"(?<![.\w])(max|min)\s*\(\s*({_NAME}\s*\.\s*{_NAME})\s*\)", re.IGNORECASE)
"""Matches max() and min() of a property: graphqlite converts their argument to a number, unless it is a function call."""
_RUNS_WRONGLY = re.compile(r"\bCALL\s*\{\s*WITH\b|(?<![.\w])collect\s*\(\s*DISTINCT\b", re.IGNORECASE)
_LACKING = re.compile(
    r"\bC(?:ALL\s*\(|(?:OUNT|OLLECT)\s*\{)"  # subqueries
    r"|[)\]>-]\s*(?:\{\s*\d*\s*,?\s*\d*\s*\}|[+*](?=\s*\())|\b(?:SHORTEST|ANY)\s+\d*\s*(?:PATHS?|GROUPS?)?\s*\("  # paths
    r"|:\s*[!%(]|\w\s*&\s*!?|[(\[]\s*\w*\s*(?::[^()\[\]]*)?\bWHERE\b"  # label expressions, WHERE inside a pattern
    r"|\bIS\s+(?:NOT\s+)?(?:::|TYPED\b)|\bFILTER\b|\bLET\b|\btrim\s*\([^()]*\bFROM\b|(?<![.\w])(?:upper|lower)\s*\("
    r"|\bto(?:Integer|Float|String|Boolean)List\s*\("
    r"|\b(?:date|(?:local)?(?:date)?time|duration)(?:\.\w+)?\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*\.",  # parts of dates
    re.IGNORECASE,
)

Graph = tuple[ReadOnly, bytes]
"""A content: the read-only connection of its graph, and the database's bytes."""


class CypherJudge(QueryJudge):
    """Judges Cypher with graphqlite."""

    dialect, max_bytes = "cypher", child_process.MAX_CYPHER_BYTES

    def __init__(self) -> None:
        """Load the library while this process may still open files."""
        super().__init__()
        self._library = _connected()

    def content_of(self, file: bytes) -> tuple[Graph, Way]:
        """Return the graph that a script creates, and a function that generates others. Raises InputError if it fails."""
        connection = _connected()
        for number, statement in enumerate(split(file.decode(errors="replace"), "cypher"), start=1):
            try:
                connection.execute(_CALL, (statement,)).fetchall()
            except apsw.Error as error:
                raise InputError(f"statement {number}: {_message(str(error))}", statement[:200]) from error
        connection.create_scalar_function("regexp", _regexp, 2, deterministic=True)
        connection.create_scalar_function("round", _round, 1, deterministic=True)
        content = bytes(connection.serialize("main"))
        others = graph_contents(content)
        # one connection per graph: graphqlite crashes a process that has opened many
        guard = ReadOnly(connection, also=(apsw.SQLITE_SAVEPOINT,), value_bytes=child_process.MAX_RESULT_BYTES)
        return (guard, content), lambda queries, number: (guard, others(queries, number))

    def run(self, content: Graph, query: str, timeout_s: float, *, reverse: bool = False) -> list[Row]:
        """Return the rows, in the order of the columns. Raises `Stopped`."""
        _refuse(query)
        guard, shown = content
        guard.show(shown, reverse=reverse)
        plain = without(query, "cypher", TEXTS, "''")
        try:
            asked = _EXTREME.sub(r"\1(coalesce(\2, null))", query)
            ((document,),) = guard.run(_CALL, (asked,), timeout_s=timeout_s)
            found = strict_json(document.encode())  # Neo4j refuses repeated column names, too
            lacks = _RUNS_WRONGLY.search(plain)
        except (TypeError, ValueError) as error:
            raise unreadable(error, "the result cannot be read: ") from error
        except Stopped as stopped:
            message, lacks = _message(stopped.detail), _LACKING.search(plain)
            is_too_large = message in ("string or blob too big", "out of memory")
            if stopped.kind != "invalid" or is_too_large or not lacks:
                raise Stopped("too_large" if is_too_large else stopped.kind, message) from stopped
        if lacks:
            raise Stopped("parsed_only", f"graphqlite, which runs it in place of Neo4j, lacks {lacks[0].strip()}")
        rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
        self.columns = [*rows[0]] if rows else []
        return child_process.bounded([*row.values()] for row in rows)


def _connected() -> Any:
    connection = apsw.Connection(":memory:")
    connection.enable_load_extension(True)
    connection.load_extension(graphqlite.loadable_path())
    connection.enable_load_extension(False)
    return connection


def _regexp(pattern: Any, text: Any) -> bool | None:
    return None if None in (pattern, text) else bool(re.fullmatch(pattern, text))


def _round(value: Any) -> float | None:
    """Round half up, as Neo4j does."""
    return float(math.floor(value + 0.5)) if isinstance(value, int | float) else None


def _refuse(statement: str) -> None:
    """Refuse, by keyword, a statement that writes (which graphqlite may silently ignore) or reads files (LOAD CSV, APOC)."""
    code = ["", *words(tokens(statement, "cypher")), ""]
    for before, (word, after) in zip(code, pairwise(code[1:]), strict=False):
        is_name = before in _BEFORE_NAMES or after == ":"
        if word == "APOC" or (word, after) == ("LOAD", "CSV") or (word in _WRITES and not is_name):
            raise Stopped("refused", word)


def _message(text: str) -> str:
    """Return the message of an error, which graphqlite wraps into JSON."""
    try:
        return str(json.loads(text)["error"])
    except (ValueError, TypeError, KeyError):
        return text
