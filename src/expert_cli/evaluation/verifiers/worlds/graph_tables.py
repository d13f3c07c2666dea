"""A graph of graphqlite as tables, and another content put in its place.

The nodes of one set of labels are a table, the relationships of one type between two of them another: its first two columns
refer to the nodes. Properties are columns.
"""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from expert_cli.evaluation.verifiers.worlds.perturb import Made, perturb, pools_of
from expert_cli.evaluation.verifiers.worlds.sqlite_tables import opened
from expert_cli.evaluation.verifiers.worlds.tables import ForeignKey, Row, Table
from expert_cli.evaluation.verifiers.worlds.values import Pool, constants

_KINDS = ("int", "real", "text", "bool", "json")


class Json(bytes):
    """A list or map, as JSON: drawn as a whole."""


@dataclass(frozen=True)
class _Group:
    """Nodes or relationships of one kind. labels: of nodes. type, ends: of relationships, and the tables of their nodes."""

    table: Table
    labels: tuple[str, ...] = ()
    type: str = ""
    loops: bool = True


def read_graph(connection: Any) -> list[_Group]:
    """Return the nodes and relationships of a graph as tables."""
    labels: dict[int, tuple[str, ...]] = {
        node: () for (node,) in connection.execute("SELECT id FROM nodes ORDER BY id")
    }
    for node, label in connection.execute("SELECT node_id, label FROM node_labels ORDER BY label"):
        labels[node] += (label,)
    nodes: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for node, names in labels.items():
        nodes[names].append(node)
    held = _properties(connection, "node")
    groups = []
    for names, members in nodes.items():
        columns, rows = _columns([((node,), held[node]) for node in members])
        nullable = (False, *(True for _ in columns))
        groups.append(_Group(Table(_name(names), ("", *columns), nullable, ((0,),), (), rows), labels=names))
    return groups + _relationships(connection, labels)


def _relationships(connection: Any, labels: Mapping[int, tuple[str, ...]]) -> list[_Group]:
    held = _properties(connection, "edge")
    found: dict[tuple[str, str, str], list[tuple[Row, Mapping[str, Any]]]] = defaultdict(list)
    for edge, source, target, kind in connection.execute(
        "SELECT id, source_id, target_id, type FROM edges ORDER BY id"
    ):
        found[kind, _name(labels[source]), _name(labels[target])].append(((source, target), held[edge]))
    groups = []
    for (kind, one, other), members in found.items():
        columns, rows = _columns(members)
        ends = [row[:2] for row in rows]
        keys = ((0, 1),) if len(set(ends)) == len(ends) else ()
        foreign = (ForeignKey((0,), one, (0,)), ForeignKey((1,), other, (0,)))
        nullable = (False, False, *(True for _ in columns))
        table = Table(f"{one}-{kind}-{other}", ("", "", *columns), nullable, keys, foreign, rows)
        groups.append(_Group(table, type=kind, loops=one != other or any(a == b for a, b in ends)))
    return groups


def _name(labels: Sequence[str]) -> str:
    return ":".join(labels)


def _properties(connection: Any, of: str) -> Mapping[int, Mapping[str, Any]]:
    """Return the properties of each node or edge."""
    found: dict[int, dict[str, Any]] = defaultdict(dict)
    for kind in _KINDS:
        table = f"{of}_props_{kind} JOIN property_keys k ON k.id = key_id"
        query = f"SELECT {of}_id, key, value FROM {table} ORDER BY {of}_id, k.id"  # noqa: S608  none of it is a stranger's
        for member, key, value in connection.execute(query):
            found[member][key] = bool(value) if kind == "bool" else Json(value.encode()) if kind == "json" else value
    return found


def _columns(members: Sequence[tuple[Row, Mapping[str, Any]]]) -> tuple[list[str], list[Row]]:
    """Return the names of all properties, and rows with them behind the first values."""
    names = list(dict.fromkeys(name for _, properties in members for name in properties))
    return names, [(*first, *(properties.get(name) for name in names)) for first, properties in members]


def fill_graph(connection: Any, groups: Sequence[_Group], content: Mapping[str, Sequence[Made]]) -> None:
    """Put another content in the place of the nodes and relationships that are there."""
    for name in (
        "nodes",
        "edges",
        "node_labels",
        *(f"{of}_props_{kind}" for of in ("node", "edge") for kind in _KINDS),
    ):
        connection.execute(f"DELETE FROM {name}")  # noqa: S608
    keys = dict(connection.execute("SELECT key, id FROM property_keys").fetchall())
    place = {group.table.name: number for number, group in enumerate(groups)}
    edges = 0
    for group in groups:
        ends = [place[key.table] for key in group.table.foreign]
        for made in content[group.table.name]:
            if group.type and (group.loops or made.row[0] != made.row[1]):
                edges += 1
                nodes = [number * len(groups) + end for number, end in zip(made.row, ends, strict=False)]
                connection.execute("INSERT INTO edges VALUES (?, ?, ?, ?)", (edges, *nodes, group.type))
                _write(connection, "edge", edges, [keys[name] for name in group.table.columns[2:]], made.row[2:])
            elif not group.type:
                node = made.row[0] * len(groups) + place[group.table.name]
                connection.execute("INSERT INTO nodes VALUES (?)", (node,))
                connection.executemany(
                    "INSERT INTO node_labels VALUES (?, ?)", [(node, label) for label in group.labels]
                )
                _write(connection, "node", node, [keys[name] for name in group.table.columns[1:]], made.row[1:])


_STORED = {bool: "bool", int: "int", float: "real", str: "text", Json: "json"}


def _write(connection: Any, of: str, member: int, keys: Sequence[int], values: Row) -> None:
    for key, value in zip(keys, values, strict=True):
        if value is not None:
            stored = value.decode() if isinstance(value, Json) else int(value) if isinstance(value, bool) else value
            table = f"{of}_props_{_STORED[type(value)]}"
            connection.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", (member, key, stored))  # noqa: S608


class GraphContents:
    """Other contents of a graph."""

    def __init__(self, content: bytes) -> None:
        """Read nothing yet. content: of the SQLite database that graphqlite keeps the graph in."""
        self._content = content

    def content(self, queries: Sequence[str], number: int) -> bytes:
        """Return the content that this number names; constants of the queries are among its values. The same for the same."""
        connection = opened(self._empty)
        rng = random.Random("\0".join((self._digest, *queries, str(number))))  # noqa: S311  to be the same again
        fill_graph(connection, self._groups, perturb(self._tables, self._pools(tuple(queries)), rng))
        return bytes(connection.serialize("main"))

    @lru_cache(maxsize=1)  # noqa: B019  lives as long as the process
    def _pools(self, queries: tuple[str, ...]) -> Mapping[str, Sequence[Pool]]:
        names = {name.lower() for table in self._tables for name in table.columns if name}
        return pools_of(self._tables, constants(queries, names))

    @cached_property
    def _tables(self) -> list[Table]:
        return [group.table for group in self._groups]

    @cached_property
    def _empty(self) -> bytes:
        """The graph without nodes, as small as it gets: it is put in place of another often."""
        connection = opened(self._content)
        fill_graph(connection, self._groups, {table.name: [] for table in self._tables})
        connection.execute("PRAGMA page_size = 512").fetchall()
        connection.execute("VACUUM")
        return bytes(connection.serialize("main"))

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(self._content).hexdigest()

    @cached_property
    def _groups(self) -> list[_Group]:
        return read_graph(opened(self._content))
