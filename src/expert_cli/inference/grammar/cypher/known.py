"""What is known at a place in a Cypher query: variables, what they are, and the pattern that is being read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from expert_cli.inference.grammar.cypher import graph_schema
from expert_cli.inference.grammar.cypher.graph_schema import Direction

Kind = Literal["node", "relationship", "path", "list", "computed", "unknown", "open", "signed"]


class Value(NamedTuple):
    """What an expression or a variable is. names: labels or types, None for any; stated: they were, in a pattern."""

    kind: Kind
    names: graph_schema.Names = None
    stated: bool = False
    of: Any = None


NOTHING: frozenset[str] = frozenset()
NODE, RELATIONSHIP, PATH = Value("node"), Value("relationship"), Value("path")
COMPUTED, UNKNOWN, OPEN = Value("computed"), Value("unknown"), Value("open")
SIGNED = Value("signed")
"""Not a value yet: a number follows."""


class Part(NamedTuple):
    """A node or relationship of a pattern, as far as it is read."""

    name: str = ""
    stated: frozenset[str] = NOTHING
    negated: bool = False
    joined: Literal["", "or", "and"] = ""


class Link(NamedTuple):
    """A relationship of a pattern."""

    direction: Direction = "-"
    part: Part = Part()
    repeated: bool = False


class Chain(NamedTuple):
    """A pattern: the labels of its last whole node, the link from there, and the part that is being read.

    closed: it is only tested whether there is one, so that it has no new variables.
    """

    left: graph_schema.Names = None
    left_name: str = ""
    link: Link | None = None
    on_link: bool = False
    part: Part = Part()
    closed: bool = False


class Known(NamedTuple):
    """What is known at a place in a query.

    scope: the variables. value: the last operand; variable: its name where it is nothing else. saved: what was put aside in
    brackets, the last one first. keys: keys of maps so far.
    """

    scope: Mapping[str, Value] = {}
    value: Value = UNKNOWN
    variable: str = ""
    saved: Any = None
    chain: Chain = Chain()
    keys: frozenset[str] = NOTHING

    def bind(self, name: str, value: Value) -> Known:
        """Let a variable be known."""
        return self._replace(scope={**self.scope, name: value})


_SAME = frozenset(["coalesce", "max", "min", "reverse", "tail"])
_LISTS = {
    "collect": None,
    "keys": COMPUTED,
    "labels": COMPUTED,
    "nodes": NODE,
    "range": COMPUTED,
    "relationships": RELATIONSHIP,
    "rels": RELATIONSHIP,
    "split": COMPUTED,
}


def element_of(value: Value) -> Value:
    """Return what an item of a list is."""
    if value.kind == "list":
        return value.of if isinstance(value.of, Value) else UNKNOWN
    return value if value.kind in ("open", "unknown") else COMPUTED


def returned(function: str, last: Value) -> Value:
    """Return what a function gives. last: its last argument."""
    if function in _LISTS:
        return Value("list", of=_LISTS[function] or last)
    if function in ("head", "last"):
        return element_of(last)
    if function in ("startnode", "endnode"):
        return NODE
    if function in _SAME:
        return last
    return UNKNOWN if function == "properties" else COMPUTED
