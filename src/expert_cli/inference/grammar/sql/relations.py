"""What a FROM can bring: tables, and queries that WITH names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from expert_cli.inference.grammar.sql.table_schema import Table

_SHORT_ALIAS = re.compile(r"(?:[a-z]|t[a-z]?)[0-9]*\Z")
_MADE_BEFORE = ("avg_", "average_", "total_", "sum_", "max_", "min_", "num_", "number_of_", "count_")
_MADE_AFTER = ("_count", "_total", "_sum", "_avg")
_MADE = ("n", "cnt", "count", "total", "num")
_USUAL_ALIASES = ("sub", "subquery", "derived")


class Relation(NamedTuple):
    """What FROM can bring: columns in their order, in lower case; hidden: those that * leaves out."""

    columns: tuple[str, ...]
    names: frozenset[str]
    hidden: frozenset[str] = frozenset()

    @classmethod
    def of(cls, columns: Iterable[str], hidden: frozenset[str] = frozenset()) -> Relation:
        """Return what has these columns."""
        listed = tuple(columns)
        return cls(listed, frozenset(listed) | hidden, hidden - frozenset(listed))


@dataclass
class Source:
    """A relation in a FROM; bare: its columns that may stand without its name, which a USING or NATURAL takes from it;
    serves: whether it has something that was used before it.
    """

    qualifier: str
    relation: Relation
    bare: frozenset[str]
    serves: bool = True


class Output(NamedTuple):
    """A column of a result: name: "" where it has none that can be used; alias: it was given by AS; star: of which source.

    aggregate, window: whether it holds one.
    """

    name: str
    alias: bool = False
    star: str | None = None
    aggregate: bool = False
    window: bool = False


class Relations:
    """The tables that can stand after FROM, by name in lower case, and all their columns."""

    def __init__(self, by_name: Mapping[str, Relation], schemas: Mapping[str, frozenset[str]]) -> None:
        self.by_name = by_name
        self.schemas = schemas
        self.qualifiers = frozenset(name for name, relation in by_name.items() if relation.names)
        self.columns = frozenset(column for relation in by_name.values() for column in relation.columns)

    @classmethod
    def of(cls, tables: Mapping[str, Table], rowid: bool) -> Relations:
        """Return those of a schema; rowid: whether its tables have that column."""
        hidden = frozenset(("rowid",))
        by_name = {
            name: Relation.of(map(str.lower, table.columns), hidden if rowid and table.has_rowid else frozenset())
            for name, table in tables.items()
        }
        schemas: dict[str, frozenset[str]] = {}
        for name, table in tables.items():
            if table.schema:
                schemas[table.schema.lower()] = schemas.get(table.schema.lower(), frozenset()) | {name}
        return cls(by_name, schemas)

    def with_query(self, name: str, relation: Relation) -> Relations:
        """Return these and a query that WITH names, which hides a table of the same name."""
        return Relations({**self.by_name, name: relation}, self.schemas)

    def with_columns(self, wanted: set[str]) -> Iterator[Relation]:
        """Yield those that have all of some columns."""
        return (relation for relation in self.by_name.values() if wanted <= relation.names)

    def may_alias(self, text: str, whole: bool) -> bool:
        """Whether a text is, or begins, an alias that FROM can give later: letters of a name, one or two with a number."""
        if whole and text in self.by_name:
            return False
        if _SHORT_ALIAS.match(text) or any(text == name if whole else name.startswith(text) for name in _USUAL_ALIASES):
            return True
        letters = text.rstrip("0123456789")
        return (letters == text or len(letters) <= 2) and any(_abbreviates(letters, name) for name in self.by_name)


def _abbreviates(letters: str, name: str) -> bool:
    """Whether letters are some of a name's, in its order and from its first on, at most six."""
    if not 0 < len(letters) <= 6 or letters[0] != name[0]:
        return False
    rest = iter(name)
    return all(letter in rest for letter in letters)


def may_make(relations: Relations, text: str, whole: bool) -> bool:
    """Whether a text is, or begins, a name as queries give them to what they count and sum up: `paper_count`, `total_price`."""
    for begin in _MADE_BEFORE:
        if text.startswith(begin):
            rest = text[len(begin) :]
            names = (*relations.columns, *relations.by_name)
            return rest in names if whole else any(name.startswith(rest) for name in names)
    ends = (name + end for name in relations.by_name for end in _MADE_AFTER)
    if whole:
        return text in _MADE or any(text == name for name in ends)
    return any(name.startswith(text) for name in (*_MADE, *_MADE_BEFORE, *ends))
