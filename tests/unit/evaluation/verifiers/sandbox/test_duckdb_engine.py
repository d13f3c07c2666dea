"""SQL in PostgreSQL's dialect runs in DuckDB on the tables of an SQLite file, and can do no harm."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import graders

TABLE = """
CREATE TABLE people (id INTEGER PRIMARY KEY, name VARCHAR(20), born DATE, pay DECIMAL(8,2), active BOOLEAN, "odd ""name" x);
INSERT INTO people VALUES (1, 'Ada', '1815-12-10', 10.5, 1, NULL), (2, 'Bob', 'never', NULL, 0, 'y');
"""
NAMES = "SELECT name FROM people"


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("people") / "people.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(TABLE)
    connection.close()
    before = path.read_bytes()
    yield path
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("answer", "expected", "kind"),
    [
        pytest.param("SELECT name::TEXT FROM people", NAMES, "correct", id="casts of PostgreSQL"),
        pytest.param(
            "SELECT EXTRACT(YEAR FROM born) FROM people", "SELECT 1815 UNION SELECT NULL", "correct", id="date"
        ),
        pytest.param(
            "SELECT born FROM people WHERE id = 1", "SELECT DATE '1815-12-10'", "correct", id="a date comes back"
        ),
        pytest.param(
            "SELECT now() > TIMESTAMPTZ '2020-01-01 00:00:00+02'", "SELECT true", "correct", id="time with a zone"
        ),
        pytest.param(
            "SELECT TIMESTAMPTZ '2020-01-01 00:00:00+00'",
            "SELECT TIMESTAMPTZ '2020-01-01 02:00:00+02'",
            "correct",
            id="zone",
        ),
        pytest.param(
            "SELECT to_date('06 May 2021', 'DD Mon YYYY')", "SELECT DATE '2021-05-06'", "correct", id="to_date"
        ),
        pytest.param(
            "SELECT round(pay * 0.27, 2), round(1.005, 2), round(0.25, id), round(pay, -1) FROM people WHERE id = 1",
            "SELECT 2.84, 1.01, 0.3, 10.0",
            "correct",
            id="a numeric is rounded by its digits",
        ),
        pytest.param("SELECT id / 2 FROM people", "SELECT 0 UNION SELECT 1", "correct", id="whole division"),
        pytest.param(
            "SELECT name FROM people ORDER BY pay DESC", "SELECT 'Bob' UNION ALL SELECT 'Ada'", "correct", id="NULL"
        ),
        pytest.param("SELECT num_nulls(1)", NAMES, "parsed_only", id="a function of PostgreSQL alone"),
        pytest.param("SELECT regexp_match(repeat('a', 40) || 'b', '(a+)+c')", NAMES, "timeout", id="slow pattern"),
        pytest.param("SELECT name FROM people WHERE active", "SELECT 'Ada'", "correct", id="boolean"),
        pytest.param("SELECT pay::NUMERIC(8, 2) FROM people WHERE id = 1", "SELECT 10.5", "correct", id="decimal"),
        pytest.param('SELECT "odd ""name" FROM people', "SELECT 'y' UNION SELECT NULL", "correct", id="quoted name"),
        pytest.param("SELECT name FROM people WHERE id > 5", NAMES, "empty", id="nothing"),
        pytest.param("SELECT nme FROM people", NAMES, "unknown_name", id="unknown column"),
        pytest.param("SELECT p.nme FROM people p", NAMES, "unknown_name", id="unknown column of a table"),
        pytest.param("SELECT q.name FROM people p", NAMES, "unknown_name", id="unknown alias"),
        pytest.param("SELECT name FROM persons", NAMES, "unknown_name", id="unknown table"),
        pytest.param(
            "SELECT name FROM people p JOIN people q USING (nme)", NAMES, "unknown_name", id="unknown in USING"
        ),
        pytest.param("SELECT nme(name) FROM people", NAMES, "invalid", id="unknown function"),
        pytest.param("SELEC", NAMES, "invalid", id="no SQL"),
        pytest.param("SELECT 1; SELECT 2", NAMES, "invalid", id="two"),
        pytest.param("DROP TABLE people", NAMES, "refused", id="drop"),
        pytest.param(f"{NAMES}; DELETE FROM people", NAMES, "refused", id="delete after a query"),
        pytest.param("INSERT INTO people(id) VALUES (3) RETURNING id", NAMES, "refused", id="insert"),
        pytest.param("COPY people TO 'made.csv'", NAMES, "refused", id="copy to a file"),
        pytest.param("ATTACH 'made.db' AS other", NAMES, "refused", id="attach"),
        pytest.param("INSTALL httpfs", NAMES, "refused", id="install"),
        pytest.param("LOAD httpfs", NAMES, "refused", id="load"),
        pytest.param("SET enable_external_access = true", NAMES, "refused", id="set"),
        pytest.param("PRAGMA threads = 4", NAMES, "refused", id="pragma"),
        pytest.param("SELECT * FROM read_csv('/etc/passwd')", NAMES, "refused", id="read a file"),
        pytest.param("SELECT content FROM read_text('/etc/passwd')", NAMES, "refused", id="read a text"),
        pytest.param("SELECT * FROM '/etc/passwd'", NAMES, "unknown_name", id="a file as a table"),
        pytest.param("SELECT * FROM read_csv('http://127.0.0.1:9/x')", NAMES, "refused|invalid", id="network"),
        pytest.param("SELECT getenv('HOME')", NAMES, "invalid", id="environment"),
        pytest.param("SELECT count(*) FROM range(100000) a, range(100000) b, range(9) c", NAMES, "timeout", id="long"),
        pytest.param(
            "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t",
            NAMES,
            "timeout|too_large",
            id="endless",
        ),
        pytest.param("SELECT * FROM range(100000000)", NAMES, "too_large|timeout", id="huge result"),
        pytest.param("SELECT repeat('x', 4000000000)", NAMES, "too_large|timeout|invalid", id="huge text"),
    ],
)
def test_answers(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, expected: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    limit = 0.3 if "timeout" in kind else 5
    verdict = graders.sql(answer, people, expected, timeout_s=limit, dialect="postgresql")
    assert verdict.kind in kind.split("|"), verdict
    assert list(tmp_path.iterdir()) == []
    assert graders.sql("SELECT count(*) FROM people", people, "SELECT 2", dialect="postgresql").passed
