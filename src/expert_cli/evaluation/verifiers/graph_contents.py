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

from expert_cli.evaluation.verifiers.contents import Table, filled, opened
from expert_cli.evaluation.verifiers.rows import Row

_KINDS = ("int", "real", "text", "bool", "json")
_STORED: Mapping[type, str] = {bool: "bool", int: "int", float: "real", str: "text", bytes: "json"}
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
        nodes = [((node,), held[node]) for node, of in labels.items() if of == names]
        groups.append(Group(_table(":".join(names), (ID,), nodes, [(ID,)]), labels=names))
    held = _properties(connection, "edge")
    found: dict[tuple[str, str, str], list[tuple[tuple[int, int], Mapping[str, Any]]]] = defaultdict(list)
    for edge, start, end, kind in connection.execute("SELECT id, source_id, target_id, type FROM edges ORDER BY id"):
        found[kind, ":".join(labels[start]), ":".join(labels[end])].append(((start, end), held[edge]))
    for (kind, one, other), members in found.items():
        ends = [first for first, _ in members]
        keys: list[tuple[str, ...]] = [(START, END)] if len({*ends}) == len(ends) else []
        table = _table(f"{one}-{kind}-{other}", (START, END), members, keys)
        table.foreign = [((START,), one, (ID,)), ((END,), other, (ID,))]
        groups.append(Group(table, type=kind, loops=one != other or any(a == b for a, b in ends)))
    return groups


def _properties(connection: Any, of: str) -> Mapping[int, Mapping[str, Any]]:
    """Return the properties of each node or edge; a list or map is JSON in bytes."""
    found: dict[int, dict[str, Any]] = defaultdict(dict)
    for kind in _KINDS:
        table = f"{of}_props_{kind} JOIN property_keys k ON k.id = key_id"
        query = f"SELECT {of}_id, key, value FROM {table} ORDER BY {of}_id, k.id"  # noqa: S608  none of it is a stranger's
        for member, key, value in connection.execute(query):
            found[member][key] = bool(value) if kind == "bool" else value.encode() if kind == "json" else value
    return found


def _table(
    name: str,
    first: tuple[str, ...],
    members: Sequence[tuple[tuple[int, ...], Mapping[str, Any]]],
    keys: list[tuple[str, ...]],
) -> Table:
    names = list(dict.fromkeys(key for _, properties in members for key in properties))
    rows = [(*ids, *(properties.get(key) for key in names)) for ids, properties in members]
    return Table(name, [*first, *names], {*names}, keys, rows=rows)


def constants(queries: Iterable[str]) -> dict[str, list[Any]]:
    """Return the literals of queries by the property, in lower case, that each is compared with."""
    found: dict[str, list[Any]] = defaultdict(list)
    for name, text in (match for query in queries for match in _COMPARED.findall(query)):
        for one, other, number in _LITERAL.findall(text):
            found[name.lower()].append((float(number) if "." in number else int(number)) if number else one or other)
    return found


class GraphContents:
    """Other contents of a graph. content: of the SQLite database that graphqlite keeps it in."""

    def __init__(self, content: bytes) -> None:
        """Read the graph."""
        connection = opened(content)
        self._groups = read_graph(connection)
        _write(connection, self._groups, {})
        connection.execute("PRAGMA page_size = 512").fetchall()  # it is put in place of another often
        connection.execute("VACUUM")
        self._empty = bytes(connection.serialize("main"))

    def content(self, queries: Sequence[str], number: int) -> bytes:
        """Return the content that this number names: the same for the same queries."""
        connection, tables = opened(self._empty), {group.table.name: group.table for group in self._groups}
        rng = random.Random("\0".join((*tables, *queries, str(number))))  # noqa: S311  to be the same again
        _write(connection, self._groups, filled(tables, constants(queries), rng))
        return bytes(connection.serialize("main"))


def _write(connection: Any, groups: Sequence[Group], content: Mapping[str, Sequence[Row]]) -> None:
    """Put another content in the place of the nodes and relationships that are there."""
    tables = ("nodes", "edges", "node_labels", *(f"{of}_props_{kind}" for of in ("node", "edge") for kind in _KINDS))
    for name in tables:
        connection.execute(f"DELETE FROM {name}")  # noqa: S608
    keys = dict(connection.execute("SELECT key, id FROM property_keys").fetchall())
    place = {group.table.name: number for number, group in enumerate(groups)}
    member = 0
    for group in groups:
        ends = [place[other] for _, other, _ in group.table.foreign]
        for row in content.get(group.table.name, ()):
            if group.type and (group.loops or row[0] != row[1]) and None not in row[:2]:
                member += 1
                nodes = [number * len(groups) + end for number, end in zip(row, ends, strict=False)]
                connection.execute("INSERT INTO edges VALUES (?, ?, ?, ?)", (member, *nodes, group.type))
                _describe(connection, "edge", member, [keys[name] for name in group.table.columns[2:]], row[2:])
            elif not group.type:
                node = row[0] * len(groups) + place[group.table.name]
                connection.execute("INSERT INTO nodes VALUES (?)", (node,))
                connection.executemany("INSERT INTO node_labels VALUES (?, ?)", [(node, one) for one in group.labels])
                _describe(connection, "node", node, [keys[name] for name in group.table.columns[1:]], row[1:])


def _describe(connection: Any, of: str, member: int, keys: Sequence[int], values: Row) -> None:
    for key, value in zip(keys, values, strict=True):
        if value is not None:
            stored = value.decode() if isinstance(value, bytes) else int(value) if isinstance(value, bool) else value
            table = f"{of}_props_{_STORED[type(value)]}"
            connection.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", (member, key, stored))  # noqa: S608
