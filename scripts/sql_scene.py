"""One question's view of a database: identifier style, the columns it touches and the CREATE TABLE text they need."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from domain_columns import NAMES, Column, Value
from filters import Filter, make_filter, noun_phrase
from sql_domains import Domain, Reference, Table, domain_data
from wording import LIST_LEADS, ask, say, series, several

STYLES: tuple[tuple[Callable[[str], str], int], ...] = (
    (lambda name: name, 7),
    (lambda name: "".join(part.capitalize() for part in name.split("_")), 1),
    (lambda name: "_".join(part.capitalize() for part in name.split("_")), 1),
    (lambda name: name.split("_")[0] + "".join(part.capitalize() for part in name.split("_")[1:]), 1),
)
TYPES = (
    {"int": "INTEGER", "real": "REAL", "date": "TEXT", "text": "TEXT"},
    {"int": "INT", "real": "DECIMAL(10, 2)", "date": "DATE", "text": "VARCHAR(60)"},
    {"int": "INTEGER", "real": "FLOAT", "date": "DATE", "text": "VARCHAR"},
    {"int": "NUMBER", "real": "NUMBER", "date": "TEXT", "text": "TEXT"},
)
RESERVED = {"order", "case", "group", "table", "index"}
MAX_EXTRA_COLUMNS = 3


class SkipFormError(Exception):
    """The form does not fit this domain or draw."""


class Scene:
    """Names, filters and columns for one question over one domain."""

    def __init__(self, domain: Domain, rng: random.Random) -> None:
        """Draw the identifier style of this question."""
        self.domain = domain
        self.data = domain_data(domain)
        self.rng = rng
        self.style = rng.choices([style for style, _ in STYLES], [weight for _, weight in STYLES])[0]
        self.types = rng.choice(TYPES)
        self.long_keys = rng.random() < 0.4
        self.singular = rng.random() < 0.2
        self.alias_mode = rng.choice(["t", "letter", "full"])
        self.used: dict[str, dict[str, Column]] = {}

    def tab(self, table: Table) -> str:
        """The table's name as it is written in this question."""
        self.used.setdefault(table.plural, {})
        singular = table.singular.replace(" ", "_")
        return self.style(singular if self.singular and singular not in RESERVED else table.plural)

    def col(self, table: Table, column: Column) -> str:
        """The column's name as it is written in this question."""
        self.used.setdefault(table.plural, {})[column.name] = column
        return self.style(column.name)

    def key(self, table: Table) -> str:
        """The primary key's name as it is written in this question."""
        self.used.setdefault(table.plural, {})
        return self.style(f"{table.singular.replace(' ', '_')}_id" if self.long_keys else "id")

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
        """`count` filters on different columns."""
        columns = [column for column in table.columns if column not in but]
        self.rng.shuffle(columns)
        made = [make_filter(column, self.values(table, column), self.rng) for column in columns]
        found = [one for one in made if one is not None][:count]
        if len(found) < count:
            raise SkipFormError
        return found

    def where(self, table: Table, filters: Sequence[Filter], alias: str = "", joiner: str = "AND") -> str:
        """The filters as one SQL condition."""
        prefix = f"{alias}." if alias else ""
        return f" {joiner} ".join(self._condition(f, prefix + self.col(table, f.column)) for f in filters)

    def _condition(self, f: Filter, name: str) -> str:
        values = [f"'{value}'" if isinstance(value, str) else str(value) for value in f.values]
        if f.op == "YEAR" and self.rng.random() < 0.5:
            name = f"strftime('%Y', {name})"
        elif f.op == "YEAR":
            return f"{name} BETWEEN '{f.values[0]}-01-01' AND '{f.values[0]}-12-31'"
        tails = {
            "IS NULL": "",
            "IS NOT NULL": "",
            "BETWEEN": " AND ".join(values),
            "IN": f"({', '.join(values)})",
            "STARTS": f"'{''.join(map(str, f.values))}%'",
            "ENDS": f"'%{''.join(map(str, f.values))}'",
            "CONTAINS": f"'%{''.join(map(str, f.values))}%'",
        }
        sign = {"YEAR": "=", "STARTS": "LIKE", "ENDS": "LIKE", "CONTAINS": "LIKE"}.get(f.op, f.op)
        return f"{name} {sign} {tails.get(f.op, ''.join(values))}".rstrip()

    def subject(self, table: Table, low: int = 0, high: int = 2, but: Sequence[Column] = ()) -> tuple[str, str]:
        """A noun phrase for rows of the table and the WHERE clause (or nothing) that picks them."""
        filters = self.filters(table, self.rng.randint(low, high), but)
        joiner = "or" if len(filters) > 1 and self.rng.random() < 0.2 else "and"
        phrase = noun_phrase(table.nouns, filters, joiner)
        return phrase, f" WHERE {self.where(table, filters, '', joiner.upper())}" if filters else ""

    def projection(self, table: Table, alias: str = "", plural: bool = True) -> tuple[str, str]:
        """One to three columns, in words and in SQL."""
        count = self.rng.choice([1, 1, 2, 2, 3])
        first, *others = [column for column in table.columns if column.kind != "bool"]
        columns = [first, *self.rng.sample(others, min(len(others), count - 1))]
        if self.rng.random() < 0.2:
            columns = self.rng.sample([first, *others], min(len(others) + 1, count))
        prefix = f"{alias}." if alias else ""
        if first.kind not in NAMES and self.rng.random() < 0.3:
            labels = ["id", *(column.label for column in columns[1:])]
            names = [self.key(table), *(self.col(table, column) for column in columns[1:])]
            return series([several(label) if plural else label for label in labels]), prefix + f", {prefix}".join(names)
        words = series([several(column.label) if plural else column.label for column in columns])
        return words, ", ".join(prefix + self.col(table, column) for column in columns)

    def named_table(self) -> Table:
        """A random table whose rows have a name."""
        tables = [table for table in self.domain.tables.values() if table.columns[0].kind in NAMES]
        return self.rng.choice(tables)

    def name(self, table: Table) -> str:
        """The column a row is called by."""
        return self.col(table, table.columns[0])

    def aliases(self, *tables: Table) -> list[tuple[str, str]]:
        """For each table how it stands in FROM and what its columns are prefixed with."""
        names = [self.tab(table) for table in tables]
        if self.alias_mode == "full":
            return [(name, name) for name in names]
        letters = [name[0].lower() for name in names]
        if self.alias_mode == "t" or len(set(letters)) < len(letters):
            letters = [f"T{i}" for i in range(1, len(names) + 1)]
        return [(f"{name} AS {letter}", letter) for name, letter in zip(names, letters, strict=True)]

    def say(self, *templates: str, **slots: str) -> str:
        """One of the templates as a sentence."""
        return say(self.rng, templates, **slots)

    def ask(self, *things: str, leads: Sequence[str] = LIST_LEADS, **slots: str) -> str:
        """One of the noun phrases inside a random request."""
        return ask(self.rng, leads, self.rng.choice(things).format(**slots))

    def context(self) -> str:
        """CREATE TABLE statements: the tables and columns used, a few more, at times one more table."""
        if len(self.used) == 1 and len(self.domain.tables) > 1 and self.rng.random() < 0.25:
            self.tab(self.any_table())
        separator = "; " if self.rng.random() < 0.6 else ";\n"
        constraints = self.rng.choice([0, 0, 1, 2])
        return separator.join(self._create(self.domain.tables[name], constraints) for name in self.used)

    def _create(self, table: Table, constraints: int) -> str:
        used = self.used[table.plural]
        spare = [column.name for column in table.columns if column.name not in used]
        extra = set(self.rng.sample(spare, min(len(spare), self.rng.randint(0, MAX_EXTRA_COLUMNS))))
        key = f"{self.key(table)} {self.types['int']}" + (" PRIMARY KEY" if constraints else "")
        parts, ends = [key], []
        for reference in table.references:
            if reference.column.name in used or reference.parent in self.used:
                name = self.style(reference.column.name)
                parts.append(f"{name} {self.types['int']}")
                if constraints == 2 and reference.parent in self.used:
                    parent = self.domain.tables[reference.parent]
                    ends.append(f"FOREIGN KEY ({name}) REFERENCES {self.tab(parent)}({self.key(parent)})")
        for column in table.columns:
            if column.name in used or column.name in extra or (len(parts) == 1 and column is table.columns[0]):
                kind = {"int": "int", "bool": "int", "real": "real", "date": "date"}.get(column.kind, "text")
                parts.append(f"{self.style(column.name)} {self.types[kind]}")
        return f"CREATE TABLE {self.tab(table)} ({', '.join(parts + ends)})"
