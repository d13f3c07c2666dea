"""Queries in SQL and Cypher are judged by what they return, on every content, and can do no harm."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from expert_cli.errors import InputError
from expert_cli.evaluation.cases import read_answers, read_case
from expert_cli.evaluation.verifiers.case import Grade
from tests import graders
from tests.unit.evaluation.hostile.test_queries import SHOP

NAMES = "SELECT name FROM customers"
BY_NAME = "SELECT name FROM customers ORDER BY name DESC"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The database; at the end of all tests not a byte of it has changed, and no file lies beside it."""
    folder = tmp_path_factory.mktemp("shop")
    path = graders.database(folder / "shop.sqlite", SHOP)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    yield path
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert list(folder.iterdir()) == [path]


SQL = {
    "the same query": (NAMES, NAMES, "correct"),
    "another order where none is asked for": (BY_NAME, NAMES, "correct"),
    "another order where one is asked for": (NAMES, BY_NAME, "wrong"),
    "nothing, something expected": ("SELECT name FROM customers WHERE 0", NAMES, "empty"),
    "the second of two accepted": ("SELECT 2", "SELECT 1; SELECT 2;", "correct"),
    "comment after the end": ("SELECT 1; -- done; really", "SELECT 1", "correct"),
    "unknown column": ("SELECT nme FROM customers", NAMES, "unknown_name"),
    "a quote in a comment": ("SELECT 1", "SELECT 1 -- don't; count", "correct"),
    "no SQL": ("SELEC name", NAMES, "invalid"),
    "two statements": ("SELECT 1; SELECT 2", "SELECT 1", "invalid"),
}


@pytest.mark.parametrize(("answer", "expected", "kind"), SQL.values(), ids=SQL)
def test_sql_is_compared(shop: Path, answer: str, expected: str, kind: str) -> None:
    verdict = graders.sql(answer, shop, expected)
    assert (verdict.kind, verdict.passed) == (kind, kind == "correct")
    assert (verdict.detail == "") is (kind == "correct")


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "one.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t(a)")
    connection.commit()
    assert graders.sql("SELECT count(*) FROM t", path, "SELECT 0").passed
    connection.execute("INSERT INTO t VALUES (?)", ("x" * 100_000,))
    connection.commit()
    connection.close()
    assert graders.sql("SELECT count(*) FROM t", path, "SELECT 1").passed


def test_a_database_in_wal_mode_is_read_without_files_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "wal.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t(a)")
    connection.commit()
    with pytest.raises(InputError, match="not yet written"):
        graders.sql("SELECT * FROM t", path, "SELECT * FROM t")
    connection.close()
    assert graders.sql("SELECT * FROM t", path, "SELECT * FROM t").passed
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("expected", "match"),
    [
        pytest.param("SELECT nme FROM customers", "expected query fails.*no such column", id="unknown column"),
        pytest.param("SELECT 1; DROP TABLE customers", "expected query fails.*sqlite_master", id="a write among them"),
        pytest.param(" ; ", "no expected query", id="none"),
    ],
)
def test_a_case_of_sql_at_fault_is_named(shop: Path, expected: str, match: str) -> None:
    with pytest.raises(InputError, match=match):
        graders.sql("SELECT 1", shop, expected)


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\0" + b"x" * 5000])
def test_what_is_no_database_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "no.sqlite"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"no\.sqlite: "):
        graders.sql("SELECT 1", path, "SELECT 1")


SCRIPT = """
// A small world; a semicolon here; is none.
CREATE (a:Person {name: 'Ada; the first', born: 1815}), (b:Person {name: 'Bob', born: 1950}),
  (c:Person {name: 'Cid'}), (m:Film {title: 'One', score: 0.3}), (n:Film {title: 'Two', score: 0.1}),
  (a)-[:SAW {stars: 5}]->(m), (b)-[:SAW {stars: 3}]->(m), (b)-[:SAW]->(n), (a)-[:KNOWS]->(b), (b)-[:KNOWS]->(c);
MATCH (p:Person {name: 'Cid'}) SET p.born = 2000;
"""
PEOPLE = "MATCH (p:Person) RETURN p.name"
BY_BIRTH = f"{PEOPLE} ORDER BY p.name DESC"
SEEN = "MATCH (p:Person)-[:SAW]->(f:Film) RETURN p.name, collect(f.title)"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The script; at the end of all tests it is as it was, alone in its folder."""
    folder = tmp_path_factory.mktemp("world")
    path = folder / "world.cypher"
    path.write_text(SCRIPT, encoding="utf-8")
    yield path
    assert path.read_text(encoding="utf-8") == SCRIPT
    assert list(folder.iterdir()) == [path]


KNOWS = "MATCH (a:Person)-[:KNOWS]->(b) RETURN"
COMPARED = {
    "another order where none is asked for": (BY_BIRTH, PEOPLE, "correct"),
    "another order where one is asked for": (f"{PEOPLE} ORDER BY p.name", BY_BIRTH, "wrong"),
    "another order in a list": (SEEN.replace("RETURN", "WITH p, f ORDER BY f.title DESC RETURN"), SEEN, "correct"),
    "another order in a list that is written": (f"{KNOWS} [b.name, a.name]", f"{KNOWS} [a.name, b.name]", "wrong"),
    "a property that is not there": ("MATCH (p:Person) RETURN p.nick", PEOPLE, "wrong"),
    "writing words as names": ("MATCH (s:Set {set: 1}) RETURN s.set, s.name", PEOPLE, "empty"),
    "nothing": ("MATCH (p:Person) WHERE p.born > 3000 RETURN p.name", PEOPLE, "empty"),
    "semicolon and comment": (f"{PEOPLE}; // done", PEOPLE, "correct"),
    "nodes": ("MATCH (p:Person) RETURN p", "MATCH (p:Person) RETURN p", "correct"),
    "unknown variable": ("MATCH (p:Person) RETURN q.name", PEOPLE, "invalid"),
}


@pytest.mark.parametrize(("answer", "expected", "kind"), COMPARED.values(), ids=COMPARED)
def test_cypher_is_compared(world: Path, answer: str, expected: str, kind: str) -> None:
    verdict = graders.cypher(answer, world, expected)
    assert (verdict.kind, verdict.passed) == (kind, kind == "correct"), verdict.detail


@pytest.mark.parametrize(
    ("script", "expected", "match"),
    [
        (SCRIPT, "MATCH (p RETURN p", "expected query fails.*syntax error"),
        (SCRIPT, "CREATE (n) RETURN n", "expected query fails.*CREATE"),
        ("CREATE (a:A);\nCREATE (b", "RETURN 1", r"world\.cypher: statement 2: .*syntax"),
    ],
)
def test_a_case_of_cypher_at_fault_is_named(tmp_path: Path, script: str, expected: str, match: str) -> None:
    path = tmp_path / "world.cypher"
    path.write_text(script, encoding="utf-8")
    with pytest.raises(InputError, match=match):
        graders.cypher("RETURN 1", path, expected)


MOST = "SELECT name, weight FROM pets ORDER BY weight DESC LIMIT 1"
PETS = "CREATE TABLE pets (id INTEGER PRIMARY KEY, name TEXT, weight INTEGER); INSERT INTO pets VALUES "
GRAPH = "CREATE (:Pet {name: 'Rex', weight: 40}), (:Pet {name: 'Tom', weight: 4}), (:Pet {name: 'Kim', weight: 6});"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pets")
    for name, rows in {
        "pets": "(1, 'Rex', 40), (2, 'Tom', 4), (3, 'Kim', 6)",
        "more": "(1, 'Ann', 3), (2, 'Bea', 5)",
    }.items():
        graders.database(folder / f"{name}.sqlite", f"{PETS}{rows};")
    graders.database(folder / "other.sqlite", "CREATE TABLE plants (name)")
    (folder / "pets.cypher").write_text(GRAPH, encoding="utf-8")
    return folder


def graded(folder: Path, answer: str, expected: str, timeout_s: float = 10, **keys: Any) -> Grade:
    """Grade an answer as a row of a file would be."""
    named = {"verifier": "sql", "database": "pets.sqlite", "expected": expected, "answer": answer, **keys}
    (folder / "rows.jsonl").write_text(json.dumps(named), encoding="utf-8")
    [row] = read_answers(folder / "rows.jsonl")
    return row.case.verdict(row.answer, row.file, timeout_s)


LUCKY = {
    "a missing order": (MOST, "SELECT name, weight FROM pets LIMIT 1"),
    "at least for more than": ("SELECT name FROM pets WHERE weight > 5", "SELECT name FROM pets WHERE weight >= 5"),
    "a near number": ("SELECT name FROM pets WHERE weight > 5", "SELECT name FROM pets WHERE weight > 4"),
    "a count of values": ("SELECT count(*) FROM pets", "SELECT count(DISTINCT name) FROM pets"),
    "the constant itself": ("SELECT max(weight) FROM pets", "SELECT 40"),
}


@pytest.mark.parametrize(("expected", "answer"), LUCKY.values(), ids=LUCKY.keys())
def test_what_is_right_by_luck_is_caught_what_means_the_same_is_right(folder: Path, expected: str, answer: str) -> None:
    assert graded(folder, answer, expected).passed
    verdict = graded(folder, answer, expected, perturb=8)
    assert verdict.kind in ("wrong", "empty")
    assert "right on the first content, not on content" in verdict.detail
    alike = f"SELECT * FROM ({expected}) AS alike" if "ORDER" not in expected else expected.lower()
    assert graded(folder, alike, expected, perturb=8).passed


def test_every_accepted_query_is_right_but_not_a_mixture(folder: Path) -> None:
    accepted = "SELECT min(weight) FROM pets; SELECT 4"
    assert graded(folder, "SELECT min(weight) FROM pets", accepted, perturb=8).passed
    assert graded(folder, "SELECT 4", accepted, perturb=8).passed
    count = "(SELECT count(*) FROM pets)"
    mixture, accepted = f"SELECT iif({count} = 3, 4, 6)", f"SELECT 4; SELECT iif({count} = 3, 5, 6)"
    assert graded(folder, mixture, accepted).passed
    assert not graded(folder, mixture, accepted, perturb=8).passed


def test_a_graph_has_other_contents_too(folder: Path) -> None:
    def asked(answer: str, **more: Any) -> Grade:
        row = {"script": "pets.cypher", "expected": "MATCH (p:Pet) WHERE p.weight > 5 RETURN p.name", **more}
        return read_case("here", {"verifier": "cypher", **row}).verdict(answer, folder / "pets.cypher", 10)

    lucky = "MATCH (p:Pet) WHERE p.weight >= 5 RETURN p.name"
    assert asked(lucky).passed
    assert "right on the first content" in asked(lucky, perturb=8).detail
    assert asked("MATCH (p:Pet) WHERE 5 < p.weight RETURN p.name", perturb=8).passed


def test_a_list_of_databases_is_asked_one_after_the_other(folder: Path) -> None:
    both = ["pets.sqlite", "more.sqlite"]
    assert graded(folder, MOST, MOST, database=both).passed
    verdict = graded(folder, "SELECT 'Rex', 40", MOST, database=both)
    told = "right on the first content, not on content 2: 1 row, 1 expected; they begin [('Rex', 40)], not [('Bea', 5)]"
    assert verdict == Grade("wrong", told)
    with pytest.raises(InputError, match=r"expected query fails on .*other\.sqlite: no such table: pets"):
        graded(folder, MOST, MOST, database=["pets.sqlite", "other.sqlite"])
    with pytest.raises(InputError, match=r"rows\.jsonl:1: none\.sqlite: no such file"):
        graded(folder, MOST, MOST, database=["pets.sqlite", "none.sqlite"])
    with pytest.raises(InputError, match="database"):
        graded(folder, MOST, MOST, database=[])


def test_the_time_of_an_answer_is_that_of_all_contents(folder: Path) -> None:
    # never done where there are more pets than on the first content
    endless = f"SELECT count(*) FROM {', '.join(f'pets AS p{number}' for number in range(40))}"
    slow = f"SELECT count(*) FROM pets WHERE (SELECT count(*) FROM pets) <= 3 OR ({endless}) > 0"
    assert graded(folder, slow, "SELECT count(*) FROM pets", 1.0, perturb=8).kind == "timeout"
    started = time.monotonic()  # with the contents made already
    assert graded(folder, slow, "SELECT count(*) FROM pets", 1.0, perturb=8).kind == "timeout"
    assert time.monotonic() - started < 3.0  # the time, what an engine may take to stop, and some more
