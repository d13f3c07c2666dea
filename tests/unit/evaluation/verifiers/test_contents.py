"""Other contents of a database or graph keep its tables and keys, whatever it declares; the same queries make the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw
import pytest

from expert_cli.evaluation.verifiers.contents import (
    Way,
    database_contents,
    graph_contents,
    opened,
    read_tables,
)
from expert_cli.evaluation.verifiers.sandbox.graphqlite import CypherJudge

SHOP = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, email TEXT UNIQUE, age INTEGER NOT NULL CHECK (age >= 18));
INSERT INTO customers VALUES (1, 'Ada', 'ada@x', 36), (2, 'Bob', 'bob@x', 41), (3, 'Cid', NULL, 18), (7, 'Dee', 'dee@x', 18);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers, total REAL,
  cents AS (total * 100) STORED);
INSERT INTO orders (id, customer_id, total) VALUES (1, 1, 5.5), (2, 1, 7), (3, 7, 2.5), (4, NULL, 9);
CREATE TABLE lines (order_id INTEGER NOT NULL, place INTEGER, item TEXT, PRIMARY KEY (order_id, place),
  FOREIGN KEY (order_id) REFERENCES orders(id)) WITHOUT ROWID;
INSERT INTO lines VALUES (1, 1, 'nut'), (1, 2, 'bolt'), (2, 1, 'nut'), (4, 1, 'key');
CREATE TABLE staff (id INTEGER PRIMARY KEY, boss_id INTEGER REFERENCES staff(id), team INTEGER REFERENCES teams(id));
INSERT INTO staff VALUES (1, NULL, 1), (2, 1, 1), (3, 1, 2);
CREATE TABLE teams (id INTEGER PRIMARY KEY, lead INTEGER NOT NULL REFERENCES staff(id));
INSERT INTO teams VALUES (1, 1), (2, 3);
CREATE TABLE authors (id, name);
INSERT INTO authors VALUES (1, 'Eve'), (2, 'Fay');
CREATE TABLE books (id, author_id, year);
INSERT INTO books VALUES (10, 1, 1999), (11, 1, 2001), (12, 2, 2001);
CREATE TABLE strict_ones (code TEXT PRIMARY KEY, weight REAL) STRICT;
INSERT INTO strict_ones VALUES ('a', 1.5), ('b', 2);
CREATE TABLE unused (id INTEGER PRIMARY KEY, word TEXT);
CREATE VIRTUAL TABLE notes USING fts5(body);
INSERT INTO notes VALUES ('kept as it is');
CREATE VIEW adults AS SELECT name FROM customers WHERE age > 20;
CREATE TABLE log (what TEXT);
CREATE TRIGGER logged AFTER INSERT ON customers BEGIN INSERT INTO log VALUES (new.name); END;
CREATE TRIGGER kept BEFORE DELETE ON orders BEGIN SELECT RAISE(ABORT, 'never'); END;
"""
QUERY = "SELECT name FROM customers WHERE age > 40 AND name <> 'Zoe'"
CONTENTS = 40
RULES = {
    "no key twice": "SELECT id FROM customers GROUP BY id HAVING count(*) > 1",
    "no unique value twice": "SELECT email FROM customers WHERE email IS NOT NULL GROUP BY email HAVING count(*) > 1",
    "no two columns of a key twice": "SELECT order_id FROM lines GROUP BY order_id, place HAVING count(*) > 1",
    "a key that is told by its name": "SELECT id FROM authors GROUP BY id HAVING count(*) > 1 OR id IS NULL",
    "what is declared NOT NULL": "SELECT age FROM customers WHERE age IS NULL",
    "what a check forbids": "SELECT age FROM customers WHERE age < 18",
    "a reference": "SELECT 1 FROM orders WHERE customer_id NOT IN (SELECT id FROM customers) AND customer_id IS NOT NULL",
    "a reference in a key": "SELECT order_id FROM lines WHERE order_id NOT IN (SELECT id FROM orders) AND order_id IS NOT NULL",
    "a reference to the same table": "SELECT 1 FROM staff WHERE boss_id NOT IN (SELECT id FROM staff) AND boss_id IS NOT NULL",
    "references in a circle": "SELECT lead FROM teams WHERE lead NOT IN (SELECT id FROM staff) AND lead IS NOT NULL",
    "and back": "SELECT team FROM staff WHERE team NOT IN (SELECT id FROM teams) AND team IS NOT NULL",
    "a reference told by its name": "SELECT 1 FROM books WHERE author_id NOT IN (SELECT id FROM authors) AND author_id > 0",
    "generated columns": "SELECT cents FROM orders WHERE cents <> total * 100",
    "types": "SELECT weight FROM strict_ones WHERE typeof(weight) NOT IN ('real', 'null')",
}


def made(script: str) -> bytes:
    connection = apsw.Connection(":memory:")
    connection.execute(script)
    return bytes(connection.serialize("main"))


@pytest.fixture(scope="module")
def contents() -> Way:
    return database_contents(made(SHOP))


@pytest.fixture(scope="module")
def several(contents: Way) -> list[Any]:
    return [opened(contents([QUERY], number)) for number in range(CONTENTS)]


def values(several: list[Any], query: str) -> Iterator[list[Any]]:
    for connection in several:
        yield [row[0] for row in connection.execute(query)]


@pytest.mark.parametrize("query", RULES.values(), ids=RULES.keys())
def test_keys_and_constraints_hold_in_every_content(several: list[Any], query: str) -> None:
    assert all(broken == [] for broken in values(several, query))


def test_what_no_rows_can_be_written_to_stays(several: list[Any]) -> None:
    assert all(found == ["kept as it is"] for found in values(several, "SELECT body FROM notes"))
    assert all(found == [] for found in values(several, "SELECT name FROM adults EXCEPT SELECT name FROM customers"))


def test_values_are_those_of_the_column_those_of_the_query_near_ones_and_none(several: list[Any]) -> None:
    ages = {age for found in values(several, "SELECT age FROM customers") for age in found}
    assert {18, 36, 39, 40, 41} <= ages
    names = {name for found in values(several, "SELECT name FROM customers") for name in found}
    assert {"Ada", "Zoe", "zOE", None} <= names
    assert any(len(found) > len(set(found)) for found in values(several, "SELECT name FROM customers"))


def test_the_same_queries_make_the_same_contents_and_others_others(contents: Way) -> None:
    again = database_contents(made(SHOP))
    assert [again([QUERY], number) for number in (3, 0)] == [contents([QUERY], n) for n in (3, 0)]
    assert contents([QUERY], 0) != contents([QUERY], 1)
    assert contents([QUERY], 0) != contents(["SELECT 1"], 0)


def test_keys_that_are_not_declared_are_told_by_names_and_values() -> None:
    script = """
        CREATE TABLE cities (id, name); INSERT INTO cities VALUES (1, 'Rome'), (2, 'Oslo');
        CREATE TABLE people (id, city_id, age, rank); INSERT INTO people VALUES (5, 1, 1, 1), (5, 2, 2, 9);
        CREATE TABLE trips (trip_id, city_id); INSERT INTO trips VALUES (1, 1), (2, 3);
    """
    tables = read_tables(opened(made(script)))
    assert tables["cities"].key == "id"
    assert tables["people"].key == "", "id has a value twice"
    assert tables["people"].foreign == {"city_id": ("cities", "id")}
    assert tables["trips"].key == "trip_id"
    assert tables["trips"].foreign == {}, "there is no city 3"


GRAPH = """CREATE (a:Person {name: 'Ada', age: 36, tags: ['x', 'y'], member: true}), (b:Person {name: 'Bob', age: 41.5}),
 (c:Person:Admin {name: 'Cid'}), (m:Movie {title: 'Up'}), (n:Movie {title: 'Her'}), (a)-[:SAW {stars: 3}]->(m),
 (b)-[:SAW {stars: 5}]->(m), (a)-[:KNOWS]->(b), (c)-[:SAW]->(n)"""
ELDERS = "MATCH (p:Person) WHERE p.age > 40 RETURN p.name"


@pytest.fixture(scope="module")
def graph() -> bytes:
    return CypherJudge().content_of(GRAPH.encode())[0][1]


def test_a_graph_keeps_labels_types_and_ends_and_gets_other_values(graph: bytes) -> None:
    make, held = graph_contents(graph), {"age": set[Any](), "tags": set[Any]()}
    for number in range(CONTENTS):
        made = opened(make([ELDERS], number))
        pairs = "SELECT source_id, target_id, type FROM edges"
        ways = f"SELECT type, a.label, b.label FROM ({pairs}) JOIN node_labels a ON a.node_id = source_id JOIN node_labels b"
        kinds = set(made.execute(f"{ways} ON b.node_id = target_id WHERE a.label <> 'Admin'"))
        assert kinds <= {("SAW", "Person", "Movie"), ("KNOWS", "Person", "Person")}
        ends = made.execute(pairs).fetchall()
        assert len(set(ends)) == len(ends), "the graph has no two relationships of a type between two nodes"
        assert all(one != other for one, other, _ in ends), "and none from a node to itself"
        for kind, key in (("int", "age"), ("real", "age"), ("json", "tags")):
            of = f"node_props_{kind} JOIN property_keys k ON k.id = key_id WHERE key = '{key}'"
            held[key] |= {value for (value,) in made.execute(f"SELECT value FROM {of}")}
    assert {36, 41.5, 39, 40, 41} <= held["age"]
    assert held["tags"] == {'["x","y"]'}
