"""graphqlite answers as Neo4j 5 does: `neo4j.jsonl` holds queries with the rows that follow from Neo4j's manual, and
under "here" the verdict on what cannot be run. No server was asked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from expert_cli.evaluation.verifiers.query_text import orders_lists, orders_rows
from expert_cli.evaluation.verifiers.result_rows import Result, same
from expert_cli.evaluation.verifiers.sandbox.child_process import Stopped
from expert_cli.evaluation.verifiers.sandbox.graphqlite import GraphQLiteEngine, unknown_name

WORLD = """
CREATE (a:Person {name: 'Ada', born: 1815, city: 'London'}), (b:Person:Actor {name: 'Bob', born: 1950, city: 'Paris'}),
  (c:Person {name: 'Cid'}), (d:Person {name: 'dee', born: 1950, city: 'Paris'}),
  (m:Film {title: 'One', year: 1999, score: 7.5}),
  (n:Film {title: 'Two', year: 2005, score: 6.0}), (o:Film {title: 'Three', year: 2005}), (a)-[:SAW {stars: 5}]->(m),
  (b)-[:SAW {stars: 3}]->(m), (b)-[:SAW {stars: 4}]->(n), (c)-[:SAW]->(n), (a)-[:KNOWS {since: 2000}]->(b),
  (b)-[:KNOWS {since: 2010}]->(c), (c)-[:KNOWS {since: 2015}]->(d), (b)-[:LIKES]->(o);
"""
KNOWN = [json.loads(line) for line in Path(__file__).with_name("neo4j.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def engine() -> GraphQLiteEngine:
    return GraphQLiteEngine(WORLD.encode())


def answer(engine: GraphQLiteEngine, query: str) -> Any:
    try:
        return engine.run(query, timeout_s=20)
    except Stopped as stopped:
        return stopped.kind


def test_queries_return_what_neo4j_returns(engine: GraphQLiteEngine) -> None:
    other = []
    for row in KNOWN:
        query, wanted = row["query"], row.get("here", row["neo4j"])
        got = answer(engine, query)
        if isinstance(got, str) or isinstance(wanted, str):
            agree = got == wanted
        else:
            agree = same(got, Result(list(map(tuple, wanted)), orders_rows(query, "cypher"), orders_lists(query)))
        if not agree:
            other.append((query, wanted, got))
    assert other == []


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("MATCH (n) RETURN COLLECT { MATCH (n)-->(m) RETURN m }", "COLLECT {"),
        ("MATCH (n) CALL { WITH n MATCH (n)-->(m) RETURN count(m) AS k } RETURN k", "CALL { WITH"),
        ("MATCH (n:!Person) RETURN n", ":!"),
        ("MATCH (n:Film WHERE n.year > 1) RETURN n", "(n:Film WHERE"),
    ],
)
def test_what_cannot_be_run_here_is_named(engine: GraphQLiteEngine, query: str, named: str) -> None:
    with pytest.raises(Stopped) as caught:
        engine.run(query, timeout_s=5)
    assert (caught.value.kind, caught.value.detail) == (
        "parsed_only",
        f"graphqlite, asked in place of Neo4j, lacks {named}",
    )


GRAPH = {
    "label": frozenset(("Person", "Film", "Big Film")),
    "type": frozenset(("SAW", "KNOWS")),
    "property": frozenset(("name", "born", "title", "stars")),
}


@pytest.mark.parametrize(
    "query",
    [
        "MATCH (p:Person {name: 'x'})-[s:SAW|KNOWS*1..3]->(f:Film|`Big Film`) WHERE s.stars > 1.5 RETURN p.name, f.`title`",
        "MATCH (p:Person&!Film)-[:SAW|:KNOWS {stars: 1}]-() RETURN count(p), p {.name, age: 1}",
        "MATCH (p) WHERE p:Person AND EXISTS { MATCH (p)-[:KNOWS]->(q:Person) WHERE q.born = 1 } RETURN p",
        "MATCH (p:Person) WITH {old: p.born, who: p.name} AS m RETURN m.old, m['who'], [x IN [m] | x.old]",
        "MATCH (p:Person) RETURN 'p.nick :Nobody' AS `p.nick` // p.nick",
        "MATCH (p:Person) RETURN collect({film: p.name})[0].film",
    ],
)
def test_names_that_are_there(query: str) -> None:
    assert unknown_name(query, GRAPH) == ""


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("MATCH (p:Persn) RETURN p.nick", "label Persn"),
        ("MATCH (:Person)-[:SEEN]->() RETURN 1", "type SEEN"),
        ("MATCH ()-[r:Person]->() RETURN r", "type Person"),
        ("MATCH (p:`Per``son`) RETURN p", "label Per`son"),
        ("MATCH (p) WHERE p:Nobody RETURN p", "label Nobody"),
        ("MATCH (p {nick: 'x'}) RETURN p", "property nick"),
        ("MATCH (p:Person {name: 'x', nick: 'y'}) RETURN p", "property nick"),
        ("MATCH ()-[r:SAW {nick: 1}]->() RETURN r", "property nick"),
        ("MATCH (p:Person) RETURN p.born, p.`nick`", "property nick"),
        ("MATCH (p:Person) WITH {nick: 1} AS m RETURN p.nick", "property nick"),
    ],
)
def test_the_first_name_that_is_not(query: str, told: str) -> None:
    assert unknown_name(query, GRAPH) == f"the graph has no {told}"
