"""Other contents of a case's database or graph, on which a query that is right by luck is not. Runs in the worker's process.

Rows are drawn anew: keys stay keys, references refer to rows that are there, and among the values are the constants of the
expected queries and what differs from them by little.

graphqlite keeps a graph in tables of SQLite. The nodes of one set of labels are filled as a table, the relationships of one
type between two of them as another one, whose first two columns refer to the nodes. Properties are columns.
"""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import apsw
from sqlglot import errors, exp, parse_one

from expert_cli.evaluation.verifiers.rows import Row

MOST_READ = 2_000
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND sql NOT LIKE 'CREATE VIRTUAL%'"
_KEY_NAME = re.compile(r"(?:.*[_\s]|.*(?=I[dD]$))?(?:id|code|no|nr|num|number|key|isbn|ssn|uuid)|id_.*", re.IGNORECASE)
for _dialect in ("sqlite", "postgres"):  # loads the dialects while the process may still open files
    parse_one("SELECT 1", dialect=_dialect)
Reference = tuple[tuple[str, ...], str, tuple[str, ...]]
"""Columns, and the table and its columns that they refer to."""


@dataclass
class Table:
    """A table. keys: sets of columns whose values no two rows share."""

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

    def named(self, names: Iterable[str | None]) -> tuple[str, ...]:
        """Return columns, which SQLite knows in any case; none where one is not there."""
        known = {column.lower(): column for column in self.columns}
        found = [known.get(str(name).lower(), "") for name in names]
        return tuple(found) if all(found) else ()


def read_tables(connection: Any) -> dict[str, Table]:
    """Return the tables that rows can be written to, but for generated columns; keys that are not declared are told."""
    shadows = {row[1] for row in connection.execute("PRAGMA table_list") if row[2] == "shadow"}
    tables = dict[str, Table]()
    for (name,) in connection.execute(f"{_TABLES} ORDER BY name").fetchall():
        # one with texts that are not UTF-8, or generated columns alone, stays as it is
        with suppress(UnicodeError, apsw.SQLError):
            tables |= {} if name in shadows else {name: _table(connection, name)}
    for table in tables.values():
        table.foreign += _declared_references(connection, table, tables)
    for table in tables.values():
        for column in [] if table.keys else table.columns:
            values, named = table.values(column), column == table.columns[0] or _refers(column, table.name, "id")
            if named and _KEY_NAME.fullmatch(column) and values and len({*values}) == len(table.rows):
                table.keys.append((column,))
                table.nullable.discard(column)
                break
    for table in tables.values():
        table.foreign += _told_references(table, tables)
    return tables


def _table(connection: Any, name: str) -> Table:
    info = [row for row in connection.execute("SELECT * FROM pragma_table_xinfo(?)", (name,)) if row[6] == 0]
    primary = tuple(row[1] for row in sorted(info, key=lambda row: row[5]) if row[5])
    table = Table(name, [row[1] for row in info], {row[1] for row in info if not row[3]}.difference(primary), [])
    unique = 'SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial'
    for (index,) in connection.execute(unique, (name,)).fetchall():
        table.keys.append(
            table.named(column for (column,) in connection.execute("SELECT name FROM pragma_index_info(?)", (index,)))
        )
    table.keys = [*dict.fromkeys(filter(None, (primary, *table.keys)))]
    listed = ", ".join(map(quoted, table.columns))
    table.rows = connection.execute(f"SELECT {listed} FROM {quoted(name)} LIMIT {MOST_READ}").fetchall()  # noqa: S608
    return table


def _declared_references(connection: Any, table: Table, tables: Mapping[str, Table]) -> Iterable[Reference]:
    known = {name.lower(): other for name, other in tables.items()}
    declared = 'SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?) ORDER BY id, seq'
    for _, group in groupby(connection.execute(declared, (table.name,)).fetchall(), key=lambda row: row[0]):
        parts = [row[1:] for row in group]
        other = known.get(parts[0][0].lower())
        if other is not None:
            primary = (*(other.keys[0] if other.keys else ()), *[None] * len(parts))
            ours = table.named(column for _, column, _ in parts)
            theirs = other.named(to or key for (_, _, to), key in zip(parts, primary, strict=False))
            if ours and theirs:
                yield ours, other.name, theirs


def _told_references(table: Table, tables: Mapping[str, Table]) -> Iterable[Reference]:
    """Return references that are not declared: columns named after another table's key, with none but its values."""
    known = {column for columns, _, _ in table.foreign for column in columns}
    for place, column in enumerate(table.columns):
        values = {*table.values(column)}
        if column in known or not values or (not place and (column,) in table.keys):
            continue
        for other in tables.values():
            keys = [key[0] for key in other.keys if len(key) == 1 and _refers(column, other.name, key[0])]
            if other is not table and keys and values <= {*other.values(keys[0])}:
                yield (column,), other.name, (keys[0],)
                break


def _refers(column: str, table: str, key: str) -> bool:
    """Whether a column's name says that it holds a table's key."""
    column, table, key = column.lower(), table.lower(), key.lower()
    singular = {table, table.removesuffix("s"), table.removesuffix("es"), re.sub(r"ies$", "y", table)}
    if any(column in (f"{one}_{key}", f"{one}{key}", f"{one}_id") for one in singular):
        return True
    return key not in ("id", "code", "no", "number") and (column == key or column.endswith(f"_{key}"))


def numeric(text: str) -> int | float:
    """Return what a literal stands for."""
    return float(text) if re.search("[.eE]", text) else int(text)


def near(value: Any) -> list[Any]:
    """Return a constant, more often than what differs from it by little, or by much."""
    if isinstance(value, int | float):
        return [value, value, value - 1, value + 1, value - 1000, value + 1000]
    core = str(value).strip("%")
    later = re.sub(r"\d+", lambda found: str(int(found[0]) + 20).zfill(len(found[0])), core, count=1)
    return [core, core, f"{core} b", f"a {core}", core.swapcase(), core[:-1], later]


class Drawing:
    """Draws another content: rows of every table, those that others refer to first.

    fresh: the share of values that are not those of a row; empty: that of NULL; scale: rows of a table; meets: the share of
    constants themselves, for rows that meet several conditions at once, or all but one.
    """

    def __init__(self, tables: Mapping[str, Table], named: Mapping[str, Sequence[Any]], rng: random.Random) -> None:
        """Draw. named: constants, by the column in lower case."""
        self.tables, self.named, self.rng = tables, named, rng
        self.fresh, self.empty = rng.choice((0.15, 0.5, 0.9)), rng.choice((0, 0, 0.1, 0.25))
        self.scale, self.meets = rng.choice((8, 20, 40, 60)), rng.choice((0, 0, 0, 0.7))
        self.rows: dict[str, list[Row]] = {}
        left = dict(tables)
        while left:
            free = [one for one in left.values() if not any(of in left and of != one.name for _, of, _ in one.foreign)]
            for table in free or [next(iter(left.values()))]:
                del left[table.name]
                self.rows[table.name] = [] if rng.random() < 0.03 else self._drawn(table)

    def _drawn(self, table: Table) -> list[Row]:
        rng = self.rng
        own = {column: table.values(column) or ["a", "b", 1, 2] for column in table.columns}
        usual = {column: rng.sample(some, min(len(some), rng.choice((1, 2, 3, 5, 12)))) for column, some in own.items()}
        wanted = {column: [*map(near, self.named.get(column.lower(), ()))] for column in own}
        single = {key[0] for key in table.keys if len(key) == 1}
        parents = [
            (columns, self._parents(other, theirs)) for columns, other, theirs in table.foreign if other in self.rows
        ]

        def value_of(column: str, value: Any) -> Any:
            if column in table.nullable and rng.random() < self.empty:
                return None
            if wanted[column] and rng.random() < self.meets:
                value = rng.choice([alike[0] for alike in wanted[column]])
            elif wanted[column] and rng.random() < 0.4:
                value = rng.choice([one for alike in wanted[column] for one in alike])
            elif value is None or rng.random() < self.fresh:
                value = rng.choice(usual[column] if rng.random() < 0.9 else own[column])
            shifted = type(value) in (int, float) and rng.random() < 0.05
            return value + rng.choice((-1, 1, 1000, -1000)) if shifted else value

        found, taken = list[Row](), set[tuple[int, Row]]()
        for place in range(self.scale):
            base = rng.choice(table.rows) if table.rows else (None,) * len(own)
            row: dict[str, Any] = {}
            for column, value in zip(own, base, strict=True):
                if column not in single:
                    row[column] = value_of(column, value)
                elif isinstance(own[column][0], int):
                    row[column] = place + 1
                else:  # one of the column's values, told apart where there are more rows
                    key, is_new = own[column][place % len(own[column])], place < len(own[column])
                    row[column] = key if is_new or not isinstance(value, str) else f"{key} {place}"
            for columns, some in parents:
                null = not some or (table.nullable.issuperset(columns) and rng.random() < self.empty)
                row |= zip(columns, (None,) * len(columns) if null else rng.choice(some), strict=True)
            keys = {(key, tuple(row[column] for column in columns)) for key, columns in enumerate(table.keys)}
            if not any(key in taken for key in keys if None not in key[1]):
                taken |= keys
                found.append(tuple(row.values()))
        return found

    def _parents(self, other: str, columns: Sequence[str]) -> list[Row]:
        """Return what rows of another table hold in columns, some of it more often than the rest."""
        places = [self.tables[other].columns.index(column) for column in columns]
        known = [*dict.fromkeys(tuple(row[place] for place in places) for row in self.rows[other])]
        some = self.rng.sample(known, max(min(1, len(known)), round(len(known) * self.rng.choice((0.4, 0.7, 1)))))
        return some + some[: 1 + len(some) // 4] * self.rng.choice((0, 2, 4))


class Contents(ABC):
    """Other contents of what an SQLite file holds."""

    tables: dict[str, Table]
    _empty: bytes

    def content(self, queries: Sequence[str], number: int) -> bytes:
        """Return the content that this number names, as an SQLite file: the same for the same queries."""
        connection = opened(self._empty)
        rng = random.Random("\0".join((*self.tables, *queries, str(number))))  # noqa: S311  to be the same again
        self._write(connection, Drawing(self.tables, self._constants(queries), rng).rows)
        return bytes(connection.serialize("main"))

    @abstractmethod
    def _constants(self, queries: Sequence[str]) -> dict[str, list[Any]]:
        """Return the literals of queries by the name, in lower case, of the column that each is compared with."""

    @abstractmethod
    def _write(self, connection: Any, made: Mapping[str, Sequence[Row]]) -> None:
        """Write the rows of each table into an empty content."""


class SqliteContents(Contents):
    """Other contents of a database. content: of an SQLite file that opens in memory."""

    def __init__(self, content: bytes, dialect: str = "sqlite") -> None:
        """Read the tables. dialect: of the expected queries, by sqlglot's name."""
        connection = opened(content)
        self.tables, self._dialect = read_tables(connection), dialect
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {quoted(name)}")
        for name in self.tables:
            connection.execute(f"DELETE FROM {quoted(name)}")  # noqa: S608
        connection.execute("VACUUM")
        self._empty = bytes(connection.serialize("main"))

    def _constants(self, queries: Sequence[str]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = defaultdict(list)
        for query in queries:
            try:
                tree = parse_one(query, dialect=self._dialect)
            except (errors.SqlglotError, RecursionError):
                continue
            for node in tree.find_all(exp.Predicate, exp.Between, exp.In):
                known = [one.name if one.is_string else numeric(one.name) for one in node.find_all(exp.Literal)]
                columns = list(node.find_all(exp.Column))
                # SQLite reads a quoted name that no table has as a text
                known += [one.name for one in columns if one.this.args.get("quoted") and not one.table]
                for column in columns:
                    found[column.name.lower()] += known
        return found

    def _write(self, connection: Any, made: Mapping[str, Sequence[Row]]) -> None:
        for name, rows in made.items():
            listed = [quoted(column) for column in self.tables[name].columns]
            into = f"INTO {quoted(name)} ({', '.join(listed)}) VALUES ({', '.join('?' * len(listed))})"
            for row in rows:
                with suppress(apsw.Error):  # of a STRICT table, or a key that is a whole number
                    connection.execute(f"INSERT OR IGNORE {into}", row)
        dangling = []
        for table, (columns, other, theirs) in ((one, to) for one in self.tables.values() for to in one.foreign):
            is_set = " AND ".join(f"child.{quoted(column)} IS NOT NULL" for column in columns)
            pairs = zip(columns, theirs, strict=True)
            same = " AND ".join(f"child.{quoted(one)} = parent.{quoted(another)}" for one, another in pairs)
            there = f"SELECT 1 FROM {quoted(other)} AS parent WHERE {same}"  # noqa: S608
            child = f"{quoted(table.name)} AS child WHERE {is_set}"
            dangling.append(f"DELETE FROM {child} AND NOT EXISTS ({there})")  # noqa: S608
        left = -1
        while left != (left := connection.total_changes()):  # a row that is gone may leave others without a parent
            for statement in dangling:
                connection.execute(statement)


def opened(content: bytes) -> Any:
    """Return a connection to a database in memory."""
    connection = apsw.Connection(":memory:")
    connection.deserialize("main", content)
    return connection


def quoted(name: str) -> str:
    """Return a name in SQL."""
    return '"' + name.replace('"', '""') + '"'


_STORED: Mapping[type, str] = {int: "int", float: "real", str: "text", bool: "bool", bytes: "json"}
ID, START, END = "#id", "#start", "#end"
_COMPARED = re.compile(
    r"(\w+)`?\s*(?::|=~?|<>|[<>]=?|\b(?:CONTAINS|STARTS WITH|ENDS WITH|IN)\b)\s*"
    r"(\[[^\]]*\]|'[^']*'|\"[^\"]*\"|-?\d+(?:\.\d+)?)",
    re.IGNORECASE,
)
_LITERAL = re.compile(r"'([^']*)'|\"([^\"]*)\"|(-?\d+(?:\.\d+)?)")


class Group(NamedTuple):
    """Nodes of some labels, or relationships of a type between two groups of nodes.

    loops: whether one of them leads to where it starts.
    """

    table: Table
    labels: tuple[str, ...] = ()
    type: str = ""
    loops: bool = True


def read_graph(connection: Any) -> list[Group]:
    """Return the nodes and relationships of a graph as tables."""
    labels: dict[int, tuple[str, ...]] = {
        node: () for (node,) in connection.execute("SELECT id FROM nodes ORDER BY id")
    }
    for node, label in connection.execute("SELECT node_id, label FROM node_labels ORDER BY label"):
        labels[node] += (label,)
    held, groups = _properties(connection, "node"), []
    for names in dict.fromkeys(labels.values()):
        nodes = {(node,): held[node] for node, of in labels.items() if of == names}
        groups.append(Group(_as_table(":".join(names), [ID], list(nodes.items()), [(ID,)]), names))
    held = _properties(connection, "edge")
    found: dict[tuple[str, str, str], list[tuple[tuple[int, ...], Mapping[str, Any]]]] = defaultdict(list)
    for edge, start, end, kind in connection.execute("SELECT id, source_id, target_id, type FROM edges ORDER BY id"):
        found[kind, ":".join(labels[start]), ":".join(labels[end])].append(((start, end), held[edge]))
    for (kind, one, other), members in found.items():
        ends = [first for first, _ in members]
        keys: list[tuple[str, ...]] = [(START, END)] if len({*ends}) == len(ends) else []
        table = _as_table(f"{one}-{kind}-{other}", [START, END], members, keys)
        table.foreign = [((START,), one, (ID,)), ((END,), other, (ID,))]
        groups.append(Group(table, (), kind, loops=one != other or any(a == b for a, b in ends)))
    return groups


def _properties(connection: Any, of: str) -> Mapping[int, Mapping[str, Any]]:
    """Return the properties of each node or edge; a list or map is JSON in bytes."""
    found: dict[int, dict[str, Any]] = defaultdict(dict)
    for type_, kind in _STORED.items():
        table = f"{of}_props_{kind} JOIN property_keys k ON k.id = key_id"
        query = f"SELECT {of}_id, key, value FROM {table} ORDER BY {of}_id, k.id"  # noqa: S608  none of it is a stranger's
        for member, key, value in connection.execute(query):
            found[member][key] = value.encode() if type_ is bytes else type_(value)
    return found


def _as_table(
    name: str, ids: list[str], members: Sequence[tuple[Sequence[int], Mapping[str, Any]]], keys: list[tuple[str, ...]]
) -> Table:
    names = list(dict.fromkeys(key for _, properties in members for key in properties))
    rows = [(*own, *(properties.get(key) for key in names)) for own, properties in members]
    return Table(name, [*ids, *names], {*names}, keys, rows=rows)


class GraphContents(Contents):
    """Other contents of a graph. content: of the SQLite database that graphqlite keeps it in."""

    def __init__(self, content: bytes) -> None:
        """Read the graph."""
        connection = opened(content)
        self._groups = read_graph(connection)
        self.tables = {group.table.name: group.table for group in self._groups}
        self.names = {
            "label": {name for group in self._groups for name in group.labels},
            "type": {group.type for group in self._groups},
            "property": {name for group in self._groups for name in group.table.nullable},
        }
        """What the graph has, by its sort."""
        properties = (f"{of}_props_{kind}" for of in ("node", "edge") for kind in _STORED.values())
        for table in ("nodes", "edges", "node_labels", *properties):
            connection.execute(f"DELETE FROM {table}")  # noqa: S608
        connection.execute("PRAGMA page_size = 512").fetchall()  # it is put in place of another often
        connection.execute("VACUUM")
        self._empty = bytes(connection.serialize("main"))

    def _constants(self, queries: Sequence[str]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = defaultdict(list)
        for name, text in (match for query in queries for match in _COMPARED.findall(query)):
            for one, other, number in _LITERAL.findall(text):
                found[name.lower()].append(numeric(number) if number else one or other)
        return found

    def _write(self, connection: Any, made: Mapping[str, Sequence[Row]]) -> None:
        keys = dict(connection.execute("SELECT key, id FROM property_keys").fetchall())
        place, edges = {name: number for number, name in enumerate(self.tables)}, 0

        def describe(of: str, member: int, names: Sequence[str], values: Sequence[Any]) -> None:
            for name, value in zip(names, values, strict=True):
                if value is not None:
                    plain = value.decode() if isinstance(value, bytes) else value
                    into = f"INSERT INTO {of}_props_{_STORED[type(value)]} VALUES (?, ?, ?)"  # noqa: S608
                    connection.execute(into, (member, keys[name], plain))

        for group in self._groups:
            table, size = group.table, len(self._groups)
            ends = [place[other] for _, other, _ in table.foreign]
            for row in made[table.name]:
                if group.type and (group.loops or row[0] != row[1]) and None not in row[:2]:
                    edges += 1
                    nodes = [own * size + end for own, end in zip(row, ends, strict=False)]
                    connection.execute("INSERT INTO edges VALUES (?, ?, ?, ?)", (edges, *nodes, group.type))
                    describe("edge", edges, table.columns[2:], row[2:])
                elif not group.type:
                    node = row[0] * size + place[table.name]
                    connection.execute("INSERT INTO nodes VALUES (?)", (node,))
                    connection.executemany(
                        "INSERT INTO node_labels VALUES (?, ?)", [(node, one) for one in group.labels]
                    )
                    describe("node", node, table.columns[1:], row[1:])
