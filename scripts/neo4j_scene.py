"""One question's view of a graph: variables, the properties it touches and the schema text they need."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from domain_columns import Column, Value
from filters import Filter, make_filter
from neo4j_domains import TYPES, GraphDomain, Label, Relationship, domain_graph, literal
from wording import LIST_LEADS, ask, say, series, several

MAX_EXTRA = 2
RESERVED = {"case"}
SIGNS = {"STARTS": "STARTS WITH", "ENDS": "ENDS WITH", "CONTAINS": "CONTAINS", "IN": "IN"}


class SkipFormError(Exception):
    """The form does not fit this domain or draw."""


class GraphScene:
    """Variables, filters and properties for one question over one graph."""

    def __init__(self, domain: GraphDomain, rng: random.Random) -> None:
        """Draw the habits of this question's author."""
        self.domain = domain
        self.graph = domain_graph(domain)
        self.rng = rng
        self.long_variables = rng.random() < 0.25
        self.aliases = rng.random() < 0.4
        self.used: dict[str, set[str]] = {}
        self.links: dict[str, set[str]] = {}

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
        names = [label.singular.replace(" ", "") if self.long_variables else label.name[0].lower() for label in labels]
        names = [name[0] if name in RESERVED else name for name in names]
        return [
            name if names.count(name) == 1 else f"{name}{names[: i + 1].count(name)}" for i, name in enumerate(names)
        ]

    def node(self, label: Label, variable: str = "", named: str = "") -> str:
        """`(m:Movie {title: 'X'})`."""
        self.used.setdefault(label.name, set())
        if not named:
            return f"({variable}:{label.name})"
        self.used[label.name].add(label.columns[0].name)
        return f"({variable}:{label.name} {{{label.columns[0].name}: '{named}'}})"

    def prop(self, label: Label, variable: str, column: Column | None = None) -> str:
        """`m.title`; without a column the property a node is called by."""
        column = column or label.columns[0]
        self.used.setdefault(label.name, set()).add(column.name)
        return f"{variable}.{column.name}"

    def link_prop(self, link: Relationship, variable: str, column: Column) -> str:
        """`r.role`."""
        self.links.setdefault(link.type, set()).add(column.name)
        return f"{variable}.{column.name}"

    def path(self, start: str, link: Relationship, end: str, variable: str = "", turned: bool | None = None) -> str:
        """`start-[:TYPE]->end`, at will written from its end."""
        self.links.setdefault(link.type, set())
        turned = self.rng.random() < 0.3 if turned is None else turned
        arrow = f"[{variable}:{link.type}]"
        return f"{end}<-{arrow}-{start}" if turned else f"{start}-{arrow}->{end}"

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
        """`count` filters on different properties."""
        columns = [column for column in label.columns if column not in but]
        self.rng.shuffle(columns)
        made = [make_filter(column, self.values(label, column), self.rng) for column in columns]
        found = [one for one in made if one is not None][:count]
        if len(found) < count:
            raise SkipFormError
        return found

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

    def returned(self, expression: str, words: str) -> str:
        """The expression with an alias where the author writes them."""
        alias = words.replace("-", " ").replace(" ", "_")
        return f"{expression} AS {alias}" if self.aliases and alias != expression else expression

    def projection(self, label: Label, variable: str, plural: bool = True) -> tuple[str, str]:
        """One to three properties, in words and as RETURN items."""
        first, *others = [column for column in label.columns if column.kind != "bool"]
        count = self.rng.choice([1, 1, 2, 2, 3])
        columns = [first, *self.rng.sample(others, min(len(others), count - 1))]
        words = series([several(column.label) if plural else column.label for column in columns])
        return words, ", ".join(self.returned(self.prop(label, variable, column), column.name) for column in columns)

    def say(self, *templates: str, **slots: str) -> str:
        """One of the templates as a sentence."""
        return say(self.rng, templates, **slots)

    def ask(self, *things: str, leads: Sequence[str] = LIST_LEADS, **slots: str) -> str:
        """One of the noun phrases inside a random request."""
        return ask(self.rng, leads, self.rng.choice(things).format(**slots))

    def _properties(self, columns: Sequence[Column], used: set[str]) -> str:
        spare = [column.name for column in columns if column.name not in used]
        shown = used | set(self.rng.sample(spare, min(len(spare), self.rng.randint(0, MAX_EXTRA))))
        if columns and not shown:
            shown = {columns[0].name}
        pairs = [f"{column.name}: {TYPES.get(column.kind, 'STRING')}" for column in columns if column.name in shown]
        return f" {{{', '.join(pairs)}}}" if pairs else ""

    def schema(self) -> str:
        """The labels and relationships used, mostly with one relationship more, in one of three layouts."""
        links = [link for link in self.domain.relationships if link.type in self.links]
        spare = [link for link in self.domain.relationships if link not in links]
        if spare and (not links or self.rng.random() < 0.6):
            links.append(self.rng.choice(spare))
        shown = {name for link in links for name in (link.start, link.end)} | set(self.used)
        nodes = [(label.name, self._properties(label.columns, self.used.get(label.name, set())))
                 for label in self.domain.labels if label.name in shown]  # fmt: skip
        parts = [self._properties(link.columns, self.links.get(link.type, set())) for link in links]
        arrows = [
            f"(:{link.start})-[:{link.type}{properties}]->(:{link.end})"
            for link, properties in zip(links, parts, strict=True)
        ]
        layout = self.rng.choice(["plain", "plain", "headed", "round"])
        if layout == "round":
            return "\n".join([*(f"(:{name}{properties})" for name, properties in nodes), *arrows])
        lines = [name + properties for name, properties in nodes]
        if layout == "headed":
            return "\n".join(["Node properties:", *lines, "The relationships:", *arrows])
        return "\n".join([*lines, *arrows])
