"""DuckDB answers as PostgreSQL does: `postgresql.jsonl` holds 773 queries with what PostgreSQL 18.6 returned ("error" where it
refused), and under "here" what is known to be otherwise: other rows, or the verdict on a query that DuckDB cannot run.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from expert_cli.evaluation.verifiers.compare_rows import Result, same
from expert_cli.evaluation.verifiers.query_text import orders_rows
from expert_cli.evaluation.verifiers.sandbox.duckdb_engine import DuckDBEngine
from expert_cli.evaluation.verifiers.sandbox.limits import Stopped

STAFF = """
CREATE TABLE staff (id INTEGER PRIMARY KEY, name VARCHAR(20), dept TEXT, pay NUMERIC(8,2), hired DATE, seen TIMESTAMP,
  active BOOLEAN, score INTEGER, note TEXT, rate REAL);
INSERT INTO staff VALUES
  (1, 'Ada', 'Sales', 10.50, '2020-01-31', '2020-02-01 10:30:00', TRUE, 5, 'a-b-c', 1.5),
  (2, 'bob', 'Sales', 2.67, '2021-05-06', '2021-05-06 23:59:59', FALSE, 2, NULL, 2.5),
  (3, 'Cid', 'ops', 2.68, '2021-12-31', NULL, TRUE, -5, '100% sure', -2.5),
  (4, 'dee', NULL, NULL, NULL, '2022-02-28 00:00:00', NULL, NULL, 'x_y', NULL),
  (5, 'Eve', 'Ops', 100.00, '2024-02-29', '2024-03-01 12:00:00', TRUE, 2, 'Über', 0.1);
"""
KNOWN = [
    json.loads(line) for line in Path(__file__).with_name("postgresql.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDBEngine]:
    path = tmp_path_factory.mktemp("staff") / "staff.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(STAFF)
    connection.close()
    return DuckDBEngine(path)


def answer(engine: DuckDBEngine, query: str) -> Any:
    try:
        return [list(row) for row in engine.run(query, timeout_s=20)]
    except Stopped as stopped:
        return stopped.kind


@pytest.mark.skipif(duckdb.__version__ < "2", reason="DuckDB 1.5 passes over divisions by zero and lacks overlay")
def test_queries_return_what_postgresql_returns(engine: DuckDBEngine) -> None:
    other = []
    for row in KNOWN:
        query, wanted = row["query"], row.get("here", "invalid" if row["postgresql"] == "error" else row["postgresql"])
        got = answer(engine, query)
        if isinstance(got, str) or isinstance(wanted, str):
            agree = got == wanted
        else:
            agree = same(got, Result(wanted, orders_rows(query, "postgresql")))
        if not agree:
            other.append((query, wanted, got))
    assert other == []


def test_the_table_is_large_and_what_differs_is_rare() -> None:
    assert len(KNOWN) == 773
    assert sum(isinstance(row.get("here"), list) for row in KNOWN) == 9
    assert sum(isinstance(row.get("here"), str) for row in KNOWN) == 35


@pytest.mark.parametrize(
    ("query", "named"),
    [
        pytest.param("SELECT num_nulls(1, NULL)", "has no num_nulls", id="function"),
        pytest.param("SELECT DATE '2021-01-01' + count(*) FROM staff", r"has no \+\(DATE, BIGINT\)", id="operator"),
        pytest.param("SELECT to_char(DATE '2021-01-01', 'J')", "has no template J", id="template"),
        pytest.param(r"SELECT 'a' ~ '\ya'", r"has no \\y", id="part of a pattern"),
        pytest.param("SELECT 1 BETWEEN SYMMETRIC 2 AND 0", "has no symmetric", id="word"),
    ],
)
def test_what_cannot_be_run_here_is_named(engine: DuckDBEngine, query: str, named: str) -> None:
    with pytest.raises(Stopped, match=f"asked in place of PostgreSQL, {named}") as caught:
        engine.run(query, timeout_s=5)
    assert caught.value.kind == "parsed_only"


def test_texts_and_names_are_left_alone(engine: DuckDBEngine) -> None:
    query = """SELECT '~ json_agg( interval', "every" /* a ~ b */ FROM (SELECT 1 AS "every") -- !~"""
    assert engine.run(query, timeout_s=5) == [("~ json_agg( interval", 1)]
