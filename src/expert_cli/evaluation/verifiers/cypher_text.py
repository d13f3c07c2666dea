"""What is read in the text of a Cypher query: forms that graphqlite lacks or runs otherwise than Neo4j, which are written in
others or named; and labels, types and properties that its graph does not have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from expert_cli.evaluation.verifiers.query_text import Token, hide_quotes, show_quotes, tokens

DISTINCT = "collect(DISTINCT)"
"""Marks a list of two whose second is a list to be kept without repetitions, see `sandbox/graphqlite.py`."""
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


Sort = Literal["label", "type", "property"]

GRAPH_NAMES = (
    "MATCH (n) UNWIND labels(n) AS name RETURN DISTINCT name",
    "MATCH ()-[r]->() RETURN DISTINCT type(r)",
    "MATCH (n) UNWIND keys(n) AS name RETURN DISTINCT name",
    "MATCH ()-[r]->() UNWIND keys(r) AS name RETURN DISTINCT name",
)
"""Queries whose rows are the fields of `GraphNames`."""
_BEFORE_BRACKET = frozenset(
    ("MATCH", "WHERE", "AND", "OR", "XOR", "NOT", "IN", "RETURN", "WITH", "DISTINCT", "BY", "WHEN", "THEN", "ELSE")
)
"""Words before a bracket that is no function's."""
_COMPONENTS = re.compile(
    "(?:year|quarter|month|week|day|hour|minute|(?:milli|micro|nano)?second)s?|weekYear|weekDay|ordinalDay|dayOf(?:Week|Quarter)"
    "|timezone|offset|epoch(?:Seconds|Millis)|[xyz]|latitude|longitude|height|crs|srid"
)
"""What dates, times, durations and points have, which are no nodes."""


class GraphNames(NamedTuple):
    """What a graph has."""

    labels: frozenset[str]
    types: frozenset[str]
    node_keys: frozenset[str]
    relationship_keys: frozenset[str]


def unknown_name(statement: str, graph: GraphNames) -> str:
    """Return the first name of a statement that the graph does not have, and of what sort it is; "" for none.

    A graph has no schema: such a query runs, and finds nothing. What counts is what Neo4j warns of, too: a label, type or
    property that the graph has nowhere, on whatever node; one that only other nodes have is no unknown name.
    """
    code = _Code(statement)
    keys = graph.node_keys | graph.relationship_keys
    known: dict[Sort, frozenset[str]] = {"label": graph.labels, "type": graph.types, "property": keys}
    made = {code.names[at] for at in code.keys if not code.in_pattern(at)}
    patterns = {code.names[at + 1] for at in range(len(code.names) - 1) if code.opens_pattern(at)} - {""}
    for sort, at in code.named():
        name = code.names[at]
        is_value = sort == "property" and code.text[at - 1] == "." and code.names[at - 2] not in patterns
        if name not in known[sort] and not (is_value and (name in made or _COMPONENTS.fullmatch(name))):
            return f"the graph has no {sort} {name}"
    return ""


class _Code:
    """The tokens of a statement, between empty ones. names: "" for what is no name; opening: the bracket in which each stands;
    keys: where those of maps stand.
    """

    def __init__(self, statement: str) -> None:
        found = list(tokens(statement, "cypher"))
        self.text = ["", "", "", *(token.text for token in found), "", ""]
        self.names = ["", "", "", *map(_name, found), "", ""]
        self.opening, open_ = list[int](), [0]
        for at, text in enumerate(self.text):
            if text in {")", "]", "}"} and len(open_) > 1:
                open_.pop()
            self.opening.append(open_[-1])
            if text in {"(", "[", "{"}:
                open_.append(at)
        self.keys = {at for at, name in enumerate(self.names) if name and self._is_key(at)}

    def _is_key(self, at: int) -> bool:
        follows = self.text[at - 1] == "," and self.text[self.opening[at]] == "{"
        return self.text[at + 1] == ":" and (follows or self.text[at - 1] == "{")

    def in_pattern(self, key: int) -> bool:
        """Whether the map of a key says which nodes or relationships a pattern means."""
        brace = self.opening[key]
        return self.opens_pattern(self.opening[brace]) and self.text[brace - 1] not in {",", ":", "|", "="}

    def opens_pattern(self, at: int) -> bool:
        """Whether a bracket is that of a node or relationship, as far as what stands before it tells."""
        if self.text[at] == "[":
            return self.text[at - 1] == "-"
        is_call = self.names[at - 1] and self.text[at - 1].upper() not in _BEFORE_BRACKET
        return self.text[at] == "(" and not is_call

    def named(self) -> Iterator[tuple[Sort, int]]:
        """Yield where labels, types and properties stand, in order; behind a bracket or a call no property is looked for."""
        sort: Sort | None = None
        for at in range(3, len(self.text) - 2):
            before, here, after = self.text[at - 1 : at + 2]
            if here == ":" and at - 1 not in self.keys:
                sort = "type" if "[" in self.text[at - 2 : at] else sort or "label"
            elif not self.names[at]:
                sort = sort if here in {"|", "&", "!"} else None
            elif sort and before in {":", "|", "&", "!"}:
                yield sort, at
            elif at in self.keys and self.in_pattern(at):
                yield "property", at
            else:
                sort = None
                if before == "." and self.names[at - 2] and self.text[at - 3] != "." and after != "(":
                    yield "property", at


def _name(token: Token) -> str:
    """Return a name without its backticks, "" for what is none."""
    if token.text.startswith("`"):
        return token.text[1:-1].replace("``", "`")
    return token.text if not token.quoted and (token.text[0].isalpha() or token.text[0] == "_") else ""
