"""graphqlite answers as Neo4j 5 does: `neo4j.jsonl` holds queries with the rows that follow from Neo4j's manual, and
under "here" the verdict on what cannot be run. No server was asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from expert_cli.evaluation.verifiers.case import Stopped
from expert_cli.evaluation.verifiers.query_rows import Result, orders_lists, orders_rows, same
from expert_cli.evaluation.verifiers.sandbox.graphqlite import CypherJudge

WORLD = """
CREATE (a:Person {name: 'Ada', born: 1815, city: 'London'}), (b:Person:Actor {name: 'Bob', born: 1950, city: 'Paris'}),
  (c:Person {name: 'Cid'}), (d:Person {name: 'dee', born: 1950, city: 'Paris'}),
  (m:Film {title: 'One', year: 1999, score: 7.5}),
  (n:Film {title: 'Two', year: 2005, score: 6.0}), (o:Film {title: 'Three', year: 2005}), (a)-[:SAW {stars: 5}]->(m),
  (b)-[:SAW {stars: 3}]->(m), (b)-[:SAW {stars: 4}]->(n), (c)-[:SAW]->(n), (a)-[:KNOWS {since: 2000}]->(b),
  (b)-[:KNOWS {since: 2010}]->(c), (c)-[:KNOWS {since: 2015}]->(d), (b)-[:LIKES]->(o);
"""
KNOWN = [json.loads(line) for line in Path(__file__).with_name("neo4j.jsonl").read_text(encoding="utf-8").splitlines()]


Run = Callable[[str], Any]


@pytest.fixture(scope="module")
def run() -> Run:
    judge = CypherJudge()
    content, _ = judge.content_of(WORLD.encode())
    return lambda query: judge.run(content, query, 20)


def answer(run: Run, query: str) -> Any:
    try:
        return run(query)
    except Stopped as stopped:
        return stopped.kind


def test_queries_return_what_neo4j_returns(run: Run) -> None:
    other = []
    for row in KNOWN:
        query, wanted = row["query"], row.get("here", row["neo4j"])
        got = answer(run, query)
        if isinstance(got, str) or isinstance(wanted, str):
            agree = got == wanted
        else:
            agree = same(got, Result(list(map(tuple, wanted)), orders_rows(query, "cypher"), orders_lists(query)))
        if not agree:
            other.append((query, wanted, got))
    assert other == []
