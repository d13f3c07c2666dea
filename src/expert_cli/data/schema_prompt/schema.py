"""The tables of a database: their columns with types, and what joins them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Column:
    """A column: its name and its type, both as declared."""

    name: str
    type: str


@dataclass(frozen=True)
class ForeignKey:
    """Columns of a table that refer to those of another one, by pairs in their order."""

    table: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """A table or view with its columns in their order. primary_key: names of columns."""

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()


@dataclass(frozen=True)
class Values:
    """Texts that stand in the columns of a database.

    by_words: where a text stands, (table, column, text), by its words as `words.joined` gives them. frequent: of each
    (table, column) the most frequent values as SQL literals, the first one most often.
    """

    by_words: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)
    frequent: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Database:
    """Tables in their order, and texts that stand in them."""

    tables: tuple[Table, ...]
    values: Values = field(default_factory=Values)

    @cached_property
    def joins(self) -> Mapping[str, frozenset[str]]:
        """Which tables a foreign key joins each table to."""
        names = {table.name.casefold(): table.name for table in self.tables}
        joins: dict[str, set[str]] = {table.name: set() for table in self.tables}
        for table in self.tables:
            for key in table.foreign_keys:
                other = names.get(key.table.casefold())
                if other and other != table.name:
                    joins[table.name].add(other)
                    joins[other].add(table.name)
        return {name: frozenset(others) for name, others in joins.items()}
