"""Generates other contents for a case's database or graph, so that a query that is right by chance fails on one of them.

Rows are drawn at random: keys stay unique, references stay valid, and the values include the constants of the expected queries
and near misses. A graph keeps its nodes; properties and relationships are drawn. This runs in the worker process.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import apsw
from sqlglot import TokenType

from expert_cli.data.database_prompt import quoted
from expert_cli.evaluation.verifiers.query_rows import TEXTS, Dialect, tokens

MOST_READ = 2_000
_TABLES = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT GLOB 'sqlite_*'"
_REFERENCES = """
SELECT ours.name, other.name, theirs.name FROM pragma_foreign_key_list(?1) AS key
JOIN pragma_table_xinfo(?1) AS ours ON ours.name = key."from" COLLATE NOCASE
JOIN pragma_table_list AS other ON other.name = key."table" COLLATE NOCASE AND other.schema = 'main'
JOIN pragma_table_xinfo(key."table") AS theirs ON theirs.name = key."to" COLLATE NOCASE OR key."to" IS NULL AND theirs.pk = 1
"""
_KEY_NAME = re.compile(r"(?:.*_|.*(?=I[dD]$))?(?:id|code|no|number|key)", re.IGNORECASE)

Way = Callable[[Sequence[str], int], Any]
"""A function of the expected queries and a number that returns a content; the same arguments give the same content."""


@dataclass
class FilledTable:
    """A table. columns: the values of each column, without NULL; key: the column that identifies rows, "" for none;
    foreign: the table and column to which a column refers.
    """

    columns: dict[str, list[Any]]
    key: str
    foreign: dict[str, tuple[str, str]] = field(default_factory=dict)


def read_tables(connection: Any) -> dict[str, FilledTable]:
    """Return the tables that can be filled, without generated columns. Undeclared keys and references are recognized by names
    and values.
    """
    tables = dict[str, FilledTable]()
    for (name,) in connection.execute(_TABLES).fetchall():
        # a table with texts that are not UTF-8, or with generated columns alone, is left as it is
        with suppress(UnicodeError, apsw.SQLError):
            tables[name] = _table(connection, name)
    for name, table in tables.items():
        for column, other, key in connection.execute(_REFERENCES, (name,)).fetchall():
            if column in table.columns and other in tables and key in tables[other].columns:
                table.foreign[column] = other, key
    for table in tables.values():
        for column, held in table.columns.items():
            for name, other in tables.items() if held and column not in table.foreign else ():
                is_named = other.key and other is not table and _refers(column, name, other.key)
                if is_named and {*held} <= {*other.columns[other.key]}:
                    table.foreign[column] = name, other.key
    return tables


def _table(connection: Any, name: str) -> FilledTable:
    info = [row for row in connection.execute("SELECT * FROM pragma_table_xinfo(?)", (name,)) if row[6] == 0]
    names, primary = [row[1] for row in info], [row[1] for row in info if row[5]]
    query = f"SELECT {', '.join(map(quoted, names))} FROM {quoted(name)} LIMIT {MOST_READ}"  # noqa: S608
    rows = connection.execute(query).fetchall()
    columns = {name: [row[n] for row in rows if row[n] is not None] for n, name in enumerate(names)}
    is_key = _KEY_NAME.fullmatch(names[0]) and 0 < len(rows) == len({*columns[names[0]]})
    return FilledTable(columns, primary[0] if len(primary) == 1 else names[0] if is_key else "")


def _refers(column: str, table: str, key: str) -> bool:
    """Whether a column's name suggests that it refers to the key of a table."""
    column, stem, key = column.lower(), re.sub("(ies|e?s)$", "", table.lower()), key.lower()
    is_named = column.startswith(stem) and column.endswith((key, "id"))
    return is_named or (key not in ("id", "code", "no", "number") and f"_{column}".endswith(f"_{key}"))


def near(value: Any) -> list[Any]:
    """Return a constant twice (a text without % at its ends), and near misses of it."""
    if isinstance(value, int | float):
        return [value, value, value - 1, value + 1]
    core = str(value).strip("%")
    return [core, core, f"{core} b", f"a {core}", core.swapcase(), core[:-1]]


def _drawn(
    rng: random.Random, table: FilledTable, named: Mapping[str, list[Any]], parents: Mapping[str, list[Any]]
) -> dict[str, list[Any]]:
    """Return columns of random values. named: constants by column in lower case; parents: values that a column may refer to."""
    size, columns = rng.choice((8, 20, 40, 60)), dict[str, list[Any]]()
    for column, held in table.columns.items():
        own = held or ["a", "b", 1, 2]
        if column in parents:  # some of the parents, a few of them more often
            known = [*dict.fromkeys(parents[column])] or [None]
            some = rng.sample(known, max(1, round(len(known) * rng.choice((0.4, 0.7, 1)))))
            values = rng.choices(some + some[: 1 + len(some) // 4] * rng.choice((0, 2, 4)), k=size)
        elif column == table.key:  # more texts are made with numbers
            more = [*range(1, size + 1)] if isinstance(own[0], int) else [*own, *(f"{own[0]} {n}" for n in range(size))]
            values = more[:size]
        else:
            few, share = rng.sample(own, min(len(own), rng.choice((1, 2, 3, 5, 12)))), rng.choice((0.15, 0.5, 0.9))
            few += [one + step for one in few[:1] for step in (-1000, -1, 1, 1000) if isinstance(one, int | float)]
            wanted = [one for value in named.get(column.lower(), ()) for one in near(value)]
            pools = rng.choices((wanted, few, own), (0.7 if wanted else 0, share, 1 - share), k=size)
            values = [*map(rng.choice, pools)]
        empty = rng.choice((0, 0, 0.1, 0.25)) if column != table.key else 0  # share of NULL
        columns[column] = [None if rng.random() < empty else value for value in values]
    return columns


def _drawing(queries: Sequence[str], number: int) -> random.Random:
    return random.Random("\n".join((*queries, str(number))))  # noqa: S311


def database_contents(file: bytes, dialect: Dialect = "sqlite") -> Way:
    """Return a function that generates contents. file: a database that opens in memory; dialect: of the expected queries."""
    source, dangling, order = opened(file), list[str](), list[str]()
    tables = read_tables(source)
    known = {column.lower() for table in tables.values() for column in table.columns}
    for name, table in tables.items():
        source.execute(f"DELETE FROM {quoted(name)}")  # noqa: S608
        for column, (other, theirs) in table.foreign.items():
            there = f"SELECT {quoted(theirs)} FROM {quoted(other)} WHERE {quoted(theirs)} IS NOT NULL"  # noqa: S608
            dangling.append(f"DELETE FROM {quoted(name)} WHERE {quoted(column)} NOT IN ({there})")  # noqa: S608
    while left := [name for name in tables if name not in order]:  # parents first, except in a circle of references
        waits = {name for name in left if any(of in left and of != name for of, _ in tables[name].foreign.values())}
        order.append(next((name for name in left if name not in waits), left[0]))

    source.execute("VACUUM")
    empty = bytes(source.serialize("main"))

    def content(queries: Sequence[str], number: int) -> bytes:
        rng, connection = _drawing(queries, number), opened(empty)
        named, made = constants(queries, dialect, known), dict[str, dict[str, list[Any]]]()
        for name in order:
            parents = {of: made[to][key] for of, (to, key) in tables[name].foreign.items() if to in made}
            made[name] = _drawn(rng, tables[name], named, parents)
            into = f"{quoted(name)} ({', '.join(map(quoted, made[name]))})"
            insert = f"INSERT OR IGNORE INTO {into} VALUES ({', '.join('?' * len(made[name]))})"  # noqa: S608
            for row in zip(*made[name].values(), strict=True):
                with suppress(apsw.Error, OverflowError):  # from a STRICT table or an INTEGER PRIMARY KEY
                    connection.execute(insert, row)
        left = -1
        while left != (left := connection.total_changes()):  # deleting a row may leave others without a parent
            for statement in dangling:
                connection.execute(statement)
        return bytes(connection.serialize("main"))

    return content


def constants(queries: Sequence[str], dialect: Dialect, known: Collection[str]) -> Mapping[str, list[Any]]:
    """Return the constants in queries by the column name before them, in lower case."""
    found: dict[str, list[Any]] = defaultdict(list)
    for query in queries:
        name = ""
        for token in tokens(query, dialect):
            if token.token_type not in TEXTS and token.text.lower() in known:
                name = token.text.lower()
            elif token.token_type is TokenType.NUMBER:
                found[name].append(float(token.text) if re.search("[.eE]", token.text) else int(token.text))
            elif token.token_type in (*TEXTS, TokenType.IDENTIFIER):  # unknown quoted names are strings
                found[name].append(token.text)
    return found


def opened(content: bytes) -> Any:
    """Return a connection to a database in memory, with triggers disabled."""
    connection = apsw.Connection(":memory:")
    connection.deserialize("main", content)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    return connection


_COLUMNS = [("edges", "type", "target_id")] + [
    (f"{of}_props_{kind}", "key_id", "value")
    for of in ("node", "edge")
    for kind in ("int", "real", "text", "bool", "json")
]
_ODD = "source_id = target_id OR id NOT IN (SELECT min(id) FROM edges GROUP BY source_id, target_id, type)"


def graph_contents(file: bytes) -> Way:
    """Return a function that generates graphs: a property gets values of the same key, a relationship another end of its type.
    Parallel relationships and loops, which few graphs have, are removed. file: graphqlite's database.
    """
    keys = {number: name.lower() for name, number in opened(file).execute("SELECT key, id FROM property_keys")}

    def content(queries: Sequence[str], number: int) -> bytes:
        rng, graph, named = _drawing(queries, number), opened(file), constants(queries, "cypher", {*keys.values()})
        wanted, missing = rng.choice((0.2, 0.4, 0.7)), rng.choice((0.05, 0.1, 0.25))
        for table, of, column in _COLUMNS:
            held = defaultdict[Any, list[tuple[int, Any]]](list)
            for place, group, value in graph.execute(f"SELECT rowid, {of}, {column} FROM {table}"):  # noqa: S608
                held[group].append((place, value))
            for group, rows in held.items():
                some = [value for _, value in rng.sample(rows, min(len(rows), rng.choice((1, 3, 12, 1000))))]
                wished = (new for one in named.get(keys.get(group, ""), ()) for new in near(one))
                asked = [new for new in wished if type(new) is type(some[0])]
                for place, _ in rows:
                    new = rng.choice(asked if asked and rng.random() < wanted else some)
                    graph.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?", (new, place))  # noqa: S608
                    if rng.random() < missing and of != "type":
                        graph.execute(f"DELETE FROM {table} WHERE rowid = ?", (place,))  # noqa: S608
        graph.execute(f"DELETE FROM edges WHERE {_ODD}")  # noqa: S608
        return bytes(graph.serialize("main"))

    return content
