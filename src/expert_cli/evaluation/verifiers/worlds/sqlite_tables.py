"""An SQLite database as tables with their keys, and another content put in its place."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any

import apsw

from expert_cli.evaluation.verifiers.worlds.perturb import Made, perturb, pools_of
from expert_cli.evaluation.verifiers.worlds.tables import ForeignKey, Table
from expert_cli.evaluation.verifiers.worlds.values import Pool, constants

MOST_READ = 2_000
"""Rows of a table that are looked at; keys are told by all."""
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND sql NOT LIKE 'CREATE VIRTUAL%'"
_KEY_NAME = re.compile(r"(?:.*[_\s]|.*(?=I[dD]$))?(?:id|code|no|nr|num|number|key|isbn|ssn|uuid)|id_.*", re.IGNORECASE)


def read_tables(connection: Any) -> list[Table]:
    """Return the tables that rows can be written to, but for generated columns."""
    shadows = _shadows(connection)
    names = [name for (name,) in connection.execute(f"{_TABLES} ORDER BY name") if name not in shadows]
    tables = [table for table in (_readable_table(connection, name) for name in names) if table]
    tables = [_with_told_key(connection, table) for table in tables]
    return [_with_told_references(connection, table, tables) for table in tables]


def _shadows(connection: Any) -> set[str]:
    """Return the tables that virtual ones keep their data in."""
    return {row[1] for row in connection.execute("PRAGMA table_list") if row[2] == "shadow"}


def _readable_table(connection: Any, name: str) -> Table | None:
    """Return a table; None for one that keeps its rows: it has generated columns alone, or texts that are not UTF-8."""
    try:
        return _table(connection, name)
    except (UnicodeError, apsw.SQLError):
        return None


def _table(connection: Any, name: str) -> Table:
    info = [row for row in connection.execute("SELECT * FROM pragma_table_xinfo(?)", (name,)) if row[6] == 0]
    columns = tuple(row[1] for row in info)
    place = {column.lower(): number for number, column in enumerate(columns)}
    keys = [tuple(place[row[1].lower()] for row in sorted(info, key=lambda row: row[5]) if row[5])]
    for index, unique, partial in connection.execute(
        'SELECT name, "unique", partial FROM pragma_index_list(?)', (name,)
    ).fetchall():
        found = [row[0] for row in connection.execute("SELECT name FROM pragma_index_info(?)", (index,))]
        if unique and not partial and all(one and one.lower() in place for one in found):
            keys.append(tuple(place[one.lower()] for one in found))
    primary = set(keys[0])
    nullable = tuple(not row[3] and number not in primary for number, row in enumerate(info))
    rows = connection.execute(f"SELECT {_list(columns)} FROM {quoted(name)} LIMIT {MOST_READ}").fetchall()  # noqa: S608
    foreign = _foreign_keys(connection, name, place)
    return Table(name, columns, nullable, tuple(dict.fromkeys(filter(None, keys))), foreign, rows)


def _foreign_keys(connection: Any, name: str, place: Mapping[str, int]) -> tuple[ForeignKey, ...]:
    """Return the declared foreign keys whose columns there are."""
    pairs: dict[int, tuple[str, list[tuple[int, str, str | None]]]] = {}
    for number, order, table, column, parent in connection.execute(
        'SELECT id, seq, "table", "from", "to" FROM pragma_foreign_key_list(?)', (name,)
    ):
        pairs.setdefault(number, (table, []))[1].append((order, column, parent))
    return tuple(
        chain.from_iterable(_foreign_key(connection, table, sorted(found), place) for table, found in pairs.values())
    )


def _foreign_key(
    connection: Any, table: str, pairs: Sequence[tuple[int, str, str | None]], place: Mapping[str, int]
) -> Iterator[ForeignKey]:
    info = [row for row in connection.execute("SELECT * FROM pragma_table_xinfo(?)", (table,)) if row[6] == 0]
    known = {row[1].lower(): number for number, row in enumerate(info)}
    primary = [row[1] for row in sorted(info, key=lambda row: row[5]) if row[5]]
    parents = [parent or primary[order] for order, _, parent in pairs if parent or order < len(primary)]
    columns = [column.lower() for _, column, _ in pairs]
    if len(parents) == len(pairs) and place.keys() >= set(columns) and known.keys() >= {one.lower() for one in parents}:
        real = connection.execute("SELECT name FROM sqlite_master WHERE name = ? COLLATE NOCASE", (table,)).fetchone()
        ours, theirs = (place[one] for one in columns), (known[one.lower()] for one in parents)
        yield ForeignKey(tuple(ours), real[0], tuple(theirs))


def _with_told_key(connection: Any, table: Table) -> Table:
    """Return the table with a key that is not declared: the first column that is named like one, and has no value twice."""
    if table.keys or not table.rows:
        return table
    for place, name in enumerate(table.columns):
        own = place == 0 or _refers(name, table.name, "id")
        if own and _KEY_NAME.fullmatch(name) and _is_key(connection, table, place):
            nullable = tuple(empty and number != place for number, empty in enumerate(table.nullable))
            return replace(table, keys=((place,),), nullable=nullable)
    return table


def _is_key(connection: Any, table: Table, place: int) -> bool:
    column = quoted(table.columns[place])
    numbers = f"SELECT count(*), count(DISTINCT {column}) FROM {quoted(table.name)}"  # noqa: S608  names are quoted
    count, values = connection.execute(numbers).fetchone()
    return bool(count == values)


def _with_told_references(connection: Any, table: Table, tables: Sequence[Table]) -> Table:
    """Return the table with references that are not declared: columns named after another's key, with none but its values."""
    known = {place for key in table.foreign for place in key.columns}
    own = {key[0] for key in table.keys if len(key) == 1}
    found = list(table.foreign)
    for place, name in enumerate(table.columns):
        if place in known or (place in own and place == 0):
            continue
        for other in tables:
            keys = [key[0] for key in other.keys if len(key) == 1]
            key = next((key for key in keys if _refers(name, other.name, other.columns[key])), None)
            if other is not table and key is not None and _holds(connection, table, place, other, key):
                found.append(ForeignKey((place,), other.name, (key,)))
                break
    return replace(table, foreign=tuple(found))


def _refers(column: str, table: str, key: str) -> bool:
    """Whether a column's name says that it holds a table's key."""
    column, table, key = column.lower(), table.lower(), key.lower()
    singular = {table, table.removesuffix("s"), table.removesuffix("es"), re.sub(r"ies$", "y", table)}
    generic = key in ("id", "code", "no", "number")
    of_table = any(column in (f"{one}_{key}", f"{one}{key}", f"{one}_id") for one in singular)
    return of_table or (not generic and (column == key or column.endswith(f"_{key}")))


def _holds(connection: Any, table: Table, place: int, other: Table, key: int) -> bool:
    column, parent = quoted(table.columns[place]), quoted(other.columns[key])
    keys = f"SELECT {parent} FROM {quoted(other.name)}"  # noqa: S608
    outside = f"SELECT 1 FROM {quoted(table.name)} WHERE {column} NOT IN ({keys}) LIMIT 1"  # noqa: S608
    return not connection.execute(outside).fetchall() and any(row[place] is not None for row in table.rows)


def fill(connection: Any, tables: Sequence[Table], content: Mapping[str, Sequence[Made]]) -> None:
    """Put another content in the place of the rows that are there. A row that a constraint forbids is left out."""
    for kind, name in connection.execute("SELECT type, name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP {kind} {quoted(name)}")
    for table in tables:
        connection.execute(f"DELETE FROM {quoted(table.name)}")  # noqa: S608
    by_name = {table.name: table for table in tables}
    for name, rows in content.items():
        slots = ", ".join("?" * len(by_name[name].columns))
        insert = f"INSERT OR IGNORE INTO {quoted(name)} ({_list(by_name[name].columns)}) VALUES ({slots})"  # noqa: S608
        for made in rows:
            if not _written(connection, insert, made.row):
                _written(connection, insert, made.stand_in)
    dangling = [statement for table in tables for statement in _dangling(table, by_name)]
    while sum(_changes(connection, statement) for statement in dangling):
        pass  # a row that is gone may leave others without what they refer to


def _written(connection: Any, insert: str, row: Sequence[Any]) -> bool:
    try:
        return _changes(connection, insert, row) > 0
    except apsw.Error:  # of a STRICT table, or a key that is a whole number
        return False


def _changes(connection: Any, statement: str, bindings: Sequence[Any] = ()) -> int:
    before = connection.total_changes()
    connection.execute(statement, bindings).fetchall()
    return int(connection.total_changes() - before)


def _dangling(table: Table, by_name: Mapping[str, Table]) -> Iterator[str]:
    """Yield the statements that delete rows which refer to nothing."""
    for key in table.foreign:
        if key.table not in by_name:
            continue
        ours = [f"child.{quoted(table.columns[place])}" for place in key.columns]
        theirs = [f"parent.{quoted(by_name[key.table].columns[place])}" for place in key.parents]
        same = " AND ".join(f"{one} = {other}" for one, other in zip(ours, theirs, strict=True))
        filled = " AND ".join(f"{one} IS NOT NULL" for one in ours)
        yield (
            f"DELETE FROM {quoted(table.name)} AS child WHERE {filled} AND NOT EXISTS "  # noqa: S608
            f"(SELECT 1 FROM {quoted(key.table)} AS parent WHERE {same})"
        )


def quoted(name: str) -> str:
    """Return a name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _list(columns: Sequence[str]) -> str:
    return ", ".join(map(quoted, columns))


class SqliteContents:
    """Other contents of a database, each in a connection of its own."""

    def __init__(self, content: bytes) -> None:
        """Read nothing yet. content: of an SQLite file that opens in memory."""
        self._content = content

    def content(self, queries: Sequence[str], number: int) -> bytes:
        """Return the content that this number names; constants of the queries are among its values. The same for the same."""
        connection = opened(self._empty)
        fill(
            connection, self._tables, perturb(self._tables, self._pools(tuple(queries)), self._random(queries, number))
        )
        return bytes(connection.serialize("main"))

    def _random(self, queries: Sequence[str], number: int) -> random.Random:
        return random.Random("\0".join((self._digest, *queries, str(number))))  # noqa: S311  to be the same again

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(self._content).hexdigest()

    @cached_property
    def _tables(self) -> Sequence[Table]:
        return read_tables(opened(self._content))

    @cached_property
    def _empty(self) -> bytes:
        """The database without rows, as small as it gets."""
        connection = opened(self._content)
        fill(connection, self._tables, {})
        connection.execute("VACUUM")
        return bytes(connection.serialize("main"))

    @lru_cache(maxsize=1)  # noqa: B019  lives as long as the process
    def _pools(self, queries: tuple[str, ...]) -> Mapping[str, Sequence[Pool]]:
        names = {column.lower() for table in self._tables for column in table.columns}
        return pools_of(self._tables, constants(queries, names))


def opened(content: bytes) -> Any:
    """Return a connection to a database in memory."""
    connection = apsw.Connection(":memory:")
    connection.deserialize("main", content)
    return connection
