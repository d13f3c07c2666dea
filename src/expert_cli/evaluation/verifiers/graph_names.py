"""The labels, types and properties that a Cypher query names, and which of them its graph does not have.

A graph has no schema: such a query runs, and finds nothing. What counts is what Neo4j warns of, too: a label, type or property
that the graph has nowhere, on whatever node; one that only other nodes have is no unknown name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from expert_cli.evaluation.verifiers.query_text import Token, tokens

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
_COMPONENTS = frozenset(
    (
        *("year", "quarter", "month", "week", "day", "weekYear", "weekDay", "dayOfWeek", "dayOfQuarter", "ordinalDay"),
        *("hour", "minute", "second", "millisecond", "microsecond", "nanosecond", "timezone", "offset"),
        *(
            "years",
            "quarters",
            "months",
            "weeks",
            "days",
            "hours",
            "minutes",
            "seconds",
            "milliseconds",
            "microseconds",
        ),
        *(
            "nanoseconds",
            "epochSeconds",
            "epochMillis",
            "x",
            "y",
            "z",
            "latitude",
            "longitude",
            "height",
            "crs",
            "srid",
        ),
    )
)
"""What dates, times, durations and points have, which are no nodes."""


class GraphNames(NamedTuple):
    """What a graph has."""

    labels: frozenset[str]
    types: frozenset[str]
    node_keys: frozenset[str]
    relationship_keys: frozenset[str]


def unknown_name(statement: str, graph: GraphNames) -> str:
    """Return the first name of a statement that the graph does not have, and of what sort it is; "" for none."""
    code = list(tokens(statement, "cypher"))
    opening = _openings(code)
    keys = graph.node_keys | graph.relationship_keys
    made = {_plain(code[at]) for at in _map_keys(code, opening) if not _in_pattern(code, opening, at)}
    known: dict[Sort, frozenset[str]] = {"label": graph.labels, "type": graph.types, "property": keys}
    patterns = {
        _plain(code[at + 1]) for at in range(len(code) - 1) if _opens_pattern(code, at) and _is_name(code[at + 1])
    }
    for sort, at in _named(code, opening):
        name = _plain(code[at])
        is_value = sort == "property" and code[at - 1].text == "." and _plain(code[at - 2]) not in patterns
        if name not in known[sort] and not (is_value and name in made | _COMPONENTS):
            return f"the graph has no {sort} {name}"
    return ""


def _named(code: Sequence[Token], opening: Sequence[int]) -> Iterator[tuple[Sort, int]]:
    """Yield where the labels, types and properties stand, in order; behind a bracket or a call no property is looked for."""
    keys = set(_map_keys(code, opening))
    sort: Sort | None = None
    for at, token in enumerate(code):
        before = code[at - 1].text if at else ""
        if token.text == ":" and at - 1 not in keys:
            sort = "type" if "[" in {before, code[at - 2].text if at > 1 else ""} else sort or "label"
        elif not _is_name(token):
            sort = sort if token.text in ("|", "&", "!") else None
        elif sort and before in (":", "|", "&", "!"):
            yield sort, at
        elif at in keys and _in_pattern(code, opening, at):
            yield "property", at
        elif (
            before == "."
            and at > 1
            and _is_name(code[at - 2])
            and _text(code, at - 3) != "."
            and _text(code, at + 1) != "("
        ):
            yield "property", at
            sort = None
        else:
            sort = None


def _map_keys(code: Sequence[Token], opening: Sequence[int]) -> Iterator[int]:
    """Yield where the keys of maps stand."""
    for at, token in enumerate(code):
        first = _text(code, at - 1) == "{" or (_text(code, at - 1) == "," and _text(code, opening[at]) == "{")
        if first and _is_name(token) and _text(code, at + 1) == ":":
            yield at


def _in_pattern(code: Sequence[Token], opening: Sequence[int], key: int) -> bool:
    """Whether the map of a key says which nodes or relationships a pattern means."""
    brace = opening[key]
    return _opens_pattern(code, opening[brace]) and _text(code, brace - 1) not in (",", ":", "|", "=")


def _opens_pattern(code: Sequence[Token], at: int) -> bool:
    """Whether a bracket is that of a node or relationship, as far as what stands before it tells."""
    before = code[at - 1] if at > 0 else None
    if _text(code, at) == "[":
        return before is not None and before.text == "-"
    is_call = before is not None and _is_name(before) and before.text.upper() not in _BEFORE_BRACKET
    return _text(code, at) == "(" and not is_call


def _openings(code: Sequence[Token]) -> list[int]:
    """Return for every token where the bracket opens in which it stands; -1 for none."""
    found, open_ = list[int](), [-1]
    for at, token in enumerate(code):
        if not token.quoted and token.text in ")]}" and len(open_) > 1:
            open_.pop()
        found.append(open_[-1])
        if not token.quoted and token.text in "([{":
            open_.append(at)
    return found


def _text(code: Sequence[Token], at: int) -> str:
    return code[at].text if 0 <= at < len(code) else ""


def _is_name(token: Token) -> bool:
    return token.text.startswith("`") or (not token.quoted and (token.text[0].isalpha() or token.text[0] == "_"))


def _plain(token: Token) -> str:
    text = token.text
    return text[1:-1].replace("``", "`") if text.startswith("`") else text
