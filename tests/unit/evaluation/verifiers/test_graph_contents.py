"""Other contents of a graph have its labels, types and properties, and relationships where it has them."""

from __future__ import annotations

import apsw
import graphqlite
import pytest

from expert_cli.evaluation.verifiers.contents import END, ID, START, GraphContents, opened, read_graph

GRAPH = """CREATE (a:Person {name: 'Ada', age: 36, tags: ['x', 'y'], member: true}), (b:Person {name: 'Bob', age: 41.5}),
 (c:Person:Admin {name: 'Cid'}), (m:Movie {title: 'Up'}), (n:Movie {title: 'Her'}), (a)-[:SAW {stars: 3}]->(m),
 (b)-[:SAW {stars: 5}]->(m), (a)-[:KNOWS]->(b), (c)-[:SAW]->(n)"""
QUERY = "MATCH (p:Person) WHERE p.age > 40 RETURN p.name"
CONTENTS = 30


@pytest.fixture(scope="module")
def graph() -> bytes:
    connection = apsw.Connection(":memory:")
    connection.enable_load_extension(True)
    connection.load_extension(graphqlite.loadable_path())
    connection.execute("SELECT cypher(?)", (GRAPH,)).fetchall()
    return bytes(connection.serialize("main"))


def test_labels_types_ends_and_properties_are_those_of_the_graph(graph: bytes) -> None:
    known = {group.table.name: set(group.table.columns) for group in read_graph(opened(graph))}
    assert known["Person"] == {ID, "name", "age", "tags", "member"}
    assert known["Person-SAW-Movie"] == {START, END, "stars"}
    assert set(known) == {
        "Person",
        "Admin:Person",
        "Movie",
        "Person-SAW-Movie",
        "Person-KNOWS-Person",
        "Admin:Person-SAW-Movie",
    }
    ages, members, tags = set(), set(), set()
    for number in range(CONTENTS):
        groups = read_graph(opened(GraphContents(graph).content([QUERY], number)))
        for group in groups:
            assert set(group.table.columns) <= known[group.table.name]
            ends = [row[:2] for row in group.table.rows]
            if group.type:
                assert len(set(ends)) == len(ends), "the graph has no two relationships of a type between two nodes"
                assert all(one != other for one, other in ends), "and none from a node to itself"
            if group.table.name == "Person":
                place = {name: place for place, name in enumerate(group.table.columns)}
                ages |= {row[place["age"]] for row in group.table.rows if "age" in place}
                members |= {row[place["member"]] for row in group.table.rows if "member" in place}
                tags |= {row[place["tags"]] for row in group.table.rows if "tags" in place}
    assert {36, 41.5, 39, 40, 41, None} <= ages
    assert members == {True, None}
    assert tags == {b'["x","y"]', None}


def test_the_same_queries_make_the_same_graphs(graph: bytes) -> None:
    one, other = GraphContents(graph), GraphContents(graph)
    assert one.content([QUERY], 2) == other.content([QUERY], 2) != one.content([QUERY], 1)
