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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import apsw
from sqlglot import errors, exp, parse_one

from expert_cli.data.database_prompt import quoted
from expert_cli.evaluation.verifiers.result_rows import Row

MOST_READ = 2_000
_TABLES = """
SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND substr(name, 1, 7) <> 'sqlite_' ORDER BY name
"""
_KEYS = """
SELECT max(part.name) FROM pragma_index_list(?) AS list JOIN pragma_index_info(list.name) AS part
WHERE list."unique" AND NOT list.partial GROUP BY list.name HAVING count(part.name) = 1 AND count(*) = 1 ORDER BY list.seq
"""
_REFERENCES = 'SELECT "from", "table", "to" FROM pragma_foreign_key_list(?)'
_KEY_NAME = re.compile(r"(?:.*[_\s]|.*(?=I[dD]$))?(?:id|code|no|nr|num|number|key|isbn|ssn|uuid)|id_.*", re.IGNORECASE)
for _dialect in ("sqlite", "postgres"):  # loads the dialects while the process may still open files
    parse_one("SELECT 1", dialect=_dialect)


Contents = Callable[[Sequence[str], int], bytes]
"""Returns the content that a number names, as an SQLite file: the same for the same expected queries."""


@dataclass
class FilledTable:
    """A table. keys: columns of which each tells all rows apart; foreign: the table and column that a column refers to."""

    columns: list[str]
    nullable: set[str]
    keys: list[str]
    rows: list[Row]
    foreign: dict[str, tuple[str, str]] = field(default_factory=dict)

    def values(self, column: str) -> list[Any]:
        """Return what a column holds, without NULL."""
        place = self.columns.index(column)
        return [row[place] for row in self.rows if row[place] is not None]


def read_tables(connection: Any) -> dict[str, FilledTable]:
    """Return the tables that rows can be written to, without generated columns. Keys and references that are not declared are
    told by names and values.
    """
    tables = dict[str, FilledTable]()
    for (name,) in connection.execute(_TABLES).fetchall():
        # one of texts that are not UTF-8, or of generated columns alone, stays as it is
        with suppress(UnicodeError, apsw.SQLError):
            tables[name] = _table(connection, name)
    for name, table in tables.items():
        for ours, other, theirs in connection.execute(_REFERENCES, (name,)).fetchall():
            column, parent = _same_name(ours, table.columns), _same_name(other, tables)
            if parent:
                key = _same_name(theirs, tables[parent].columns) if theirs else "".join(tables[parent].keys[:1])
                table.foreign |= {column: (parent, key)} if column and key else {}
    for name, table in tables.items():
        table.keys = table.keys or [column for column in table.columns if _is_key(column, name, table)][:1]
    for table in tables.values():
        others = {name: one for name, one in tables.items() if one is not table}
        for place, column in enumerate(table.columns):
            if column not in table.foreign and (place or column not in table.keys):
                told = _told_reference(column, {*table.values(column)}, others)
                table.foreign |= {column: told} if told else {}
    return tables


def _table(connection: Any, name: str) -> FilledTable:
    info = [row for row in connection.execute("SELECT * FROM pragma_table_xinfo(?)", (name,)) if row[6] == 0]
    columns, primary = [row[1] for row in info], [row[1] for row in info if row[5]]
    query = f"SELECT {', '.join(map(quoted, columns))} FROM {quoted(name)} LIMIT {MOST_READ}"  # noqa: S608
    unique = [column for (column,) in connection.execute(_KEYS, (name,))]
    keys = [*dict.fromkeys((primary if len(primary) == 1 else []) + unique)]
    nullable = {row[1] for row in info if not row[3]}.difference(primary)
    return FilledTable(columns, nullable, keys, connection.execute(query).fetchall())


def _same_name(name: str, known: Iterable[str]) -> str:
    """Return the name as it was declared, which SQLite knows in any case; "" where it was not."""
    return next((one for one in known if one.lower() == name.lower()), "")


def _is_key(column: str, name: str, table: FilledTable) -> bool:
    values, is_named = table.values(column), column == table.columns[0] or _refers(column, name, "id")
    return bool(is_named and _KEY_NAME.fullmatch(column) and values and len({*values}) == len(table.rows))


def _told_reference(column: str, values: set[Any], others: Mapping[str, FilledTable]) -> tuple[str, str] | None:
    """Return the table and key that a column is named after, where it has values, and none but the key's."""
    for name, other in others.items():
        for key in other.keys[:1]:
            if values and _refers(column, name, key) and values <= {*other.values(key)}:
                return name, key
    return None


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


def draw(
    tables: Mapping[str, FilledTable], named: Mapping[str, Sequence[Any]], seed: Sequence[str]
) -> dict[str, list[Row]]:
    """Return drawn rows of every table, those that others refer to first.

    named: constants, by the column in lower case. seed: texts for which the rows are always the same.
    """
    rng, rows = random.Random("\n".join((*tables, *seed))), dict[str, list[Row]]()  # noqa: S311
    # shares of values that are not those of a row, and of NULL
    fresh, empty = rng.choice((0.15, 0.5, 0.9)), rng.choice((0, 0, 0.1, 0.25))
    # rows of a table; the share of constants themselves, for rows that meet several conditions at once, or all but one
    scale, meets = rng.choice((8, 20, 40, 60)), rng.choice((0, 0, 0, 0.7))

    def parents_of(other: str, column: str) -> list[Any]:
        """Return what rows of another table hold in a column, some of it more often than the rest."""
        place = tables[other].columns.index(column)
        known = [*dict.fromkeys(row[place] for row in rows[other])]
        some = rng.sample(known, max(min(1, len(known)), round(len(known) * rng.choice((0.4, 0.7, 1)))))
        return some + some[: 1 + len(some) // 4] * rng.choice((0, 2, 4))

    def rows_of(table: FilledTable) -> list[Row]:
        own = {column: table.values(column) or ["a", "b", 1, 2] for column in table.columns}
        usual = {column: rng.sample(some, min(len(some), rng.choice((1, 2, 3, 5, 12)))) for column, some in own.items()}
        wanted = {column: [*map(near, named.get(column.lower(), ()))] for column in own}
        parents = {column: parents_of(*of) for column, of in table.foreign.items() if of[0] in rows}

        def value_of(column: str, value: Any, place: int) -> Any:
            is_null = column in table.nullable and column not in table.keys and rng.random() < empty
            if is_null or column in parents:
                return None if is_null or not parents[column] else rng.choice(parents[column])
            if column in table.keys:  # texts repeat: they are told apart by a number
                key, is_new = own[column][place % len(own[column])], place < len(own[column])
                return place + 1 if isinstance(own[column][0], int) else key if is_new else f"{key} {place}"
            if wanted[column] and rng.random() < meets:
                value = rng.choice([alike[0] for alike in wanted[column]])
            elif wanted[column] and rng.random() < 0.4:
                value = rng.choice([one for alike in wanted[column] for one in alike])
            elif value is None or rng.random() < fresh:
                value = rng.choice(usual[column] if rng.random() < 0.9 else own[column])
            shifted = type(value) in (int, float) and rng.random() < 0.05
            return value + rng.choice((-1, 1, 1000, -1000)) if shifted else value

        bases = enumerate([rng.choice(table.rows or [(None,) * len(own)]) for _ in range(scale)])
        return [tuple(value_of(*pair, place) for pair in zip(own, base, strict=True)) for place, base in bases]

    left = dict(tables)
    while left:
        waits = {name for name, one in left.items() if any(of in left and of != name for of, _ in one.foreign.values())}
        for name in [one for one in left if one not in waits] or [*left][:1]:
            table = left.pop(name)
            rows[name] = [] if rng.random() < 0.03 else rows_of(table)
    return rows


def emptied(connection: Any, tables: Iterable[str]) -> bytes:
    """Return a database without the rows of tables, as an SQLite file."""
    for name in tables:
        connection.execute(f"DELETE FROM {quoted(name)}")  # noqa: S608
    connection.execute("VACUUM")
    return bytes(connection.serialize("main"))


def database_contents(file: bytes, dialect: str = "sqlite") -> Contents:
    """Return what makes others of a database. file: opens in memory; dialect: of the expected queries, by sqlglot's name."""
    source, dangling = opened(file), list[str]()
    tables = read_tables(source)
    for (name,) in source.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        source.execute(f"DROP TRIGGER {quoted(name)}")
    empty = emptied(source, tables)
    for name, table in tables.items():
        for column, (other, theirs) in table.foreign.items():
            there = f"SELECT 1 FROM {quoted(other)} AS parent WHERE child.{quoted(column)} = parent.{quoted(theirs)}"  # noqa: S608
            without = f"child.{quoted(column)} IS NOT NULL AND NOT EXISTS ({there})"
            dangling.append(f"DELETE FROM {quoted(name)} AS child WHERE {without}")  # noqa: S608

    def content(queries: Sequence[str], number: int) -> bytes:
        connection, made = opened(empty), draw(tables, _constants(queries, dialect), (*queries, str(number)))
        for name, table in tables.items():
            into = f"{quoted(name)} ({', '.join(map(quoted, table.columns))})"
            insert = f"INSERT OR IGNORE INTO {into} VALUES ({', '.join('?' * len(table.columns))})"  # noqa: S608
            for row in made[name]:
                with suppress(apsw.Error):  # of a STRICT table, or a key that is a whole number
                    connection.execute(insert, row)
        left = -1
        while left != (left := connection.total_changes()):  # a row that is gone may leave others without a parent
            for statement in dangling:
                connection.execute(statement)
        return bytes(connection.serialize("main"))

    return content


def _constants(queries: Sequence[str], dialect: str) -> Mapping[str, list[Any]]:
    """Return the literals of queries by the name, in lower case, of the column that each is compared with."""
    found: dict[str, list[Any]] = defaultdict(list)
    for query in queries:
        with suppress(errors.SqlglotError, RecursionError):
            for node in parse_one(query, dialect=dialect).find_all(exp.Predicate, exp.Between, exp.In):
                known = [one.name if one.is_string else numeric(one.name) for one in node.find_all(exp.Literal)]
                columns = list(node.find_all(exp.Column))
                # SQLite reads a quoted name that no table has as a text
                known += [one.name for one in columns if one.this.args.get("quoted") and not one.table]
                for column in columns:
                    found[column.name.lower()] += known
    return found


def opened(content: bytes) -> Any:
    """Return a connection to a database in memory."""
    connection = apsw.Connection(":memory:")
    connection.deserialize("main", content)
    return connection


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
        rows = [(*own, *map(properties.get, names)) for own, properties in some]
        tables[name] = FilledTable([*ids, *names], {*names}, [] if rest else [ID], rows)
        if rest:
            types[name], tables[name].foreign = rest[0], {START: (one, ID), END: (rest[1], ID)}
    return tables, types


def graph_contents(file: bytes) -> Contents:
    """Return what makes others of a graph. file: the SQLite database that graphqlite keeps it in."""
    source = opened(file)
    tables, types = read_graph(source)
    keys, place = dict(source.execute("SELECT key, id FROM property_keys")), {name: n for n, name in enumerate(tables)}
    properties = (f"{of}_props_{kind}" for of in ("node", "edge") for kind in _STORED.values())
    source.execute("PRAGMA page_size = 512").fetchall()  # it is put in place of another often
    empty = emptied(source, ("nodes", "edges", "node_labels", *properties))

    def content(queries: Sequence[str], number: int) -> bytes:
        found: dict[str, list[Any]] = defaultdict(list)
        for name, text in (match for query in queries for match in _COMPARED.findall(query)):
            for one, other, digits in _LITERAL.findall(text):
                found[name.lower()].append(numeric(digits) if digits else one or other)
        connection, made, edges = opened(empty), draw(tables, found, (*queries, str(number))), 0

        def describe(of: str, member: int, names: Sequence[str], values: Sequence[Any]) -> None:
            for name, value in zip(names, values, strict=True):
                if value is not None:
                    plain = value.decode() if isinstance(value, bytes) else value
                    into = f"INSERT INTO {of}_props_{_STORED[type(value)]} VALUES (?, ?, ?)"  # noqa: S608
                    connection.execute(into, (member, keys[name], plain))

        for name, table in tables.items():
            for own, *values in made[name] if name not in types else ():
                node = own * len(place) + place[name]
                connection.execute("INSERT INTO nodes VALUES (?)", (node,))
                labels = [(node, label) for label in filter(None, name.split(":"))]
                connection.executemany("INSERT INTO node_labels VALUES (?, ?)", labels)
                describe("node", node, table.columns[1:], values)
            ends, pairs = [place[other] for other, _ in table.foreign.values()], [row[:2] for row in table.rows]
            loops, repeats = any(row[0] == row[-1] for row in pairs), len({*pairs}) < len(pairs)
            drawn = made[name] if repeats else {row[:2]: row for row in made[name]}.values()
            for row in drawn if name in types else ():
                if None not in row[:2]:
                    start, end = (own * len(place) + of for own, of in zip(row, ends, strict=False))
                    if loops or start != end:
                        edges += 1
                        connection.execute("INSERT INTO edges VALUES (?, ?, ?, ?)", (edges, start, end, types[name]))
                        describe("edge", edges, table.columns[2:], row[2:])
        return bytes(connection.serialize("main"))

    return content
