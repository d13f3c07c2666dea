"""Other contents of a case's database or graph, on which a query that is right by luck is not. Runs in the worker's process.

Rows are drawn anew: keys stay keys, references refer to rows that are there, and among the values are the constants of the
expected queries and what differs from them by little. So are the values and the relationships of a graph, whose nodes stay.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import apsw
from sqlglot import TokenType

from expert_cli.data.database_prompt import quoted
from expert_cli.evaluation.verifiers.query_text import TEXTS, Dialect, tokens
from expert_cli.evaluation.verifiers.result_rows import Row

MOST_READ = 2_000
_TABLES = """
SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND substr(name, 1, 7) <> 'sqlite_' ORDER BY name
"""
_KEYS = """
SELECT max(part.name) FROM pragma_index_list(?) AS list JOIN pragma_index_info(list.name) AS part
WHERE list."unique" AND NOT list.partial GROUP BY list.name HAVING count(part.name) = 1 AND count(*) = 1 ORDER BY list.seq
"""
_REFERENCES = """
SELECT ours.name, other.name, theirs.name FROM pragma_foreign_key_list(?1) AS key
JOIN pragma_table_xinfo(?1) AS ours ON ours.name = key."from" COLLATE NOCASE
JOIN pragma_table_list AS other ON other.name = key."table" COLLATE NOCASE AND other.schema = 'main'
JOIN pragma_table_xinfo(key."table") AS theirs ON theirs.name = key."to" COLLATE NOCASE OR key."to" IS NULL AND theirs.pk = 1
"""
_KEY_NAME = re.compile(r"(?:.*[_\s]|.*(?=I[dD]$))?(?:id|code|no|nr|num|number|key|isbn|ssn|uuid)|id_.*", re.IGNORECASE)


Way = Callable[[Sequence[str], int], Any]
"""Returns the content that a number names: the same for the same expected queries."""


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
        for column, other, key in connection.execute(_REFERENCES, (name,)).fetchall():
            table.foreign |= {column: (other, key)} if other in tables and column in table.columns else {}
        table.keys = table.keys or [column for column in table.columns if _is_key(column, name, table)][:1]
    for table in tables.values():
        for place, column in enumerate(table.columns):
            held = {*table.values(column)}
            if held and column not in table.foreign and (place or column not in table.keys):
                told = (  # columns are named after the key that has all of their values
                    (name, key)
                    for name, other in tables.items()
                    for key in other.keys[:1]
                    if other is not table and _refers(column, name, key) and held <= {*other.values(key)}
                )
                table.foreign.update((column, one) for one in list(told)[:1])
    return tables


def _table(connection: Any, name: str) -> FilledTable:
    info = [row for row in connection.execute("SELECT * FROM pragma_table_xinfo(?)", (name,)) if row[6] == 0]
    columns, primary = [row[1] for row in info], [row[1] for row in info if row[5]]
    query = f"SELECT {', '.join(map(quoted, columns))} FROM {quoted(name)} LIMIT {MOST_READ}"  # noqa: S608
    unique = [column for (column,) in connection.execute(_KEYS, (name,))]
    keys = [*dict.fromkeys((primary if len(primary) == 1 else []) + unique)]
    nullable = {row[1] for row in info if not row[3]}.difference(primary)
    return FilledTable(columns, nullable, keys, connection.execute(query).fetchall())


def _is_key(column: str, name: str, table: FilledTable) -> bool:
    values, is_named = table.values(column), column == table.columns[0] or _refers(column, name, "id")
    return bool(is_named and _KEY_NAME.fullmatch(column) and values and len({*values}) == len(table.rows))


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
    """Return drawn rows of every table, always the same for a seed; named: constants, by column in lower case."""
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


def database_contents(file: bytes, dialect: Dialect = "sqlite") -> Way:
    """Return what makes others of a database. file: opens in memory; dialect: of the expected queries."""
    source, dangling = opened(file), list[str]()
    tables = read_tables(source)
    for (name,) in source.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        source.execute(f"DROP TRIGGER {quoted(name)}")
    empty = emptied(source, tables)
    for name, table in tables.items():
        for column, (other, theirs) in table.foreign.items():
            there = f"SELECT {quoted(theirs)} FROM {quoted(other)} WHERE {quoted(theirs)} IS NOT NULL"  # noqa: S608
            dangling.append(f"DELETE FROM {quoted(name)} WHERE {quoted(column)} NOT IN ({there})")  # noqa: S608

    def content(queries: Sequence[str], number: int) -> bytes:
        named = constants(queries, dialect, {name.lower() for table in tables.values() for name in table.columns})
        connection, made = opened(empty), draw(tables, named, (*queries, str(number)))
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


def constants(queries: Sequence[str], dialect: Dialect, known: Collection[str]) -> Mapping[str, list[Any]]:
    """Return the constants of queries by the known name, in lower case, that each stands behind."""
    found: dict[str, list[Any]] = defaultdict(list)
    for query in queries:
        name = ""
        for token in tokens(query, dialect):
            if token.token_type not in TEXTS and token.text.lower() in known:
                name = token.text.lower()
            elif token.token_type in (TokenType.LIMIT, TokenType.OFFSET):
                name = ""
            elif token.token_type is TokenType.NUMBER:
                found[name].append(float(token.text) if re.search("[.eE]", token.text) else int(token.text))
            elif token.token_type in (*TEXTS, TokenType.IDENTIFIER):  # a quoted name of nothing is a text to SQLite
                found[name].append(token.text)
    return found


def opened(content: bytes) -> Any:
    """Return a connection to a database in memory."""
    connection = apsw.Connection(":memory:")
    connection.deserialize("main", content)
    return connection


_LABELS = """
SELECT nodes.id, coalesce(group_concat(label, ':' ORDER BY label), '') FROM nodes LEFT JOIN node_labels ON node_id = nodes.id
GROUP BY nodes.id
"""
_STORED = {int: "int", float: "real", str: "text"}


def graph_contents(file: bytes) -> Way:
    """Return what makes others of a graph: properties get values of their like, relationships other ends of the same labels,
    and some nodes are left out. file: the SQLite database that graphqlite keeps it in.
    """
    source = opened(file)
    kinds: dict[str, dict[int, Any]] = {"node": dict(source.execute(_LABELS)), "edge": {}}
    edges = source.execute("SELECT id, type, source_id, target_id FROM edges").fetchall()
    for edge, type_, *ends in edges:
        kinds["edge"][edge] = type_, *map(kinds["node"].get, ends)
    alike: dict[Any, list[int]] = defaultdict(list)
    for member, kind in (pair for of in kinds.values() for pair in of.items()):
        alike[kind].append(member)
    held: dict[Any, list[tuple[str, Any]]] = defaultdict(list)  # by what has it, of which kind, and its key
    tables = {f"{of}_props_{stored}": of for of in kinds for stored in ("int", "real", "text", "bool", "json")}
    for table, of in tables.items():
        for member, key, value in source.execute(f"SELECT * FROM {table} ORDER BY 1, 2"):  # noqa: S608
            held[of, kinds[of][member], key].append((table, value))
    names = {number: name.lower() for name, number in source.execute("SELECT key, id FROM property_keys")}
    ways = {tuple(way) for _, *way in edges}
    loops, repeats = any(start == end for _, start, end in ways), len(ways) < len(edges)
    source.execute("PRAGMA page_size = 512").fetchall()  # it is put in place of another often
    empty = emptied(source, ("edges", *tables))

    def content(queries: Sequence[str], number: int) -> bytes:
        rng, connection, seen = random.Random("\n".join((*queries, str(number)))), opened(empty), set[Any]()  # noqa: S311
        connection.execute("PRAGMA foreign_keys = ON")
        named = constants(queries, "cypher", {*names.values()})
        for edge, type_, *ends in edges:
            few = rng.choice((2, 5, None))
            start, end = (rng.choice(alike[kinds["node"][node]][:few]) for node in ends)
            if (loops or start != end) and (repeats or (type_, start, end) not in seen):
                connection.execute("INSERT INTO edges VALUES (?, ?, ?, ?)", (edge, start, end, type_))
                seen |= {edge, (type_, start, end)}
        missing, wanted = rng.choice((0.05, 0.1, 0.25)), rng.choice((0.2, 0.4, 0.7))
        for (of, kind, key), values in held.items():
            some = rng.sample(values, min(len(values), rng.choice((1, 3, 12, 1000))))
            for member in alike[kind]:
                table, value = rng.choice(some)
                if (some_named := named.get(names[key])) and rng.random() < wanted:
                    value = rng.choice(near(rng.choice(some_named)))
                    table = f"{of}_props_{_STORED[type(value)]}"
                if rng.random() >= missing and (of == "node" or member in seen):
                    connection.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", (member, key, value))  # noqa: S608
        for node in rng.sample([*kinds["node"]], round(len(kinds["node"]) * rng.choice((0, 0.1, 0.3)))):
            connection.execute("DELETE FROM nodes WHERE id = ?", (node,))  # and all that is of it
        return bytes(connection.serialize("main"))

    return content
