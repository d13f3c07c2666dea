"""The made-up graphs of the Cypher rows: labels and relationships in a short notation, and the graphs themselves.

A domain is a name line `# name`, one line a label (`Label/plural: property; property; ...`) and one line a relationship
(`A TYPE B: words | words back: property; ...`). `words` stand between the nouns from A to B ("people *who directed*
movies"), `words back` from B to A ("movies *directed by* people"). The first property is what a node is called by. An
indented line goes on with the line before it.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import cache

from datagen.common.domain_columns import Column, Value, column_values, parse_column

NODES = 16
RELATIONSHIPS = 34
TYPES = {"int": "INTEGER", "real": "FLOAT", "date": "DATE", "bool": "BOOLEAN"}


@dataclass(frozen=True)
class Label:
    """A node label with its properties."""

    name: str
    plural: str
    columns: tuple[Column, ...]

    @property
    def singular(self) -> str:
        """The label as a noun."""
        return re.sub(r"(?<!^)(?=[A-Z])", " ", self.name).lower()


@dataclass(frozen=True)
class Relationship:
    """A relationship type between two labels."""

    start: str
    type: str
    end: str
    words: str
    back: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class GraphDomain:
    """A named schema."""

    name: str
    labels: tuple[Label, ...]
    relationships: tuple[Relationship, ...]

    def label(self, name: str) -> Label:
        """The label of that name."""
        return next(label for label in self.labels if label.name == name)


@dataclass(frozen=True)
class Graph:
    """Nodes by label and, by relationship type, (start place, end place, properties)."""

    nodes: dict[str, list[dict[str, Value]]]
    links: dict[str, list[tuple[int, int, dict[str, Value]]]]


def parse_graphs(text: str) -> list[GraphDomain]:
    """Read a text of domains; the same (A)-[TYPE]->(B) may stand in one of them only."""
    domains = []
    for block in text.replace("\n  ", " ").strip().split("# ")[1:]:
        name, *lines = block.strip().splitlines()
        labels, relationships = [], []
        for line in lines:
            head, _, body = line.partition(": ")
            if "/" in head:
                label, plural = head.split("/")
                labels.append(Label(label, plural, tuple(map(parse_column, body.split("; ")))))
                continue
            start, kind, end = head.split()
            words, _, properties = body.partition(": ")
            there, back = words.split(" | ")
            columns = tuple(map(parse_column, properties.split("; "))) if properties else ()
            relationships.append(Relationship(start, kind, end, there, back, columns))
        domains.append(GraphDomain(name, tuple(labels), tuple(relationships)))
    types = [(r.start, r.type, r.end) for domain in domains for r in domain.relationships]
    if len(types) != len(set(types)):
        raise ValueError("a relationship stands in two domains")
    return domains


def _rows(columns: tuple[Column, ...], count: int, rng: random.Random) -> list[dict[str, Value]]:
    made = {column.name: column_values(column, count, rng) for column in columns}
    return [{name: values[i] for name, values in made.items() if values[i] is not None} for i in range(count)]


@cache
def domain_graph(domain: GraphDomain) -> Graph:
    """The graph of the domain, the same on every run; a few nodes of each label stay without relationships."""
    rng = random.Random(f"graph of {domain.name}")
    nodes: dict[str, list[dict[str, Value]]] = {}
    for label in domain.labels:
        limits = [len(column.options) for column in label.columns if column.kind == "pick"]
        nodes[label.name] = _rows(label.columns, min([NODES, *limits]), rng)
    links: dict[str, list[tuple[int, int, dict[str, Value]]]] = {}
    for relationship in domain.relationships:
        starts = rng.sample(range(len(nodes[relationship.start])), len(nodes[relationship.start]) * 4 // 5)
        ends = rng.sample(range(len(nodes[relationship.end])), len(nodes[relationship.end]) * 4 // 5)
        pairs = [(a, b) for a in starts for b in ends if relationship.start != relationship.end or a != b]
        # Few links between nodes of one label: graphqlite walks every trail, and a dense graph has too many.
        own = len(nodes[relationship.start]) if relationship.start == relationship.end else RELATIONSHIPS
        chosen = rng.sample(pairs, min(own, len(pairs) * 2 // 3))
        properties = _rows(relationship.columns, len(chosen), rng)
        links[relationship.type] = [(a, b, made) for (a, b), made in zip(chosen, properties, strict=True)]
    return Graph(nodes, links)


def literal(column: Column, value: Value) -> str:
    """A value as Cypher writes it."""
    if column.kind == "bool":
        return "true" if value else "false"
    if column.kind == "date":
        return f"date('{value}')"
    return f"'{value}'" if isinstance(value, str) else str(value)


def _map(columns: tuple[Column, ...], made: dict[str, Value]) -> str:
    pairs = [f"{column.name}: {literal(column, made[column.name])}" for column in columns if column.name in made]
    return f" {{{', '.join(pairs)}}}" if pairs else ""


def graph_script(domain: GraphDomain, backwards: bool = False) -> str:
    """One CREATE statement for the whole graph, at will with everything in the opposite order."""
    graph = domain_graph(domain)
    nodes = [
        f"({label.name.lower()}{i}:{label.name}{_map(label.columns, made)})"
        for label in domain.labels
        for i, made in enumerate(graph.nodes[label.name])
    ]
    links = [
        f"({r.start.lower()}{a})-[:{r.type}{_map(r.columns, made)}]->({r.end.lower()}{b})"
        for r in domain.relationships
        for a, b, made in graph.links[r.type]
    ]
    step = -1 if backwards else 1
    return "CREATE " + ", ".join(nodes[::step] + links[::step])
