"""The made-up databases of the SQL rows: tables in a short notation, and the rows they hold.

A domain is a name line `# name` and one line a table: `plural/singular: column; column; ...`. A column `member_id ref
members of` is a foreign key; the last words join the two in a sentence ("loans of members"). The first column after
the key is what a row is called by. Every table has a key `id` that is not written. An indented line goes on with the
line before it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

from datagen.common.domain_columns import Column, Value, column_values, parse_column


@dataclass(frozen=True)
class Reference:
    """A foreign key: the column, the table it points to and the words between the two nouns."""

    column: Column
    parent: str
    words: str


@dataclass(frozen=True)
class Table:
    """A table of one domain; `columns` are those without keys."""

    plural: str
    singular: str
    columns: tuple[Column, ...]
    references: tuple[Reference, ...]

    @property
    def nouns(self) -> str:
        """What its rows are called."""
        return self.plural.replace("_", " ")


@dataclass(frozen=True)
class Domain:
    """A named set of tables."""

    name: str
    tables: dict[str, Table]


def parse_table(line: str) -> Table:
    """Read one table line of the notation."""
    names, _, body = line.partition(": ")
    plural, singular = names.split("/")
    columns: list[Column] = []
    references: list[Reference] = []
    for part in body.split("; "):
        name, kind, *rest = part.split(None, 3)
        if kind == "ref":
            key = Column(name.rstrip("?"), "key", name.rstrip("?"), nullable=name.endswith("?"))
            references.append(Reference(key, rest[0], rest[1]))
        else:
            columns.append(parse_column(part))
    return Table(plural, singular, tuple(columns), tuple(references))


def parse_domains(text: str) -> list[Domain]:
    """Read a text of domains; a table's name may stand in one of them only."""
    domains: list[Domain] = []
    text = text.replace("\n  ", " ")
    for block in text.strip().split("# ")[1:]:
        name, *lines = block.strip().splitlines()
        domains.append(Domain(name, {table.plural: table for table in map(parse_table, lines)}))
    names = [table for domain in domains for table in domain.tables]
    if len(names) != len(set(names)):
        raise ValueError("a table name stands in two domains")
    return domains


@cache
def _data(name: str, tables: tuple[Table, ...]) -> dict[str, list[dict[str, Value]]]:
    rng = random.Random(f"data of {name}")
    data: dict[str, list[dict[str, Value]]] = {}
    for table in tables:
        limits = [len(column.options) for column in table.columns if column.kind == "pick"]
        count = min(limits) if limits else 44 if table.references else 18
        made: dict[str, list[Value]] = {"id": list(range(1, count + 1))}
        for column in table.columns:
            made[column.name] = column_values(column, count, rng)
        for reference in table.references:
            keys = [row["id"] for row in data[reference.parent]]
            # A few parents stay without children, so that outer joins and NOT EXISTS have something to find.
            linked = rng.sample(keys, max(2, len(keys) * 3 // 4))
            made[reference.column.name] = [
                None if reference.column.nullable and rng.random() < 0.15 else rng.choice(linked) for _ in range(count)
            ]
        data[table.plural] = [{name: values[i] for name, values in made.items()} for i in range(count)]
    return data


def domain_data(domain: Domain) -> dict[str, list[dict[str, Value]]]:
    """The rows of every table of the domain, the same on every run."""
    return _data(domain.name, tuple(domain.tables.values()))
