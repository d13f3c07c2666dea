"""Other contents of a graph of graphqlite, which keeps it in tables of SQLite. Runs in the worker's process.

The nodes of one set of labels are filled as a table, the relationships of one type between two of them as another one, whose
first two columns refer to the nodes. Properties are columns.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from expert_cli.evaluation.verifiers.contents import Drawing, Table, numeric, opened

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
        groups.append(Group(_table(":".join(names), [ID], list(nodes.items()), [(ID,)]), names))
    held = _properties(connection, "edge")
    found: dict[tuple[str, str, str], list[tuple[tuple[int, ...], Mapping[str, Any]]]] = defaultdict(list)
    for edge, start, end, kind in connection.execute("SELECT id, source_id, target_id, type FROM edges ORDER BY id"):
        found[kind, ":".join(labels[start]), ":".join(labels[end])].append(((start, end), held[edge]))
    for (kind, one, other), members in found.items():
        ends = [first for first, _ in members]
        keys: list[tuple[str, ...]] = [(START, END)] if len({*ends}) == len(ends) else []
        table = _table(f"{one}-{kind}-{other}", [START, END], members, keys)
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


def _table(
    name: str, ids: list[str], members: Sequence[tuple[Sequence[int], Mapping[str, Any]]], keys: list[tuple[str, ...]]
) -> Table:
    names = list(dict.fromkeys(key for _, properties in members for key in properties))
    rows = [(*own, *(properties.get(key) for key in names)) for own, properties in members]
    return Table(name, [*ids, *names], {*names}, keys, rows=rows)


def constants(queries: Iterable[str]) -> dict[str, list[Any]]:
    """Return the literals of queries by the property, in lower case, that each is compared with."""
    found: dict[str, list[Any]] = defaultdict(list)
    for name, text in (match for query in queries for match in _COMPARED.findall(query)):
        for one, other, number in _LITERAL.findall(text):
            found[name.lower()].append(numeric(number) if number else one or other)
    return found


class GraphContents:
    """Other contents of a graph. content: of the SQLite database that graphqlite keeps it in."""

    def __init__(self, content: bytes) -> None:
        """Read the graph."""
        connection = opened(content)
        self._groups = read_graph(connection)
        properties = (f"{of}_props_{kind}" for of in ("node", "edge") for kind in _STORED.values())
        for table in ("nodes", "edges", "node_labels", *properties):
            connection.execute(f"DELETE FROM {table}")  # noqa: S608
        connection.execute("PRAGMA page_size = 512").fetchall()  # it is put in place of another often
        connection.execute("VACUUM")
        self._empty = bytes(connection.serialize("main"))

    def content(self, queries: Sequence[str], number: int) -> bytes:
        """Return the content that this number names: the same for the same queries."""
        connection, tables = opened(self._empty), {group.table.name: group.table for group in self._groups}
        rng = random.Random("\0".join((*tables, *queries, str(number))))  # noqa: S311  to be the same again
        rows = Drawing(tables, constants(queries), rng).rows
        keys = dict(connection.execute("SELECT key, id FROM property_keys").fetchall())
        place, edges = {name: number for number, name in enumerate(tables)}, 0

        def describe(of: str, member: int, names: Sequence[str], values: Sequence[Any]) -> None:
            for name, value in zip(names, values, strict=True):
                if value is not None:
                    into = f"INSERT INTO {of}_props_{_STORED[type(value)]} VALUES (?, ?, ?)"  # noqa: S608
                    connection.execute(
                        into, (member, keys[name], value.decode() if isinstance(value, bytes) else value)
                    )

        for group in self._groups:
            table, size = group.table, len(self._groups)
            ends = [place[other] for _, other, _ in table.foreign]
            for row in rows[table.name]:
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
        return bytes(connection.serialize("main"))
