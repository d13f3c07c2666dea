"""Other contents of a case's database or graph, on which a query that is right by luck is not. Runs in the worker's process.

Rows are drawn anew: keys stay keys, references refer to rows that are there, and among the values are the constants of the
expected queries and what differs from them by little. graphqlite keeps a graph in tables of SQLite: the nodes of one set of
labels are drawn as a table, the relationships of one type between two of them as another one, whose first two columns refer to
the nodes. Properties are columns.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import apsw
from sqlglot import errors, exp, parse_one

from expert_cli.evaluation.verifiers.result_rows import Row

MOST_READ = 2_000
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND sql NOT LIKE 'CREATE VIRTUAL%'"
_KEY_NAME = re.compile(r"(?:.*[_\s]|.*(?=I[dD]$))?(?:id|code|no|nr|num|number|key|isbn|ssn|uuid)|id_.*", re.IGNORECASE)
for _dialect in ("sqlite", "postgres"):  # loads the dialects while the process may still open files
    parse_one("SELECT 1", dialect=_dialect)


@dataclass
class FilledTable:
    """A table. keys: columns whose values no two rows share; foreign: columns, and the table and columns they refer to."""

    name: str
    columns: list[str]
    nullable: set[str]
    keys: list[tuple[str, ...]]
    rows: list[Row]
    foreign: list[tuple[tuple[str, ...], str, tuple[str, ...]]] = field(default_factory=list)

    def values(self, column: str) -> list[Any]:
        """Return what a column holds, without NULL."""
        place = self.columns.index(column)
        return [row[place] for row in self.rows if row[place] is not None]

    def named(self, names: Iterable[str | None]) -> tuple[str, ...]:
        """Return columns, which SQLite knows in any case; none where one is not there."""
        known = {column.lower(): column for column in self.columns}
        found = [known.get(str(name).lower(), "") for name in names]
        return tuple(found) if all(found) else ()


def read_tables(connection: Any) -> dict[str, FilledTable]:
    """Return the tables that rows can be written to, but for generated columns; keys that are not declared are told."""
    shadows = {row[1] for row in connection.execute("PRAGMA table_list") if row[2] == "shadow"}
    tables = dict[str, FilledTable]()
    for (name,) in connection.execute(f"{_TABLES} ORDER BY name").fetchall():
        with suppress(
            UnicodeError, apsw.SQLError
        ):  # texts that are not UTF-8, or generated columns alone: it stays as it is
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


def _table(connection: Any, name: str) -> FilledTable:
    info = [row for row in connection.execute("SELECT * FROM pragma_table_xinfo(?)", (name,)) if row[6] == 0]
    columns = [row[1] for row in info]
    listed = ", ".join(map(quoted, columns))
    rows = connection.execute(f"SELECT {listed} FROM {quoted(name)} LIMIT {MOST_READ}").fetchall()  # noqa: S608
    primary = tuple(row[1] for row in sorted(info, key=lambda row: row[5]) if row[5])
    table = FilledTable(name, columns, {row[1] for row in info if not row[3]}.difference(primary), [primary], rows)
    unique = 'SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial'
    for (index,) in connection.execute(unique, (name,)).fetchall():
        of_index = connection.execute("SELECT name FROM pragma_index_info(?)", (index,)).fetchall()
        table.keys.append(table.named(column for (column,) in of_index))
    table.keys = [*dict.fromkeys(filter(None, table.keys))]
    return table


def _declared_references(connection: Any, table: FilledTable, tables: Mapping[str, FilledTable]) -> Iterable[Any]:
    known = {name.lower(): other for name, other in tables.items()}
    declared = 'SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?) ORDER BY id, seq'
    for _, group in groupby(connection.execute(declared, (table.name,)).fetchall(), key=lambda row: row[0]):
        parts = list(group)
        if other := known.get(parts[0][1].lower()):
            primary = (*(other.keys[0] if other.keys else ()), *[None] * len(parts))
            ours = table.named(part[2] for part in parts)
            theirs = other.named(part[3] or key for part, key in zip(parts, primary, strict=False))
            if ours and theirs:
                yield ours, other.name, theirs


def _told_references(table: FilledTable, tables: Mapping[str, FilledTable]) -> Iterable[Any]:
    """Yield references that are not declared: columns named after another table's key, with none but its values."""
    known = {column for columns, _, _ in table.foreign for column in columns}
    for place, column in enumerate(table.columns):
        values = {*table.values(column)}
        if column in known or not values or (not place and (column,) in table.keys):
            continue
        for other in tables.values():
            keys = [key for key in other.keys if len(key) == 1 and _refers(column, other.name, key[0])]
            if other is not table and keys and values <= {*other.values(keys[0][0])}:
                yield (column,), other.name, keys[0]
                break


def _refers(column: str, table: str, key: str) -> bool:
    """Whether a column's name says that it holds a table's key."""
    column, table, key = column.lower(), table.lower(), key.lower()
    singular = {table, table.removesuffix("s"), table.removesuffix("es"), re.sub(r"ies$", "y", table)}
    if any(column in (f"{one}_{key}", f"{one}{key}", f"{one}_id") for one in singular):
        return True
    return key not in ("id", "code", "no", "number") and (column == key or column.endswith(f"_{key}"))


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

    def __init__(
        self, tables: Mapping[str, FilledTable], named: Mapping[str, Sequence[Any]], seed: Sequence[str]
    ) -> None:
        """Draw. named: constants, by the column in lower case. seed: texts for which the content is always the same."""
        self.rng = rng = random.Random("\0".join((*tables, *seed)))  # noqa: S311
        self.tables, self.named, self.rows = tables, named, dict[str, list[Row]]()
        self.fresh, self.empty = rng.choice((0.15, 0.5, 0.9)), rng.choice((0, 0, 0.1, 0.25))
        self.scale, self.meets = rng.choice((8, 20, 40, 60)), rng.choice((0, 0, 0, 0.7))
        left = dict(tables)
        while left:
            free = [one for one in left.values() if not any(of in left and of != one.name for _, of, _ in one.foreign)]
            for table in free or [next(iter(left.values()))]:
                del left[table.name]
                self.rows[table.name] = [] if rng.random() < 0.03 else self._drawn(table)

    def _drawn(self, table: FilledTable) -> list[Row]:
        rng = self.rng
        own = {column: table.values(column) or ["a", "b", 1, 2] for column in table.columns}
        usual = {column: rng.sample(some, min(len(some), rng.choice((1, 2, 3, 5, 12)))) for column, some in own.items()}
        wanted = {column: [*map(near, self.named.get(column.lower(), ()))] for column in own}
        single = {key[0] for key in table.keys if len(key) == 1}
        parents = [(ours, self._parents(other, theirs)) for ours, other, theirs in table.foreign if other in self.rows]

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

        def key_of(column: str, value: Any, place: int) -> Any:  # texts repeat: they are told apart by a number
            some = own[column]
            key, is_new = some[place % len(some)], place < len(some) or not isinstance(value, str)
            return place + 1 if isinstance(some[0], int) else key if is_new else f"{key} {place}"

        found, taken = list[Row](), set[tuple[int, Row]]()
        for place in range(self.scale):
            base = dict(zip(own, rng.choice(table.rows) if table.rows else (None,) * len(own), strict=True))
            row = {one: key_of(one, old, place) if one in single else value_of(one, old) for one, old in base.items()}
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


def emptied(connection: Any, tables: Iterable[str]) -> bytes:
    """Return a database without the rows of tables, as an SQLite file."""
    for name in tables:
        connection.execute(f"DELETE FROM {quoted(name)}")  # noqa: S608
    connection.execute("VACUUM")
    return bytes(connection.serialize("main"))


class SqliteContents:
    """Other contents of a database. content: of an SQLite file that opens in memory."""

    def __init__(self, content: bytes, dialect: str = "sqlite") -> None:
        """Read the tables. dialect: of the expected queries, by sqlglot's name."""
        connection = opened(content)
        self.tables, self._dialect = read_tables(connection), dialect
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {quoted(name)}")
        self._empty = emptied(connection, self.tables)

    def _constants(self, queries: Sequence[str]) -> Mapping[str, list[Any]]:
        """Return the literals of queries by the name, in lower case, of the column that each is compared with."""
        found: dict[str, list[Any]] = defaultdict(list)
        for query in queries:
            with suppress(errors.SqlglotError, RecursionError):
                for node in parse_one(query, dialect=self._dialect).find_all(exp.Predicate, exp.Between, exp.In):
                    known = [one.name if one.is_string else numeric(one.name) for one in node.find_all(exp.Literal)]
                    columns = list(node.find_all(exp.Column))
                    # SQLite reads a quoted name that no table has as a text
                    known += [one.name for one in columns if one.this.args.get("quoted") and not one.table]
                    for column in columns:
                        found[column.name.lower()] += known
        return found

    def content(self, queries: Sequence[str], number: int) -> bytes:
        """Return the content that this number names, as an SQLite file: the same for the same queries."""
        connection, dangling = opened(self._empty), list[str]()
        made = Drawing(self.tables, self._constants(queries), (*queries, str(number))).rows
        for name, table in self.tables.items():
            into = f"INTO {quoted(name)} ({', '.join(map(quoted, table.columns))})"
            values = ", ".join("?" * len(table.columns))
            for row in made[name]:
                with suppress(apsw.Error):  # of a STRICT table, or a key that is a whole number
                    connection.execute(f"INSERT OR IGNORE {into} VALUES ({values})", row)  # noqa: S608
            for columns, other, theirs in table.foreign:
                is_set = " AND ".join(f"child.{quoted(column)} IS NOT NULL" for column in columns)
                pairs = zip(columns, theirs, strict=True)
                same = " AND ".join(f"child.{quoted(one)} = parent.{quoted(another)}" for one, another in pairs)
                there = f"SELECT 1 FROM {quoted(other)} AS parent WHERE {same}"  # noqa: S608
                child = f"{quoted(name)} AS child WHERE {is_set}"
                dangling.append(f"DELETE FROM {child} AND NOT EXISTS ({there})")  # noqa: S608
        left = -1
        while left != (left := connection.total_changes()):  # a row that is gone may leave others without a parent
            for statement in dangling:
                connection.execute(statement)
        return bytes(connection.serialize("main"))


def opened(content: bytes) -> Any:
    """Return a connection to a database in memory."""
    connection = apsw.Connection(":memory:")
    connection.deserialize("main", content)
    return connection


def quoted(name: str) -> str:
    """Return a name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def numeric(text: str) -> int | float:
    """Return what a literal stands for."""
    return float(text) if re.search("[.eE]", text) else int(text)


_STORED: Mapping[type, str] = {int: "int", float: "real", str: "text", bool: "bool", bytes: "json"}
ID, START, END = "#id", "#start", "#end"
_COMPARED = re.compile(
    r"(\w+)`?\s*(?::|=~?|<>|[<>]=?|\b(?:CONTAINS|STARTS WITH|ENDS WITH|IN)\b)\s*"
    r"(\[[^\]]*\]|'[^']*'|\"[^\"]*\"|-?\d+(?:\.\d+)?)",
    re.IGNORECASE,
)
_LITERAL = re.compile(r"'([^']*)'|\"([^\"]*)\"|(-?\d+(?:\.\d+)?)")


def read_graph(connection: Any) -> tuple[dict[str, FilledTable], dict[str, str]]:
    """Return the nodes of each set of labels, and the relationships of a type between two of them, as tables; and these types.

    Tables are named "Admin:Person" and "Admin:Person-KNOWS-Person". A list or map is JSON in bytes.
    """
    held: dict[tuple[str, int], dict[str, Any]] = defaultdict(dict)
    for of, (type_, kind) in ((of, stored) for of in ("node", "edge") for stored in _STORED.items()):
        table = f"{of}_props_{kind} JOIN property_keys k ON k.id = key_id"
        query = f"SELECT {of}_id, key, value FROM {table} ORDER BY {of}_id, k.id"  # noqa: S608  none of it is a stranger's
        for member, key, value in connection.execute(query):
            held[of, member][key] = value.encode() if type_ is bytes else type_(value)
    labels = {node: "" for (node,) in connection.execute("SELECT id FROM nodes ORDER BY id")}
    for node, label in connection.execute("SELECT node_id, label FROM node_labels ORDER BY label"):
        labels[node] += f":{label}" if labels[node] else label
    members: dict[tuple[str, ...], list[tuple[Row, dict[str, Any]]]] = defaultdict(list)
    for node, of in labels.items():
        members[(of,)].append(((node,), held["node", node]))
    for edge, start, end, kind in connection.execute("SELECT id, source_id, target_id, type FROM edges ORDER BY id"):
        members[labels[start], kind, labels[end]].append(((start, end), held["edge", edge]))
    tables, types = dict[str, FilledTable](), dict[str, str]()
    for (one, *rest), some in members.items():
        ids, name = ([START, END] if rest else [ID]), "-".join((one, *rest))
        names = list(dict.fromkeys(key for _, properties in some for key in properties))
        keys = [tuple(ids)] if len({own for own, _ in some}) == len(some) else []
        rows = [(*own, *map(properties.get, names)) for own, properties in some]
        tables[name] = FilledTable(name, [*ids, *names], {*names}, keys, rows)
        if rest:
            types[name], tables[name].foreign = rest[0], [((START,), one, (ID,)), ((END,), rest[1], (ID,))]
    return tables, types


class GraphContents:
    """Other contents of a graph. content: of the SQLite database that graphqlite keeps it in."""

    def __init__(self, content: bytes) -> None:
        """Read the graph."""
        connection = opened(content)
        self.tables, self._types = read_graph(connection)
        self.names = {
            "label": {label for name in self.tables.keys() - self._types for label in name.split(":")},
            "type": {*self._types.values()},
            "property": {name for table in self.tables.values() for name in table.nullable},
        }
        """What the graph has, by its sort."""
        properties = (f"{of}_props_{kind}" for of in ("node", "edge") for kind in _STORED.values())
        connection.execute("PRAGMA page_size = 512").fetchall()  # it is put in place of another often
        self._empty = emptied(connection, ("nodes", "edges", "node_labels", *properties))

    def _constants(self, queries: Sequence[str]) -> Mapping[str, list[Any]]:
        found: dict[str, list[Any]] = defaultdict(list)
        for name, text in (match for query in queries for match in _COMPARED.findall(query)):
            for one, other, number in _LITERAL.findall(text):
                found[name.lower()].append(numeric(number) if number else one or other)
        return found

    def content(self, queries: Sequence[str], number: int) -> bytes:
        """Return the content that this number names, as an SQLite file: the same for the same queries."""
        connection = opened(self._empty)
        made = Drawing(self.tables, self._constants(queries), (*queries, str(number))).rows
        keys = dict(connection.execute("SELECT key, id FROM property_keys").fetchall())
        place, edges = {name: number for number, name in enumerate(self.tables)}, 0

        def describe(of: str, member: int, names: Sequence[str], values: Sequence[Any]) -> None:
            for name, value in zip(names, values, strict=True):
                if value is not None:
                    plain = value.decode() if isinstance(value, bytes) else value
                    into = f"INSERT INTO {of}_props_{_STORED[type(value)]} VALUES (?, ?, ?)"  # noqa: S608
                    connection.execute(into, (member, keys[name], plain))

        for name, table in self.tables.items():
            if name not in self._types:
                for own, *values in made[name]:
                    node = own * len(place) + place[name]
                    connection.execute("INSERT INTO nodes VALUES (?)", (node,))
                    labels = [(node, label) for label in filter(None, name.split(":"))]
                    connection.executemany("INSERT INTO node_labels VALUES (?, ?)", labels)
                    describe("node", node, table.columns[1:], values)
                continue
            ends, loops = [place[other] for _, other, _ in table.foreign], any(row[0] == row[1] for row in table.rows)
            for row in made[name]:
                if None not in row[:2]:
                    start, end = (own * len(place) + of for own, of in zip(row, ends, strict=False))
                    if loops or start != end:
                        edges += 1
                        connection.execute(
                            "INSERT INTO edges VALUES (?, ?, ?, ?)", (edges, start, end, self._types[name])
                        )
                        describe("edge", edges, table.columns[2:], row[2:])
        return bytes(connection.serialize("main"))
