"""Queries in one form: each query, and below it what it becomes; SQLite finds the same rows by both."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from datagen.spider.make_spider import opened, rows_of, tables_of
from datagen.spider.plain_sql import plain

TABLES = {"Author": ["aid", "Name"], "writes": ["aid", "pid"], "paper": ["pid", "title", "the year"]}

FORMS = """
select T1.name from author as T1
  SELECT Name FROM Author
SELECT T2.title FROM writes AS T1 JOIN paper AS T2 ON T1.pid = T2.pid WHERE aid = 1
  SELECT paper.title FROM writes JOIN paper ON writes.pid = paper.pid WHERE writes.aid = 1
SELECT count(*) FROM paper
  SELECT COUNT(*) FROM paper
SELECT `the YEAR` FROM paper p
  SELECT "the year" FROM paper
SELECT a.name FROM author a JOIN author b ON a.aid = b.aid
  SELECT a.Name FROM Author AS a JOIN Author AS b ON a.aid = b.aid
SELECT name FROM author WHERE aid IN (SELECT T1.aid FROM writes AS T1)
  SELECT Name FROM Author WHERE aid IN (SELECT aid FROM writes)
SELECT T1.name FROM author T1 WHERE EXISTS (SELECT 1 FROM writes T2 WHERE T2.aid = T1.aid)
  SELECT Name FROM Author WHERE EXISTS(SELECT 1 FROM writes WHERE writes.aid = Author.aid)
SELECT name FROM author T1 WHERE aid = (SELECT max(T1.aid) FROM author T1)
  SELECT Name FROM Author WHERE aid = (SELECT MAX(aid) FROM Author)
SELECT name AS n FROM author ORDER BY n
  SELECT Name AS n FROM Author ORDER BY n
SELECT T1.name FROM author T1 UNION SELECT T1.title FROM paper T1
  SELECT Name FROM Author UNION SELECT title FROM paper
"""


@pytest.mark.parametrize("lines", FORMS.strip().replace("\n  ", "\t").splitlines())
def test_a_query_in_its_plain_form(lines: str) -> None:
    query, form = lines.split("\t")
    assert plain(query, TABLES) == form
    columns = {name: ", ".join(f'"{column}"' for column in names) for name, names in TABLES.items()}
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(";".join(f"CREATE TABLE {name} ({names})" for name, names in columns.items()))
        connection.executescript(
            "INSERT INTO author VALUES (1, 'a'), (2, 'b'); INSERT INTO writes VALUES (1, 7), (2, 7)"
        )
        connection.execute("INSERT INTO paper VALUES (7, 't', 3)")
        assert rows_of(connection, query) == rows_of(connection, form) is not None


def test_a_join_is_written_in_the_direction_of_its_key() -> None:
    query = "SELECT T1.title FROM paper T1 JOIN writes T2 ON T1.pid = T2.pid JOIN author T3 ON T2.aid = T3.aid"
    found = plain(query, TABLES, {("writes", "pid", "paper", "pid"), ("writes", "aid", "author", "aid")})
    assert found == (
        "SELECT paper.title FROM paper JOIN writes ON writes.pid = paper.pid JOIN Author ON writes.aid = Author.aid"
    )


@pytest.mark.parametrize(
    "query", ["SELECT FROM WHERE", "SELECT weight, name FROM author JOIN writes", "SELECT aid FROM author, writes"]
)
def test_a_query_that_cannot_be_told_has_none(query: str) -> None:
    assert plain(query, TABLES) is None


def test_the_shipped_queries_find_the_same() -> None:
    folder, told = Path("experts/expert-sql/tests"), Counter[str]()
    for line in (folder / "unseen.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        database = folder / (case["database"][0] if isinstance(case["database"], list) else case["database"])
        form = plain(case["expected"], tables_of(database))
        with opened(database) as connection:
            told["same" if form and rows_of(connection, form) == rows_of(connection, case["expected"]) else "not"] += 1
    assert told == {"same": 140, "not": 4}  # a subquery in FROM
