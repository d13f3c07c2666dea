"""One question's view of a graph: variables, the labels and relationships it touches and the schema text that shows them.

Everything that the question does not determine is always written the same way: a variable is its label's first letter,
a pattern starts from the node that is asked about, and the schema shows the touched labels and relationships with all
their properties and no types, in the domain's order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from datagen.common.domain_columns import Column, Value
from datagen.common.filters import Filter, make_filter
from datagen.common.wording import LIST_LEADS, ask, say, series, several
from datagen.neo4j.domains import GraphDomain, Label, Relationship, domain_graph, literal

SIGNS = {"STARTS": "STARTS WITH", "ENDS": "ENDS WITH", "CONTAINS": "CONTAINS", "IN": "IN"}


class SkipFormError(Exception):
    """The form does not fit this domain or draw."""


class GraphScene:
    """Variables, filters and properties for one question over one graph."""

    def __init__(self, domain: GraphDomain, rng: random.Random) -> None:
        """Start a question that touches nothing yet."""
        self.domain = domain
        self.graph = domain_graph(domain)
        self.rng = rng
        self.used: set[str] = set()

    def any_label(self) -> Label:
        """A random label."""
        return self.rng.choice(self.domain.labels)

    def link(self, wanted: Callable[[Relationship], bool] = lambda _: True) -> Relationship:
        """A random relationship type that is as wanted."""
        found = [one for one in self.domain.relationships if wanted(one)]
        if not found:
            raise SkipFormError
        return self.rng.choice(found)

    def some(self, columns: Sequence[Column], wanted: Callable[[Column], bool]) -> Column:
        """A random property that is as wanted."""
        found = [column for column in columns if wanted(column)]
        if not found:
            raise SkipFormError
        return self.rng.choice(found)

    def var(self, *labels: Label) -> list[str]:
        """One variable for each label; the same letter gets numbers."""
        names = [label.name[0].lower() for label in labels]
        return [
            name if names.count(name) == 1 else f"{name}{names[: i + 1].count(name)}" for i, name in enumerate(names)
        ]

    def node(self, label: Label, variable: str = "", named: str = "") -> str:
        """`(m:Movie {title: 'X'})`."""
        self.used.add(label.name)
        return (
            f"({variable}:{label.name} {{{label.columns[0].name}: '{named}'}})"
            if named
            else f"({variable}:{label.name})"
        )

    def prop(self, label: Label, variable: str, column: Column | None = None) -> str:
        """`m.title`; without a column the property a node is called by."""
        return f"{variable}.{(column or label.columns[0]).name}"

    def arrow(self, link: Relationship, variable: str = "", steps: str = "") -> str:
        """`[r:TYPE]`, the middle of a pattern."""
        self.used |= {link.start, link.type, link.end}
        return f"[{variable}:{link.type}{steps}]"

    def ends(self, link: Relationship) -> tuple[Label, Label]:
        """The labels a relationship joins."""
        return self.domain.label(link.start), self.domain.label(link.end)

    def values(self, label: Label, column: Column) -> list[Value]:
        """All values of a property, None where it is missing."""
        return [node.get(column.name) for node in self.graph.nodes[label.name]]

    def name_of(self, label: Label) -> str:
        """The name of a random node."""
        return str(self.rng.choice(self.values(label, label.columns[0])))

    def filters(self, label: Label, count: int, but: Sequence[Column] = ()) -> list[Filter]:
        """`count` filters on different properties, those that are said ahead of the noun first."""
        columns = [column for column in label.columns if column not in but]
        self.rng.shuffle(columns)
        made = [make_filter(column, self.values(label, column), self.rng) for column in columns]
        found = [one for one in made if one is not None][:count]
        if len(found) < count:
            raise SkipFormError
        return sorted(found, key=lambda f: not f.before)

    def link_filter(self, link: Relationship) -> Filter:
        """A filter on a relationship's property."""
        column = self.some(link.columns, lambda c: not c.nullable)
        made = make_filter(column, [values[column.name] for _, _, values in self.graph.links[link.type]], self.rng)
        if made is None:
            raise SkipFormError
        return made

    def test(self, f: Filter, name: str) -> str:
        """The filter as a Cypher condition on `name`."""
        values = [literal(f.column, value) for value in f.values]
        if f.op == "BETWEEN":
            return f"{name} >= {values[0]} AND {name} <= {values[1]}"
        if f.op == "YEAR":
            year = int(str(f.values[0]))
            return f"{name} >= date('{year}-01-01') AND {name} <= date('{year}-12-31')"
        if f.op == "IN":
            return f"{name} IN [{', '.join(values)}]"
        return f"{name} {SIGNS.get(f.op, f.op)} {values[0] if values else ''}".rstrip()

    def where(self, label: Label, variable: str, filters: Sequence[Filter], joiner: str = "AND") -> str:
        """A WHERE clause with a blank before it, or nothing."""
        tests = [self.test(f, self.prop(label, variable, f.column)) for f in filters]
        if joiner == "OR":
            tests = [f"({test})" if " AND " in test else test for test in tests]
        return f" WHERE {f' {joiner} '.join(tests)}" if tests else ""

    def projection(self, label: Label, variable: str, plural: bool = True) -> tuple[str, str]:
        """One to three properties, in words and as RETURN items."""
        first, *others = [column for column in label.columns if column.kind != "bool"]
        columns = [first, *self.rng.sample(others, min(len(others), self.rng.choice([0, 1, 1, 2])))]
        words = series([several(column.label) if plural else column.label for column in columns])
        return words, ", ".join(self.prop(label, variable, column) for column in columns)

    def info(self, *templates: str, **slots: str) -> str:
        """One of the templates as a sentence."""
        return say(self.rng, templates, **slots)

    def ask(self, *things: str, leads: Sequence[str] = LIST_LEADS, **slots: str) -> str:
        """One of the noun phrases inside a random request."""
        return ask(self.rng, leads, self.rng.choice(things).format(**slots))

    def schema(self) -> str:
        """The touched labels, one a line, and below them the touched relationships."""
        nodes = [label.name + properties(label.columns) for label in self.domain.labels if label.name in self.used]
        arrows = [
            f"(:{link.start})-[:{link.type}{properties(link.columns)}]->(:{link.end})"
            for link in self.domain.relationships
            if link.type in self.used
        ]
        return "\n".join([*nodes, *arrows])


def properties(columns: Sequence[Column]) -> str:
    """` {name, born}`, nothing where there are none."""
    return f" {{{', '.join(column.name for column in columns)}}}" if columns else ""
