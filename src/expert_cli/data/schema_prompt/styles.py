"""How the tables that a question is shown are written in its prompt."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import lru_cache
from types import MappingProxyType

from expert_cli.data.schema_prompt.database import Table, quoted

HEADING = "Tables:"
_SHORT_TYPES = (
    ("int", "int"),
    ("char", ""),
    ("clob", ""),
    ("text", ""),
    ("string", ""),
    ("bool", "bool"),
    ("date", "date"),
)
_MORE_TYPES = (("time", "time"), ("blob", "blob"), ("real", "real"), ("floa", "real"), ("doub", "real"))


def _compact(tables: list[Table]) -> str:
    """Return a line a table, which takes the fewest tokens; `inference/grammar/sql` reads it.

    Tables:
    head(head_id int key, name, born_state = 'California', age int = 56)
    management(department_id int key > department, head_id int key > head, temporary_acting = 'Yes' | 'No')
    """

    def column(table: Table, name: str) -> list[str]:
        key = "key" if name in table.primary_key else ""
        for other, theirs in [(other, pairs[name]) for other, pairs in table.foreign_keys if name in pairs][:1]:
            same = theirs.casefold() in (name.casefold(), "")
            key += f" > {written(other)}" + ("" if same else f".{written(theirs)}")
        values = f"= {' | '.join(table.values[name])}" if table.values[name] else ""
        return [written(name), _short_type(table.columns[name]), key.strip(), values]

    return "\n".join(_lines(tables, written, column))


def _joins(tables: list[Table]) -> str:
    """Return names in small letters, which SQL does not tell from capitals, and joins and values as queries write them.

    Tables:
    head(head_id int, name, born_state, age int)
    management(department_id int, head_id int, temporary_acting)
    Joins:
    management.head_id = head.head_id
    Values:
    head.born_state = 'California'
    """
    lines = _lines(tables, _small, lambda table, name: [_small(name), _short_type(table.columns[name])])
    joins, values = [], []
    for table in tables:
        for other, pairs in table.foreign_keys:
            joins += [(table.name, own, f"{_small(other)}.{_small(theirs)}") for own, theirs in pairs.items() if theirs]
        values += [(table.name, name, value) for name in table.columns for value in table.values[name]]
    for heading, found in (("Joins:", joins), ("Values:", values)):
        below = [f"{_small(table)}.{_small(column)} = {other}" for table, column, other in found]
        lines += [heading, *dict.fromkeys(below)] if below else []
    return "\n".join(lines)


def _create_table(tables: list[Table]) -> str:
    """Return CREATE TABLE statements, values in comments: `CREATE TABLE head (age INT /* 56 */, PRIMARY KEY (head_id));`."""
    statements = []
    for table in tables:
        shown = {name: f"/* {', '.join(values)} */" if values else "" for name, values in table.values.items()}
        items = [" ".join(filter(None, (written(name), type_, shown[name]))) for name, type_ in table.columns.items()]
        items += [f"PRIMARY KEY ({', '.join(map(written, table.primary_key))})"] if table.primary_key else []
        for other, pairs in table.foreign_keys:
            own, theirs = (", ".join(map(written, names)) for names in (pairs, pairs.values()))
            items.append(f"FOREIGN KEY ({own}) REFERENCES {written(other)} ({theirs})")
        statements.append(f"CREATE TABLE {written(table.name)} ({', '.join(items)});")
    return " ".join(statements)


def _lines(tables: list[Table], write: Callable[[str], str], column: Callable[[Table, str], list[str]]) -> list[str]:
    columns = [", ".join(" ".join(filter(None, column(table, name))) for name in table.columns) for table in tables]
    return [HEADING, *(f"{write(table.name)}({of_table})" for table, of_table in zip(tables, columns, strict=True))]


def _short_type(declared: str) -> str:
    """Return a declared type in one short word, "" for text, as SQLite tells types by parts of their names."""
    found = (short for part, short in (*_SHORT_TYPES, *_MORE_TYPES) if part in declared.casefold())
    return next(found, "num" if declared else "")


def _small(name: str) -> str:
    """Return a name as a query writes it, in small letters where it needs no quotes."""
    return name.lower() if written(name) == name else written(name)


@lru_cache(maxsize=100_000)
def written(name: str) -> str:
    """Return a name as a query writes it: in quotes where it must be, as `order` and `Home Town`."""
    query = f"SELECT {name} FROM (SELECT 'a name' AS {quoted(name)})"  # noqa: S608  a word
    with closing(sqlite3.connect(":memory:")) as connection, suppress(sqlite3.Error):
        if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) and connection.execute(query).fetchall() == [("a name",)]:
            return name
    return quoted(name)


STYLES: Mapping[str, Callable[[list[Table]], str]] = MappingProxyType(
    {"compact": _compact, "joins": _joins, "create_table": _create_table}
)
