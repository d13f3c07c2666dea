"""SQL answers are judged by what they return, and can do no harm."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from expert_cli.errors import InputError
from tests import graders

SHOP = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT, balance REAL, joined DATE);
INSERT INTO customers VALUES (1, 'Ada', 'Berlin', 10.5, '2020-01-02'), (2, 'Bob', 'Paris', 0.1, '2021-05-06'),
  (3, 'Cid', NULL, 0.2, NULL), (4, 'Dee', 'Paris', 0.3, '2021-07-08');
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, total DECIMAL(8,2));
CREATE INDEX by_city ON customers(city);
INSERT INTO orders VALUES (1, 1, 5.25), (2, 1, 7), (3, 4, 2.5);
"""
NAMES = "SELECT name FROM customers"
BY_NAME = "SELECT name FROM customers ORDER BY name DESC"
RECURSION = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) "


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The database; at the end of all tests not a byte of it has changed, and no file lies beside it."""
    folder = tmp_path_factory.mktemp("shop")
    path = folder / "shop.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(SHOP)
    connection.close()
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    yield path
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert list(folder.iterdir()) == [path]


@pytest.mark.parametrize(
    ("answer", "expected", "kind"),
    [
        pytest.param(NAMES, NAMES, "correct", id="the same query"),
        pytest.param("SELECT name AS other FROM customers", NAMES, "correct", id="names of columns do not count"),
        pytest.param(BY_NAME, NAMES, "correct", id="another order where none is asked for"),
        pytest.param(NAMES, BY_NAME, "wrong", id="another order where one is asked for"),
        pytest.param(NAMES, f"SELECT * FROM ({BY_NAME})", "correct", id="an inner order is none"),
        pytest.param("SELECT city FROM customers", "SELECT city FROM customers", "correct", id="NULL equals NULL"),
        pytest.param(
            "SELECT city, name FROM customers", "SELECT name, city FROM customers", "wrong", id="column order"
        ),
        pytest.param("SELECT name, name FROM customers", NAMES, "wrong", id="a column more"),
        pytest.param(
            "SELECT DISTINCT city FROM customers", "SELECT city FROM customers", "wrong", id="duplicates count"
        ),
        pytest.param("SELECT 0.1 + 0.2", "SELECT 0.3", "correct", id="noise in a float"),
        pytest.param("SELECT 1.0", "SELECT 1", "correct", id="whole float"),
        pytest.param("SELECT 1000001", "SELECT 1000000", "wrong", id="whole numbers exactly"),
        pytest.param("SELECT '1'", "SELECT 1", "wrong", id="text is no number"),
        pytest.param("SELECT 1.00001", "SELECT 1.0", "wrong", id="beyond the tolerance"),
        pytest.param("SELECT name FROM customers WHERE 0", NAMES, "empty", id="nothing, something expected"),
        pytest.param("SELECT 1 WHERE 0", "SELECT 2 WHERE 0", "correct", id="nothing, nothing expected"),
        pytest.param("SELECT 2", "SELECT 1; SELECT 2;", "correct", id="the second of two accepted"),
        pytest.param("SELECT ';'", "SELECT ';'; SELECT 2", "correct", id="a semicolon in a text"),
        pytest.param("SELECT 1; -- done; really", "SELECT 1", "correct", id="comment after the end"),
        pytest.param("SELECT nme FROM customers", NAMES, "unknown_name", id="unknown column"),
        pytest.param("SELECT name FROM customer", NAMES, "unknown_name", id="unknown table"),
        pytest.param(
            "SELECT a.name FROM customers a JOIN customers b USING (nme)", NAMES, "unknown_name", id="unknown in USING"
        ),
        pytest.param("SELEC name", NAMES, "invalid", id="no SQL"),
        pytest.param("SELECT 1; SELECT 2", "SELECT 1", "invalid", id="two statements"),
    ],
)
def test_results_are_compared(shop: Path, answer: str, expected: str, kind: str) -> None:
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
        pytest.param("SELECT 1; DROP TABLE customers", "expected query fails.*DROP", id="a write among them"),
        pytest.param(" ; ", "no expected query", id="none"),
    ],
)
def test_a_case_at_fault_is_named(shop: Path, expected: str, match: str) -> None:
    with pytest.raises(InputError, match=match):
        graders.sql("SELECT 1", shop, expected)


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\0" + b"x" * 5000])
def test_what_is_no_database_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "no.sqlite"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"no\.sqlite"):
        graders.sql("SELECT 1", path, "SELECT 1")


def test_a_missing_database_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.sqlite"):
        graders.sql("SELECT 1", tmp_path / "none.sqlite", "SELECT 1")
