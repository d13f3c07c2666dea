"""The made-up databases of the SQL rows: tables in a short notation, and the rows they hold.

A domain is a name line `# name` and one line a table: `plural/singular: column; column; ...`. A column `member_id ref
members of` is a foreign key; the last words join the two in a sentence ("loans of members"). The first column after
the key is what a row is called by. Every table has a key `id` that is not written. An indented line goes on with the
line before it.

Words of STYLES after the name (`# name: camel own`) say how the domain is written in SQL; `plural/singular/table` gives
a table another name there than rows have in a sentence.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from functools import cache

from datagen.common.domain_columns import Column, Value, column_values, parse_column

STYLES = {
    "singular": "tables are called by their singular",
    "own": "a key has its table's name: book_id",
    "camel": "BookLoans.dueDate",
    "pascal": "BookLoans.DueDate",
    "typed": "columns have types",
    "keys": "columns have types, and keys are declared",
}


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
    name: str
    key: str
    styles: frozenset[str]

    @property
    def nouns(self) -> str:
        """What its rows are called."""
        return self.plural.replace("_", " ")


@dataclass(frozen=True)
class Domain:
    """A named set of tables."""

    name: str
    tables: dict[str, Table]


def _spelled(name: str, styles: frozenset[str], table: bool = False) -> str:
    """A snake_case name as the styles write it; those of tables have a capital in both camel and Pascal case."""
    if not styles & {"camel", "pascal"}:
        return name
    name = re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name)
    return name[0].upper() + name[1:] if table or "pascal" in styles else name


def parse_table(line: str, styles: frozenset[str] = frozenset()) -> Table:
    """Read one table line of the notation."""
    names, _, body = line.partition(": ")
    plural, singular, *table = names.split("/")
    columns: list[Column] = []
    references: list[Reference] = []
    for part in body.split("; "):
        name, kind, *rest = part.split(None, 3)
        if kind == "ref":
            spelled = _spelled(name.rstrip("?"), styles)
            refers = Column(spelled, "key", name.rstrip("?"), nullable=name.endswith("?"))
            references.append(Reference(refers, rest[0], rest[1]))
        else:
            column = parse_column(part)
            columns.append(replace(column, name=_spelled(column.name, styles)))
    name = table[0] if table else singular if "singular" in styles else plural
    own = _spelled(f"{table[0] if table else singular}_id", styles)
    key = own if "own" in styles else _spelled("id", styles)
    return Table(plural, singular, tuple(columns), tuple(references), _spelled(name, styles, table=True), key, styles)


def parse_domains(text: str) -> list[Domain]:
    """Read a text of domains; a table's name may stand in one of them only."""
    domains: list[Domain] = []
    text = text.replace("\n  ", " ")
    for block in text.strip().split("# ")[1:]:
        head, *lines = block.strip().splitlines()
        name, _, words = head.partition(": ")
        styles = frozenset(words.split())
        if unknown := styles - STYLES.keys():
            raise ValueError(f"no style of a domain: {', '.join(sorted(unknown))}")
        tables = [parse_table(line, styles) for line in lines]
        domains.append(Domain(name, {table.plural: table for table in tables}))
    names = [table.name.lower() for domain in domains for table in domain.tables.values()]
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
        made: dict[str, list[Value]] = {table.key: list(range(1, count + 1))}
        for column in table.columns:
            made[column.name] = column_values(column, count, rng)
        for reference in table.references:
            keys = list(range(1, len(data[reference.parent]) + 1))
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
