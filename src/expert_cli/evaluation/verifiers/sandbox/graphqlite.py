"""Graphs in memory, asked in Cypher through graphqlite. Runs in the worker's process: it can hang and crash.

Forms of Cypher that graphqlite lacks, or runs otherwise than Neo4j, are written in others or named; so are labels, types and
properties that a graph does not have.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Container, Mapping, Sequence
from copy import copy
from typing import Any

import apsw
import graphqlite

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.contents import GraphContents
from expert_cli.evaluation.verifiers.query_text import PRIVATE, code_words, hide_quotes, show_quotes, split
from expert_cli.evaluation.verifiers.sandbox import child_process
from expert_cli.evaluation.verifiers.sandbox.child_process import Stopped
from expert_cli.evaluation.verifiers.sandbox.sqlite import Engine, QueryJudge, ReadOnly

_OPEN: list[Any] = []
_CALL = "SELECT cypher(?)"
_WRITES = frozenset(("CREATE", "MERGE", "SET", "DELETE", "DETACH", "REMOVE", "DROP", "FOREACH"))
_BEFORE_NAMES = frozenset((":", ".", "|", "&", "!"))


def judge() -> QueryJudge:
    """Return what judges Cypher."""
    _OPEN.append(_connected())  # holds the library, which can be loaded while files may be opened
    return QueryJudge(GraphQLiteEngine, "cypher", child_process.MAX_CYPHER_BYTES)


class GraphQLiteEngine(Engine):
    """The graph that a script makes; nothing changes it afterwards."""

    def __init__(self, file: bytes) -> None:
        """Run the script. Raises InputError with the statement at fault."""
        connection = _connected()
        for number, statement in enumerate(split(file.decode(errors="replace"), "cypher"), start=1):
            try:
                connection.execute(_CALL, (statement,)).fetchall()
            except apsw.Error as error:
                raise InputError(f"statement {number}: {_message(str(error))}", statement[:200]) from error
        for name, (parameters, function) in _AS_NEO4J.items():
            connection.create_scalar_function(name, function, parameters, deterministic=True)
        connection.create_aggregate_function("sum", _sum, 1)
        self._content = bytes(connection.serialize("main"))
        self._contents = GraphContents(self._content)
        self._guard = ReadOnly(connection, also=(apsw.SQLITE_SAVEPOINT,), value_bytes=child_process.MAX_RESULT_BYTES)
        self._shown = [(self._content, False)]
        self._reverse, self._names = False, list[str]()

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
        code, quotes = hide_quotes(query, "cypher")
        code = _DISTINCT_LIST.sub(
            rf"reverse(['{DISTINCT}', collect(\1)])", _EXTREME.sub(r"\1(coalesce(\2, null))", code)
        )
        lacks, runs_wrongly = _LACKING.search(code), _RUNS_WRONGLY.search(code)
        try:
            ((document,),) = self._guard.run(_CALL, (show_quotes(code, quotes),), timeout_s=timeout_s)
        except Stopped as stopped:
            message = _message(stopped.detail)
            if stopped.kind == "invalid" and message in ("string or blob too big", "out of memory"):
                raise Stopped("too_large", message) from stopped
            if stopped.kind != "invalid" or not lacks:
                raise Stopped(stopped.kind, message) from stopped
            runs_wrongly = lacks
        if runs_wrongly:
            told = f"graphqlite, asked in place of Neo4j, lacks {show_quotes(runs_wrongly[0], quotes).strip()}"
            raise Stopped("parsed_only", told)
        rows = _rows(document)
        self._names = [*rows[0]] if rows else []
        return child_process.bounded(row.cells for row in rows)

    def columns(self, width: int) -> Sequence[str]:  # noqa: ARG002  named, not numbered
        """Return by what the query that just ran can order each column of its result: as RETURN names it."""
        return self._names

    def unknown(self, query: str) -> str:
        """Return the first label, type or property that the graph has nowhere: such a query runs, and finds nothing."""
        return unknown_name(query, self._contents.names)


def _connected() -> Any:
    connection = apsw.Connection(":memory:")
    connection.enable_load_extension(True)
    connection.load_extension(graphqlite.loadable_path())
    return connection


def _refuse(statement: str) -> None:
    """Refuse by words what writes, which graphqlite may pass over in silence, or reads files: LOAD CSV and APOC."""
    code = ["", *code_words(statement, "cypher"), ""]
    for before, word, after in zip(code, code[1:], code[2:], strict=False):
        is_name = before in _BEFORE_NAMES or after == ":"
        if word == "APOC" or (word, after) == ("LOAD", "CSV") or (word in _WRITES and not is_name):
            raise Stopped("refused", word)


def _sum() -> tuple[list[int | float], Callable[..., None], Callable[..., int | float]]:
    """What Cypher means by sum: 0 where there is nothing to add; a number that SQLite can hold."""

    def step(so_far: list[int | float], value: Any) -> None:
        so_far[0] += value if isinstance(value, int | float) else 0

    def final(so_far: list[int | float]) -> int | float:
        return float(so_far[0]) if abs(so_far[0]) >= 1 << 63 else so_far[0]

    return [0], step, final


def _matches(pattern: Any, text: Any) -> bool | None:
    """What Cypher means by =~: the pattern fits the whole text."""
    if not isinstance(pattern, str) or not isinstance(text, str):
        return None
    try:
        return re.fullmatch(pattern, text) is not None
    except re.error as error:
        raise apsw.SQLError(f"a pattern of =~: {error}") from error


def _reversed(value: Any) -> Any:
    """Turn a text or a list round; of a list of `DISTINCT` and another one, return that one without repetitions."""
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


class _Object(dict[str, Any]):
    """An object, and the values of all its members in order: two columns may have one name."""

    def __init__(self, members: Sequence[tuple[str, Any]]) -> None:
        super().__init__(members)
        self.cells = [value for _, value in members]


def _rows(document: Any) -> list[_Object]:
    try:
        rows = json.loads(document, object_pairs_hook=_Object)
    except (TypeError, ValueError) as error:
        raise Stopped("invalid", f"the result cannot be read: {error}") from error
    return (
        [row for row in rows if isinstance(row, _Object)] if isinstance(rows, list) else []
    )  # else counts of what changed


def _message(text: str) -> str:
    """Return the words of an error, which graphqlite wraps into JSON."""
    try:
        return str(json.loads(text)["error"])
    except (ValueError, TypeError, KeyError):
        return text


_NAME = rf"(?:[^\W\d]\w*|[{PRIVATE}])(?!\w)"
DISTINCT = "#distinct"
_DISTINCT_LIST = re.compile(r"(?<![.\w])collect\s*\(\s*DISTINCT\b([^()]*)\)", re.IGNORECASE)
"""graphqlite keeps the repetitions."""
_EXTREME = re.compile(rf"(?<![.\w])(max|min)\s*\(\s*({_NAME}\s*\.\s*{_NAME})\s*\)", re.IGNORECASE)
"""graphqlite takes a property for a number."""
_RUNS_WRONGLY = re.compile(r"\bCALL\s*\{\s*WITH\b|(?<![.\w])collect\s*\(\s*DISTINCT\b", re.IGNORECASE)
_LACKING = re.compile(
    r"\bC(?:ALL\s*\(|(?:OUNT|OLLECT)\s*\{)"  # subqueries
    r"|[)\]>-]\s*(?:\{\s*\d*\s*,?\s*\d*\s*\}|[+*](?=\s*\())|\b(?:SHORTEST|ANY)\s+\d*\s*(?:PATHS?|GROUPS?)?\s*\("  # paths
    r"|:\s*[!%(]|\w\s*&\s*!?|[(\[]\s*\w*\s*(?::[^()\[\]]*)?\bWHERE\b"  # labels, WHERE inside a pattern
    r"|\bIS\s+(?:NOT\s+)?(?:::|TYPED\b)|\bFILTER\b|\bLET\b|\btrim\s*\([^()]*\bFROM\b|(?<![.\w])(?:upper|lower)\s*\("
    r"|\bto(?:Integer|Float|String|Boolean)List\s*\("
    r"|\b(?:date|(?:local)?(?:date)?time|duration)(?:\.\w+)?\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*\.",  # parts of dates
    re.IGNORECASE,
)
_MAP = re.compile(rf"\{{\s*{_NAME}\s*:[^{{}}]*\}}")
_LABELS = re.compile(rf"(-\s*\[\s*(?:{_NAME})?\s*)?:\s*!?\s*({_NAME}(?:\s*[|&]\s*[:!]?\s*{_NAME})*)")
_PROPERTY = re.compile(rf"(?<![\w.])({_NAME})\s*\.\s*({_NAME})(?!\s*\()")
_OPENS = r"(?:(?<!\w)\(|-\s*\[)\s*"
_VARIABLE = re.compile(rf"{_OPENS}({_NAME})")
_PATTERN_MAP = re.compile(rf"{_OPENS}(?:{_NAME})?\s*(?::[^()\[\]{{}}]*)?(\{{[^{{}}]*\}})")
_KEY = re.compile(rf"[{{,]\s*({_NAME})\s*:")


def unknown_name(statement: str, graph: Mapping[str, Container[str]]) -> str:
    """Return a label, type or property of a statement that the graph has nowhere, "" for none.

    A graph has no schema: such a query runs, and finds nothing, and Neo4j only warns of it. Properties are those of nodes and
    relationships that a pattern names, and those written in a pattern.
    """
    code, quotes = hide_quotes(statement, "cypher")
    named, variables = list[tuple[str, str]](), {*_VARIABLE.findall(code)}
    for edge, group in _LABELS.findall(_MAP.sub("", code)):
        named += [("type" if edge else "label", name) for name in re.findall(_NAME, group)]
    named += [("property", key) for inside in _PATTERN_MAP.findall(code) for key in _KEY.findall(inside)]
    named += [("property", name) for owner, name in _PROPERTY.findall(code) if owner in variables]
    shown = ((sort, re.sub("`(`?)", r"\1", show_quotes(name, quotes))) for sort, name in named)
    return next((f"the graph has no {sort} {name}" for sort, name in shown if name not in graph[sort]), "")
