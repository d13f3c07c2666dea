"""How the tables that a question is shown are written in its prompt.

compact, which takes the fewest tokens, a line a table after the heading; `inference/grammar/sql` reads it:

    Tables:
    head(head_id int key, name, born_state = 'California', age int = 56)
    management(department_id int key > department, head_id int key > head, temporary_acting = 'Yes' | 'No')

joins: names in small letters, which SQL does not tell from capitals, and joins and values as queries write them:

    Tables:
    head(head_id int, name, born_state, age int)
    management(department_id int, head_id int, temporary_acting)
    Joins:
    management.head_id = head.head_id
    Values:
    head.born_state = 'California'
    head.age = 56

create_table: the same as statements, values in comments:

    CREATE TABLE head (head_id INT, name TEXT, born_state TEXT /* 'California' */, age INT, PRIMARY KEY (head_id));
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from types import MappingProxyType

from expert_cli.data.schema_prompt.rank import Shown, named
from expert_cli.data.schema_prompt.schema import Column, ForeignKey, Table
from expert_cli.data.schema_prompt.sqlite_reader import quoted
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig

HEADING = "Tables:"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPES = (("int", "int"), ("char", ""), ("clob", ""), ("text", ""), ("string", ""), ("bool", "bool"), ("date", "date"))
_MORE_TYPES = (("time", "time"), ("blob", "blob"), ("real", "real"), ("floa", "real"), ("doub", "real"))


def compact(shown: Sequence[Shown], settings: SchemaPromptConfig) -> str:
    """Return tables as lines of names."""
    tables = _by_name(shown)
    lines = [
        _line(written(one.table.name), [_compact_column(own, one, tables, settings) for own in one.declared])
        for one in shown
    ]
    return "\n".join([HEADING, *lines])


def _compact_column(column: Column, shown: Shown, tables: Mapping[str, Table], settings: SchemaPromptConfig) -> str:
    words = [written(column.name), _type(column, settings)]
    if settings.keys:
        words += ["key"] if column.name in shown.table.primary_key else []
        words += _reference(column.name, shown.table, tables)
    values = shown.values.get(column.name, ())
    return " ".join(filter(None, words)) + (f" = {' | '.join(values)}" if values else "")


def joins(shown: Sequence[Shown], settings: SchemaPromptConfig) -> str:
    """Return tables as lines of names in small letters, and below them the conditions of joins and values."""
    tables = _by_name(shown)
    lines = [
        _line(
            _small(one.table.name),
            [" ".join(filter(None, (_small(own.name), _type(own, settings)))) for own in one.declared],
        )
        for one in shown
    ]
    conditions = [
        f"{_small(one.table.name)}.{_small(own)} = {_small(other.name)}.{_small(_target(other, theirs))}"
        for one in shown
        for key, other in _joins(one.table, tables)
        for own, theirs in key.columns
        if settings.keys and _target(other, theirs)
    ]
    values = [
        f"{_small(one.table.name)}.{_small(name)} = {value}"
        for one in shown
        for name in one.columns
        for value in one.values.get(name, ())
    ]
    for heading, found in (("Joins:", conditions), ("Values:", values)):
        lines += [heading, *dict.fromkeys(found)] if found else []
    return "\n".join([HEADING, *lines])


def _by_name(shown: Sequence[Shown]) -> Mapping[str, Table]:
    return {one.table.name.casefold(): one.table for one in shown}


def _line(table: str, columns: Sequence[str]) -> str:
    return f"{table}({', '.join(columns)})"


def _type(column: Column, settings: SchemaPromptConfig) -> str:
    return short_type(column.type) if settings.types else ""


def _small(name: str) -> str:
    """Return a name as a query writes it, in small letters where it needs no quotes."""
    plain = written(name)
    return plain.lower() if plain == name else plain


def _reference(column: str, table: Table, tables: Mapping[str, Table]) -> list[str]:
    """Return what a column refers to among the tables that are shown: the table alone where the column is called the same."""
    for key, other in _joins(table, tables):
        for own, theirs in key.columns:
            if own.casefold() == column.casefold():
                there = _target(other, theirs)
                same = there.casefold() == column.casefold() or not there
                return [">", written(other.name) + ("" if same else f".{written(there)}")]
    return []


def _joins(table: Table, tables: Mapping[str, Table]) -> list[tuple[ForeignKey, Table]]:
    joins = ((key, tables.get(key.table.casefold())) for key in table.foreign_keys)
    return [(key, other) for key, other in joins if other is not None]


def _target(table: Table, column: str) -> str:
    """Return the column that a foreign key refers to; where it names none, the primary key of one column."""
    return named(table, column) if column else "".join(table.primary_key[:1])


def create_table(shown: Sequence[Shown], settings: SchemaPromptConfig) -> str:
    """Return tables as CREATE TABLE statements."""
    tables = _by_name(shown)
    return " ".join(f"{_statement(one, tables, settings)};" for one in shown)


def _statement(shown: Shown, tables: Mapping[str, Table], settings: SchemaPromptConfig) -> str:
    items = []
    for column in shown.declared:
        type_ = f" {column.type}" if settings.types and column.type else ""
        values = shown.values.get(column.name, ())
        items.append(f"{written(column.name)}{type_}" + (f" /* {', '.join(values)} */" if values else ""))
    if settings.keys and shown.table.primary_key:
        items.append(f"PRIMARY KEY ({_names(shown.table.primary_key)})")
    for key, other in _joins(shown.table, tables) if settings.keys else ():
        there = [_target(other, theirs) for _, theirs in key.columns]
        own = _names([named(shown.table, own) for own, _ in key.columns])
        items.append(f"FOREIGN KEY ({own}) REFERENCES {written(other.name)} ({_names(there)})")
    return f"CREATE TABLE {written(shown.table.name)} ({', '.join(items)})"


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(written, names))


def short_type(declared: str) -> str:
    """Return a declared type in one short word, "" for text, as SQLite tells types by parts of their names."""
    declared = declared.casefold()
    found = (short for part, short in (*_TYPES, *_MORE_TYPES) if part in declared)
    return next(found, "num" if declared else "")


@lru_cache(maxsize=100_000)
def written(name: str) -> str:
    """Return a name as a query writes it: in quotes where it must be, as `order` and `Home Town`."""
    if not _PLAIN.fullmatch(name):
        return quoted(name)
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            row = connection.execute(f"SELECT {name} FROM (SELECT 'a name' AS {quoted(name)})").fetchone()  # noqa: S608
        except sqlite3.Error:
            return quoted(name)
    return name if row == ("a name",) else quoted(name)


STYLES: Mapping[str, Callable[[Sequence[Shown], SchemaPromptConfig], str]] = MappingProxyType(
    {"compact": compact, "joins": joins, "create_table": create_table}
)
"""The ways in which tables are written, by the name of `style`."""
