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
_NOT_HERE = "graphqlite, asked in place of Neo4j, has no {}"
_WRITES = frozenset(("CREATE", "MERGE", "SET", "DELETE", "DETACH", "REMOVE", "DROP", "FOREACH"))
_BEFORE_NAMES = frozenset((":", ".", "|", "&", "!"))
_TOO_LARGE = ("string or blob too big", "out of memory")


def judge() -> QueryJudge:
    """Return what judges Cypher."""
    _OPEN.append(_connected())  # holds the library, which can be loaded while files may be opened
    return QueryJudge(GraphQLiteEngine, "cypher", child_process.MAX_CYPHER_BYTES)


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
        connection.create_aggregate_function("sum", _sum, 1)
        self._content = bytes(connection.serialize("main"))
        self._contents = GraphContents(self._content)
        self._guard = ReadOnly(connection, also=(apsw.SQLITE_SAVEPOINT,), value_bytes=child_process.MAX_RESULT_BYTES)
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
        return child_process.bounded(_rows(document))

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
    """Turn a text or a list round; of a list that `for_graphqlite` marked, return the second item without repetitions."""
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


def _rows(document: Any) -> list[list[Any]]:
    try:
        rows = json.loads(document, object_pairs_hook=_Object)
    except RecursionError as error:
        raise Stopped("too_large", "a value of the result is nested too deep") from error
    except (TypeError, ValueError) as error:
        raise Stopped("invalid", f"the result cannot be read: {error}") from error
    if not isinstance(rows, list):
        return []  # counts of a statement that returns no rows
    return [row.cells if isinstance(row, _Object) else [row] for row in rows]


def _message(text: str) -> str:
    """Return the words of an error, which graphqlite wraps into JSON."""
    try:
        return str(json.loads(text)["error"])
    except (ValueError, TypeError, KeyError):
        return text


DISTINCT = "collect(DISTINCT)"
"""Marks a list of two whose second is a list to be kept without repetitions, see `_reversed`."""
_MAX_CALLS = 50
_REPEATED = re.compile(r"(-\[[^\[\]{}*]*)\](->?)\s*(?:\{\s*(\d*)\s*(,?)\s*(\d*)\s*\}|([+*]))(?=\s*\()")
_BOTH_LABELS = re.compile(r"(?<=\w)&(?=\w)")
_CASE = re.compile(r"(?<![.\w])(?:upper|lower)(?=\s*\()", re.IGNORECASE)
_COUNT = re.compile(r"\bCOUNT\s*\{", re.IGNORECASE)
_PATTERN = re.compile(r"\s*(?:MATCH\b\s*)?(?=\()", re.IGNORECASE)
_WHERE = re.compile(r"\bWHERE\b", re.IGNORECASE)
_CLAUSE = re.compile(r"\b(?:RETURN|WITH|UNION|MATCH|CALL|UNWIND)\b", re.IGNORECASE)
_COLLECT = re.compile(r"(?<![.\w])collect\s*\(\s*DISTINCT\b", re.IGNORECASE)
_EXTREME = re.compile(r"(?<![.\w])(?:max|min)\s*\(", re.IGNORECASE)
_RUN_WRONGLY = "CALL { WITH }"
_LACKING = {
    _RUN_WRONGLY: r"\bCALL\s*\{\s*WITH\b",
    "CALL (variables) { }": r"\bCALL\s*\(",
    "COUNT { }": _COUNT.pattern,
    "COLLECT { }": r"\bCOLLECT\s*\{",
    "quantified paths": r"[)\]>-]\s*(?:\{\s*\d*\s*,?\s*\d*\s*\}|[+*](?=\s*\())",
    "label expressions": r":\s*[!%(]|\w\s*&\s*!?",
    "WHERE inside a pattern": r"[(\[]\s*\w*\s*(?::[^()\[\]]*)?\bWHERE\b",
    "SHORTEST": r"\b(?:SHORTEST|ANY)\s+\d*\s*(?:PATHS?|GROUPS?)?\s*\(",
    "IS ::": r"\bIS\s+(?:NOT\s+)?(?:::|TYPED\b)",
    "FILTER": r"\bFILTER\b",
    "LET": r"\bLET\b",
    "TRIM(... FROM ...)": r"\btrim\s*\([^()]*\bFROM\b",
    "fields of dates and durations": r"\b(?:date|(?:local)?(?:date)?time|duration)(?:\.\w+)?\s*"
    r"\([^()]*(?:\([^()]*\)[^()]*)*\)\s*\.",
    "toIntegerList and its like": r"\bto(?:Integer|Float|String|Boolean)List\s*\(",
}


def for_graphqlite(query: str) -> str:
    """Return the query as graphqlite understands it."""
    code, quotes = hide_quotes(query, "cypher")
    code = _REPEATED.sub(_repeated, _CASE.sub(r"to\g<0>", _BOTH_LABELS.sub(":", code)))
    code = _each(_COUNT, code, _count)
    code = _each(_EXTREME, code, lambda call, inside: f"{call}coalesce({inside}, null))")
    code = _each(_COLLECT, code, lambda _, inside: f"reverse(['{DISTINCT}', collect({inside})])")
    return show_quotes(code, quotes)


def lacking(query: str, *, refused: bool) -> str:
    """Return the form of Cypher in a query that graphqlite lacks, "" for none; only what it runs wrongly unless `refused`."""
    code, _ = hide_quotes(query, "cypher")
    names = _LACKING if refused else (_RUN_WRONGLY,)
    return next((name for name in names if re.search(_LACKING[name], code, re.IGNORECASE)), "")


def _repeated(found: re.Match[str]) -> str:
    """Write -[:X]->{1,2} as -[:X*1..2]->."""
    start, arrow, least, comma, most, mark = found.groups()
    least, most = ("1" if mark == "+" else "0", "") if mark else (least or "0", most if comma else least)
    return f"{start}*{least}..{most}]{arrow}"


def _count(call: str, inside: str) -> str:
    """Write COUNT { pattern } as the size of a list."""
    start = _PATTERN.match(inside)
    pattern = inside[start.end() :].strip() if start else ""
    paths = _WHERE.split(pattern, maxsplit=1)[0]
    if not start or "," in re.sub(r"\{[^{}]*\}", "", paths) or _CLAUSE.search(pattern):
        return f"{call}{inside}}}"
    return f"size([{pattern} | 1])"


def _each(opening: re.Pattern[str], code: str, by: Callable[[str, str], str]) -> str:
    """Replace what begins with `opening`, a bracket at its end, and what stands in that bracket; the inner ones first."""
    calls = list(opening.finditer(code))
    for call in reversed(calls if len(calls) <= _MAX_CALLS else []):
        depth = sum((mark in "([{") - (mark in ")]}") for mark in call[0])
        for end in range(call.end(), len(code)):
            depth += (code[end] in "([{") - (code[end] in ")]}")
            if not depth:
                code = code[: call.start()] + by(call[0], code[call.end() : end]) + code[end + 1 :]
                break
    return code


_NAME = rf"(?:[^\W\d]\w*|[{PRIVATE}])(?!\w)"
_OPENS = r"(?:(?<!\w)\(|-\s*\[)\s*"
_VARIABLE = re.compile(rf"{_OPENS}({_NAME})")
_KEY = re.compile(rf"[{{,]\s*({_NAME})\s*:")
_PATTERN_MAP = re.compile(rf"{_OPENS}(?:{_NAME})?\s*(?::[^()\[\]{{}}]*)?\{{[^{{}}]*\}}")
_TYPES = re.compile(rf"-\s*\[\s*(?:{_NAME})?\s*:[^\]{{*]*")
_LABELS = re.compile(rf":\s*!?\s*{_NAME}(?:\s*[|&]\s*[:!]?\s*{_NAME})*")
_PROPERTY = re.compile(rf"(?<![\w.])({_NAME})\s*\.\s*({_NAME})(?!\s*\()")
_COMPONENTS = re.compile(
    "(?:year|quarter|month|week|day|hour|minute|(?:milli|micro|nano)?second)s?|weekYear|weekDay|ordinalDay|dayOf(?:Week|Quarter)"
    "|timezone|offset|epoch(?:Seconds|Millis)|[xyz]|latitude|longitude|height|crs|srid"
)
"""What dates, times, durations and points have, which are no nodes."""


def unknown_name(statement: str, graph: Mapping[str, Container[str]]) -> str:
    """Return the first name of a statement that the graph does not have, and of what sort it is; "" for none.

    A graph has no schema: such a query runs, and finds nothing. What counts is what Neo4j warns of, too: a label, type or
    property that the graph has nowhere, on whatever node; one that only other nodes have is no unknown name.
    """
    code, quotes = hide_quotes(statement, "cypher")

    def read(name: str) -> str:
        return re.sub("`(`?)", r"\1", show_quotes(name, quotes))

    in_patterns = [(found.start(), found.end()) for found in _PATTERN_MAP.finditer(code)]
    keys = {key.start(1): read(key[1]) for key in _KEY.finditer(code)}
    asked = {at: name for at, name in keys.items() if any(start < at < end for start, end in in_patterns)}
    made, variables = {*keys.values()} - {*asked.values()}, {read(name) for name in _VARIABLE.findall(code)}
    named = [(at, "property", name) for at, name in asked.items()]
    for owner in _PROPERTY.finditer(code):
        name = read(owner[2])
        if read(owner[1]) in variables or not (name in made or _COMPONENTS.fullmatch(name)):
            named.append((owner.start(2), "property", name))
    labels = code
    for other in (_KEY, _TYPES):
        labels = other.sub(lambda found: " " * len(found[0]), labels)
    for sort, pattern, text in (("type", _TYPES, code), ("label", _LABELS, labels)):
        for group in pattern.finditer(text):
            found = re.finditer(rf"[:|&!]\s*({_NAME})", group[0])
            named += [(group.start() + one.start(), sort, read(one[1])) for one in found]
    return next((f"the graph has no {sort} {name}" for _, sort, name in sorted(named) if name not in graph[sort]), "")
