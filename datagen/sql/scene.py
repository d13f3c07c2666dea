"""One question's view of a database: the tables it touches and the CREATE TABLE text that shows them.

Everything that the question does not determine is always written the same way: whole table names instead of aliases, the
domain's one style, and a context of the touched tables with all their columns, in the domain's order. A prompt that is
short and the same for all questions about a table leaves a small model more of its training for the questions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from datagen.common.domain_columns import NAMES, Column, Value
from datagen.common.filters import Filter, make_filter, noun_phrase
from datagen.common.wording import LIST_LEADS, ask, say, series, several
from datagen.sql.domains import Domain, Reference, Table, domain_data

TYPES = {"int": "INTEGER", "real": "REAL", "date": "DATE", "bool": "BOOLEAN"}


class SkipFormError(Exception):
    """The form does not fit this domain or draw."""


class Scene:
    """Names, filters and columns for one question over one domain."""

    def __init__(self, domain: Domain, rng: random.Random) -> None:
        """Start a question that touches no table yet."""
        self.domain = domain
        self.data = domain_data(domain)
        self.rng = rng
        self.used: set[str] = set()

    def tab(self, table: Table) -> str:
        """The table's name, which is then shown in the context."""
        self.used.add(table.plural)
        return table.name

    def any_table(self) -> Table:
        """A random table."""
        return self.rng.choice(list(self.domain.tables.values()))

    def link(self) -> tuple[Table, Reference, Table]:
        """A random (child, foreign key, parent)."""
        links = [
            (child, reference, self.domain.tables[reference.parent])
            for child in self.domain.tables.values()
            for reference in child.references
        ]
        if not links:
            raise SkipFormError
        return self.rng.choice(links)

    def some(self, table: Table, wanted: Callable[[Column], bool]) -> Column:
        """A random column that is as wanted."""
        columns = [column for column in table.columns if wanted(column)]
        if not columns:
            raise SkipFormError
        return self.rng.choice(columns)

    def values(self, table: Table, column: Column) -> list[Value]:
        """All values of a column."""
        return [row[column.name] for row in self.data[table.plural]]

    def filters(self, table: Table, count: int, but: Sequence[Column] = ()) -> list[Filter]:
        """`count` filters on different columns, those that are said ahead of the noun first."""
        columns = [column for column in table.columns if column not in but]
        self.rng.shuffle(columns)
        made = [make_filter(column, self.values(table, column), self.rng) for column in columns]
        found = [one for one in made if one is not None][:count]
        if len(found) < count:
            raise SkipFormError
        return sorted(found, key=lambda f: not f.before)

    def where(self, filters: Sequence[Filter], table: str = "", joiner: str = "AND") -> str:
        """The filters as one SQL condition, the columns with their table's name where it is given."""
        prefix = f"{table}." if table else ""
        return f" {joiner} ".join(condition(f, prefix + f.column.name) for f in filters)

    def subject(self, table: Table, low: int = 0, high: int = 2, but: Sequence[Column] = ()) -> tuple[str, str]:
        """A noun phrase for rows of the table and the WHERE clause (or nothing) that picks them."""
        filters = self.filters(table, self.rng.randint(low, high), but)
        joiner = "or" if len(filters) > 1 and self.rng.random() < 0.2 else "and"
        phrase = noun_phrase(table.nouns, filters, joiner)
        return phrase, f" WHERE {self.where(filters, '', joiner.upper())}" if filters else ""

    def projection(self, table: Table, qualified: bool = False, plural: bool = True) -> tuple[str, str]:
        """One to three columns, in words and in SQL; a row without a name may be called by its id."""
        first, *others = [column for column in table.columns if column.kind != "bool"]
        columns = self.rng.sample(others, min(len(others), self.rng.choice([0, 1, 1, 2])))
        names = [(first.label, first.name), *((column.label, column.name) for column in columns)]
        if first.kind not in NAMES and self.rng.random() < 0.3:
            names[0] = ("id", table.key)
        words = series([several(label) if plural else label for label, _ in names])
        return words, ", ".join(f"{table.name}.{name}" if qualified else name for _, name in names)

    def named_table(self) -> Table:
        """A random table whose rows have a name."""
        tables = [table for table in self.domain.tables.values() if table.columns[0].kind in NAMES]
        if not tables:
            raise SkipFormError
        return self.rng.choice(tables)

    def info(self, *templates: str, **slots: str) -> str:
        """One of the templates as a sentence."""
        return say(self.rng, templates, **slots)

    def ask(self, *things: str, leads: Sequence[str] = LIST_LEADS, **slots: str) -> str:
        """One of the noun phrases inside a random request."""
        return ask(self.rng, leads, self.rng.choice(things).format(**slots))

    def context(self) -> str:
        """CREATE TABLE statements of the touched tables."""
        return "; ".join(
            create(table, self.domain) for table in self.domain.tables.values() if table.plural in self.used
        )


def create(table: Table, domain: Domain) -> str:
    """The table's CREATE TABLE statement, with types and keys where the domain's style has them."""
    typed, keyed = bool(table.styles & {"typed", "keys"}), "keys" in table.styles
    parts = [f"{table.key}{' INTEGER' if typed else ''}{' PRIMARY KEY' if keyed else ''}"]
    for reference in table.references:
        parent = domain.tables[reference.parent]
        target = f" REFERENCES {parent.name}({parent.key})" if keyed else ""
        parts.append(f"{reference.column.name}{' INTEGER' if typed else ''}{target}")
    parts += [f"{c.name} {TYPES.get(c.kind, 'TEXT')}" if typed else c.name for c in table.columns]
    return f"CREATE TABLE {table.name} ({', '.join(parts)})"


def condition(f: Filter, name: str) -> str:
    """The filter as an SQL condition on the column so called."""
    values = [f"'{value}'" if isinstance(value, str) else str(value) for value in f.values]
    text = "".join(map(str, f.values))
    if f.op == "YEAR":
        return f"strftime('%Y', {name}) = '{text}'"
    tails = {
        "BETWEEN": " AND ".join(values),
        "IN": f"({', '.join(values)})",
        "STARTS": f"'{text}%'",
        "ENDS": f"'%{text}'",
        "CONTAINS": f"'%{text}%'",
    }
    sign = {"STARTS": "LIKE", "ENDS": "LIKE", "CONTAINS": "LIKE"}.get(f.op, f.op)
    return f"{name} {sign} {tails.get(f.op, ''.join(values))}".rstrip()
