"""What a Cypher query names that its graph does not have."""

from __future__ import annotations

import pytest

from expert_cli.evaluation.verifiers.cypher_text import unknown_name

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
        "WITH date('2020-01-01') AS d RETURN d.year, date.truncate('month', d), duration.between(d, d).days",
        "MATCH (p:Person) RETURN 'p.nick :Nobody' AS `p.nick` // p.nick",
        "MATCH (p:Person) RETURN CASE WHEN p.born > 1 THEN {a: 1} ELSE {b: 2} END AS m",
        "MATCH (p:Person) RETURN collect({film: p.name})[0].film",
    ],
)
def test_names_that_are_there(query: str) -> None:
    assert unknown_name(query, GRAPH) == ""


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("MATCH (p:Persn) RETURN p.nick", "label Persn"),
        ("MATCH (p:Person|Persn) RETURN p", "label Persn"),
        ("MATCH (:Person)-[:SEEN]->() RETURN 1", "type SEEN"),
        ("MATCH (:Person)-[r:SAW|:SEEN]->() RETURN r", "type SEEN"),
        ("MATCH (p:SAW) RETURN p", "label SAW"),
        ("MATCH ()-[r:Person]->() RETURN r", "type Person"),
        ("MATCH (p:`Per``son`) RETURN p", "label Per`son"),
        ("MATCH (p) WHERE p:Nobody RETURN p", "label Nobody"),
        ("MATCH (p {nick: 'x'}) RETURN p", "property nick"),
        ("MATCH (p:Person {name: 'x', nick: 'y'}) RETURN p", "property nick"),
        ("MATCH ()-[r:SAW {nick: 1}]->() RETURN r", "property nick"),
        ("MATCH (p:Person) RETURN p.year", "property year"),
        ("MATCH (p:Person) RETURN p.born, p.`nick`", "property nick"),
        ("MATCH (p:Person) WITH {nick: 1} AS m RETURN p.nick", "property nick"),
        ("MATCH (p:Person) WITH p AS q RETURN q.nick", "property nick"),
    ],
)
def test_the_first_name_that_is_not(query: str, told: str) -> None:
    assert unknown_name(query, GRAPH) == f"the graph has no {told}"
