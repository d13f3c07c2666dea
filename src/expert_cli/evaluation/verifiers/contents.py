"""Other contents of a case's database, on which a query that is right by luck is not. Runs in the worker's process.

Rows are drawn anew: keys stay keys, references refer to rows that are there, and among the values are the constants of the
expected queries and what differs from them by little. A content counts where the expected queries have one result on it,
whichever way round unordered rows are read.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, Protocol

import apsw
from sqlglot import errors, exp, parse_one

from expert_cli.evaluation.verifiers.query_text import Dialect, orders_rows
from expert_cli.evaluation.verifiers.rows import Row, rounded
from expert_cli.evaluation.verifiers.sandbox.limits import Stopped

TRIED, QUERY_S, MAKE_S = 4, 2.0, 30.0
"""Contents that are tried for each that is wanted; seconds for a query, and for all."""
MOST_READ = 2_000
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND sql NOT LIKE 'CREATE VIRTUAL%'"
_KEY_NAME = re.compile(r"(?:.*[_\s]|.*(?=I[dD]$))?(?:id|code|no|nr|num|number|key|isbn|ssn|uuid)|id_.*", re.IGNORECASE)
for _dialect in ("sqlite", "postgres"):  # loads the dialects while the process may still open files
    parse_one("SELECT 1", dialect=_dialect)
Reference = tuple[tuple[str, ...], str, tuple[str, ...]]
"""Columns, and the table and its columns that they refer to."""


class Engine(Protocol):
    """What runs queries on one content."""

    def run(self, query: str, *, timeout_s: float) -> list[Row]:
        """Return the rows. Raises `Stopped`."""

    def prepare(self, query: str, *, timeout_s: float) -> None:
        """Find out whether a statement is allowed. Raises `Stopped`."""

    def unknown(self, query: str) -> str:
        """Return what a query names that is not there, where the engine itself does not refuse it; "" for nothing."""

    def perturbed(self, queries: Sequence[str], number: int) -> tuple[Engine, Engine]:
        """Return the content of this number, and it once more: there, unordered rows come the other way round."""


def telling_contents(engine: Engine, queries: Sequence[str], dialect: Dialect, count: int) -> list[Engine]:
    """Return up to `count` contents on which the expected queries have one result each, which holds something."""
    found = list[Engine]()
    end = time.monotonic() + MAKE_S  # as a last resort: it makes the choice depend on the machine
    for number in range(TRIED * count):
        if len(found) == count or time.monotonic() > end:
            break
        ways = engine.perturbed(queries, number)
        try:
            results = [[_rounded(way.run(query, timeout_s=QUERY_S)) for way in ways] for query in queries]
        except Stopped:
            continue
        same = (
            one == other if orders_rows(query, dialect) else Counter(map(repr, one)) == Counter(map(repr, other))
            for query, (one, other) in zip(queries, results, strict=True)
        )
        if all(same) and any(cell for (rows, _) in results for row in rows for cell in row):
            found.append(ways[0])
    return found


def _rounded(rows: Iterable[Row]) -> list[Row]:
    """Return rows without the noise that another order of adding makes."""
    return [tuple(rounded(cell) if isinstance(cell, float) else cell for cell in row) for row in rows]


@dataclass
class Table:
    """A table. keys: sets of columns whose values no two rows share;"""

    name: str
    columns: list[str]
    nullable: set[str]
    keys: list[tuple[str, ...]]
    foreign: list[Reference] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def values(self, column: str) -> list[Any]:
        """Return what a column holds, without NULL."""
        place = self.columns.index(column)
        return [row[place] for row in self.rows if row[place] is not None]


def read_tables(connection: Any) -> dict[str, Table]:
    """Return the tables that rows can be written to, but for generated columns; keys that are not declared are told."""
    shadows = {row[1] for row in connection.execute("PRAGMA table_list") if row[2] == "shadow"}
    tables = {}
    for (name,) in connection.execute(f"{_TABLES} ORDER BY name").fetchall():
        if name not in shadows:
            try:
                tables[name] = _table(connection, name)
            except (
                UnicodeError,
                apsw.SQLError,
            ):  # texts that are not UTF-8, generated columns alone: it stays as it is
                continue
    for table in tables.values():
        if not table.keys:
            table.keys += [(column,) for column in table.columns if _is_key(table, column)][:1]
            table.nullable -= {column for key in table.keys for column in key}
    for table in tables.values():
        table.foreign += _told_references(table, tables)
    return tables


def _table(connection: Any, name: str) -> Table:
    info = [row for row in connection.execute("SELECT * FROM pragma_table_xinfo(?)", (name,)) if row[6] == 0]
    real = {row[1].lower(): row[1] for row in info}
    keys = [tuple(row[1] for row in sorted(info, key=lambda row: row[5]) if row[5])]
    unique = 'SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial'
    for (index,) in connection.execute(unique, (name,)).fetchall():
        columns = [column for (column,) in connection.execute("SELECT name FROM pragma_index_info(?)", (index,))]
        keys += (
            [tuple(real[column.lower()] for column in columns)] if all(c and c.lower() in real for c in columns) else []
        )
    nullable = {row[1] for row in info if not row[3] and row[1] not in keys[0]}
    table = Table(name, [row[1] for row in info], nullable, [*dict.fromkeys(filter(None, keys))])
    listed = ", ".join(map(quoted, table.columns))
    table.rows = connection.execute(f"SELECT {listed} FROM {quoted(name)} LIMIT {MOST_READ}").fetchall()  # noqa: S608
    declared = connection.execute(
        'SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?) ORDER BY id, seq', (name,)
    )
    for _, parts in groupby(declared.fetchall(), key=lambda row: row[0]):
        pairs = [row[1:] for row in parts]
        parents = connection.execute("SELECT * FROM pragma_table_xinfo(?)", (pairs[0][0],)).fetchall()
        known = {row[1].lower(): row[1] for row in parents if row[6] == 0}
        primary = [row[1] for row in sorted(parents, key=lambda row: row[5]) if row[5]]
        theirs = [to or (primary[n] if n < len(primary) else "") for n, (_, _, to) in enumerate(pairs)]
        (other,) = connection.execute(
            "SELECT max(name) FROM sqlite_master WHERE name = ? COLLATE NOCASE", (pairs[0][0],)
        )
        if all(to.lower() in known for to in theirs) and all(column.lower() in real for _, column, _ in pairs):
            ours = tuple(real[column.lower()] for _, column, _ in pairs)
            table.foreign.append((ours, other[0], tuple(known[to.lower()] for to in theirs)))
    return table


def _is_key(table: Table, column: str) -> bool:
    values = table.values(column)
    named = column == table.columns[0] or _refers(column, table.name, "id")
    return bool(named and _KEY_NAME.fullmatch(column) and values) and len({*values}) == len(table.rows)


def _told_references(table: Table, tables: Mapping[str, Table]) -> list[Reference]:
    """Return references that are not declared: columns named after another table's key, with none but its values."""
    known = {column for columns, _, _ in table.foreign for column in columns}
    found: list[Reference] = []
    for place, column in enumerate(table.columns):
        values = {*table.values(column)}
        if column in known or not values or (not place and (column,) in table.keys):
            continue
        for other in tables.values():
            keys = [key[0] for key in other.keys if len(key) == 1 and _refers(column, other.name, key[0])]
            if other is not table and keys and values <= {*other.values(keys[0])}:
                found.append(((column,), other.name, (keys[0],)))
                break
    return found


def _refers(column: str, table: str, key: str) -> bool:
    """Whether a column's name says that it holds a table's key."""
    column, table, key = column.lower(), table.lower(), key.lower()
    singular = {table, table.removesuffix("s"), table.removesuffix("es"), re.sub(r"ies$", "y", table)}
    if any(column in (f"{one}_{key}", f"{one}{key}", f"{one}_id") for one in singular):
        return True
    return key not in ("id", "code", "no", "number") and (column == key or column.endswith(f"_{key}"))


def constants(queries: Iterable[str], dialect: str = "sqlite") -> dict[str, list[Any]]:
    """Return the literals of queries by the name, in lower case, of the column that each is compared with."""
    found: dict[str, list[Any]] = defaultdict(list)
    for query in queries:
        try:
            tree = parse_one(query, dialect=dialect)
        except (errors.SqlglotError, RecursionError):
            continue
        for node in tree.find_all(exp.Predicate, exp.Between, exp.In):
            literals: list[Any] = [literal_value(one) for one in node.find_all(exp.Literal)]
            columns = list(node.find_all(exp.Column))
            # SQLite reads a quoted name that no table has as a text
            literals += [one.name for one in columns if one.this.args.get("quoted") and not one.table]
            for column in columns:
                found[column.name.lower()] += literals
    return found


def literal_value(literal: exp.Literal) -> str | int | float:
    """Return what a literal stands for."""
    text = str(literal.this)
    return text if literal.is_string else float(text) if re.search("[.eE]", text) else int(text)


def near(value: Any) -> list[Any]:
    """Return a constant, more often than what differs from it by little, or by much."""
    if isinstance(value, int | float):
        return [value, value, value - 1, value + 1, value - 1000, value + 1000]
    core = str(value).strip("%")
    later = re.sub(r"\d+", lambda number: str(int(number[0]) + 20).zfill(len(number[0])), core, count=1)
    return [core, core, f"{core} b", f"a {core}", core.swapcase(), core[:-1], later]


class Draw(NamedTuple):
    """How a content is drawn. fresh: the share of values of a column that are not those of a row; empty: that of NULL.

    scale: rows of a table. meets: the share of constants themselves: rows that meet several conditions at once, or all but one.
    """

    fresh: float
    empty: float
    scale: int
    meets: float


def filled(tables: Mapping[str, Table], named: Mapping[str, Sequence[Any]], rng: random.Random) -> dict[str, list[Row]]:
    """Return another content: the rows of every table, those that others refer to first."""
    made: dict[str, list[Row]] = {}
    fresh, empty, scale = rng.choice((0.15, 0.5, 0.9)), rng.choice((0, 0, 0.1, 0.25)), rng.choice((8, 20, 40, 60))
    draw = Draw(fresh, empty, scale, rng.choice((0, 0, 0, 0.7)))
    for table in _parents_first(tables):
        made[table.name] = [] if rng.random() < 0.03 else _rows(table, tables, made, named, rng, draw)
    return made


def _rows(
    table: Table,
    tables: Mapping[str, Table],
    made: Mapping[str, list[Row]],
    named: Mapping[str, Sequence[Any]],
    rng: random.Random,
    draw: Draw,
) -> list[Row]:
    """Return the rows of a table."""
    own = {column: table.values(column) or ["a", "b", 1, 2] for column in table.columns}
    usual = {column: rng.sample(some, min(len(some), rng.choice((1, 2, 3, 5, 12)))) for column, some in own.items()}
    wanted = {column: [one for value in named.get(column.lower(), ()) for one in near(value)] for column in own}
    met = {column: [near(value)[0] for value in named.get(column.lower(), ())] for column in own}
    single = {key[0] for key in table.keys if len(key) == 1}
    parents = []
    for columns, other, theirs in table.foreign:
        if other in made:
            places = [tables[other].columns.index(column) for column in theirs]
            known = [*dict.fromkeys(tuple(row[place] for place in places) for row in made[other])]
            some = rng.sample(known, max(min(1, len(known)), round(len(known) * rng.choice((0.4, 0.7, 1)))))
            parents.append((columns, some + some[: 1 + len(some) // 4] * rng.choice((0, 2, 4))))

    def value_of(column: str, value: Any) -> Any:
        if column in table.nullable and rng.random() < draw.empty:
            return None
        if met[column] and rng.random() < draw.meets:
            value = rng.choice(met[column])
        elif wanted[column] and rng.random() < 0.4:
            value = rng.choice(wanted[column])
        elif value is None or rng.random() < draw.fresh:
            value = rng.choice(usual[column] if rng.random() < 0.9 else own[column])
        shifted = type(value) in (int, float) and rng.random() < 0.05
        return value + rng.choice((-1, 1, 1000, -1000)) if shifted else value

    found = list[Row]()
    taken = [set[Row]() for _ in table.keys]
    for number in range(draw.scale):
        base = rng.choice(table.rows) if table.rows else (None,) * len(own)
        row: dict[str, Any] = {}
        for column, value in zip(own, base, strict=True):
            row[column] = _key(own[column], value, number) if column in single else value_of(column, value)
        for columns, some in parents:
            null = not some or (table.nullable.issuperset(columns) and rng.random() < draw.empty)
            row |= zip(columns, (None,) * len(columns) if null else rng.choice(some), strict=True)
        keys = [tuple(row[column] for column in key) for key in table.keys]
        if not any(key in others for key, others in zip(keys, taken, strict=True) if None not in key):
            for key, others in zip(keys, taken, strict=True):
                others.add(key)
            found.append(tuple(row.values()))
    return found


def _key(values: Sequence[Any], value: Any, number: int) -> Any:
    """Return the key of a row by its number: a number, or one of the column's values, told apart where there are more rows."""
    if isinstance(values[0], int):
        return number + 1
    key = values[number % len(values)]
    return f"{key} {number}" if number >= len(values) and isinstance(value, str) else key


def _parents_first(tables: Mapping[str, Table]) -> list[Table]:
    left, found = dict(tables), list[Table]()
    while left:
        free = [one for one in left.values() if not any(of in left and of != one.name for _, of, _ in one.foreign)]
        for table in free or [next(iter(left.values()))]:
            found.append(left.pop(table.name))
    return found


class SqliteContents:
    """Other contents of a database. content: of an SQLite file that opens in memory."""

    def __init__(self, content: bytes, dialect: str = "sqlite") -> None:
        """Read the tables. dialect: of the expected queries, by sqlglot's name."""
        connection = opened(content)
        self.tables, self._dialect = read_tables(connection), dialect
        _write(connection, self.tables, {})
        connection.execute("VACUUM")
        self._empty = bytes(connection.serialize("main"))

    def content(self, queries: Sequence[str], number: int) -> bytes:
        """Return the content that this number names: the same for the same queries."""
        connection, names = opened(self._empty), sorted(self.tables)
        rng = random.Random("\0".join((*names, *queries, str(number))))  # noqa: S311  to be the same again
        _write(connection, self.tables, filled(self.tables, constants(queries, self._dialect), rng))
        return bytes(connection.serialize("main"))


def _write(connection: Any, tables: Mapping[str, Table], content: Mapping[str, Sequence[Row]]) -> None:
    """Put another content in the place of the rows that are there. A row that a constraint forbids is left out."""
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {quoted(name)}")
    for name in tables:
        connection.execute(f"DELETE FROM {quoted(name)}")  # noqa: S608
    for name, rows in content.items():
        listed, slots = ", ".join(map(quoted, tables[name].columns)), ", ".join("?" * len(tables[name].columns))
        for row in rows:
            try:
                connection.execute(f"INSERT OR IGNORE INTO {quoted(name)} ({listed}) VALUES ({slots})", row)  # noqa: S608
            except apsw.Error:  # of a STRICT table, or a key that is a whole number
                continue
    left = -1
    while left != (
        left := connection.total_changes()
    ):  # a row that is gone may leave others without what they refer to
        for table in tables.values():
            for columns, other, theirs in table.foreign:
                if other in tables:
                    connection.execute(_dangling(table.name, columns, other, theirs))


def _dangling(table: str, columns: Sequence[str], other: str, theirs: Sequence[str]) -> str:
    """Return the statement that deletes rows which refer to nothing."""
    filled_ = " AND ".join(f"child.{quoted(column)} IS NOT NULL" for column in columns)
    pairs = zip(columns, theirs, strict=True)
    same = " AND ".join(f"child.{quoted(one)} = parent.{quoted(another)}" for one, another in pairs)
    there = f"SELECT 1 FROM {quoted(other)} AS parent WHERE {same}"  # noqa: S608
    return f"DELETE FROM {quoted(table)} AS child WHERE {filled_} AND NOT EXISTS ({there})"  # noqa: S608


def opened(content: bytes) -> Any:
    """Return a connection to a database in memory."""
    connection = apsw.Connection(":memory:")
    connection.deserialize("main", content)
    return connection


def quoted(name: str) -> str:
    """Return a name in SQL."""
    return '"' + name.replace('"', '""') + '"'
