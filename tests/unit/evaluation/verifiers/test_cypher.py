"""Cypher answers are judged by what they return from a graph, and can do no harm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from expert_cli.errors import InputError
from tests import graders

SCRIPT = """
// A small world; a semicolon here; is none.
CREATE (a:Person {name: 'Ada; the first', born: 1815}), (b:Person {name: 'Bob', born: 1950}),
  (c:Person {name: 'Cid'}), (m:Film {title: 'One', score: 0.3}), (n:Film {title: 'Two', score: 0.1}),
  (a)-[:SAW {stars: 5}]->(m), (b)-[:SAW {stars: 3}]->(m), (b)-[:SAW]->(n), (a)-[:KNOWS]->(b), (b)-[:KNOWS]->(c);
MATCH (p:Person {name: 'Cid'}) SET p.born = 2000;
"""
NAMES = "MATCH (p:Person) RETURN p.name"
BY_NAME = f"{NAMES} ORDER BY p.name DESC"
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


@pytest.mark.parametrize(
    ("answer", "expected", "kind"),
    [
        pytest.param(NAMES, NAMES, "correct", id="the same query"),
        pytest.param("MATCH (q:Person) RETURN q.name AS n", NAMES, "correct", id="names of columns do not count"),
        pytest.param(BY_NAME, NAMES, "correct", id="another order where none is asked for"),
        pytest.param(f"{NAMES} ORDER BY p.name", BY_NAME, "wrong", id="another order where one is asked for"),
        pytest.param(
            "MATCH (p:Person)-[:SAW]->(f:Film) WITH p, f ORDER BY f.title DESC RETURN p.name, collect(f.title)",
            SEEN,
            "correct",
            id="another order in a list",
        ),
        pytest.param(
            "MATCH (a:Person)-[:KNOWS]->(b) RETURN [b.name, a.name]",
            "MATCH (a:Person)-[:KNOWS]->(b) RETURN [a.name, b.name]",
            "wrong",
            id="another order in a list that is written",
        ),
        pytest.param(
            "MATCH p = (b)<-[:KNOWS]-(a:Person {name: 'Ada; the first'}) RETURN nodes(p)",
            "MATCH p = (a:Person {name: 'Ada; the first'})-[:KNOWS]->(b) RETURN nodes(p)",
            "wrong",
            id="another order of a path's nodes",
        ),
        pytest.param("MATCH (p:Person) RETURN p.name, p.name", NAMES, "wrong", id="a column twice"),
        pytest.param("RETURN 0.1 + 0.2", "MATCH (f:Film {title: 'One'}) RETURN f.score", "correct", id="noise"),
        pytest.param("RETURN true", "RETURN 1", "wrong", id="true is not 1"),
        pytest.param("MATCH (p:Person) RETURN p.nick", NAMES, "unknown_name", id="a property that is not there"),
        pytest.param("MATCH (p:Persn) RETURN p.name", NAMES, "unknown_name", id="a label that is not there"),
        pytest.param("MATCH (p:Person) WHERE p.born > 3000 RETURN p.name", NAMES, "empty", id="nothing"),
        pytest.param(f"{NAMES}; // done", NAMES, "correct", id="semicolon and comment"),
        pytest.param("RETURN 2", "RETURN 1; RETURN 2;", "correct", id="the second of two accepted"),
        pytest.param("MATCH (p:Person) RETURN p", "MATCH (p:Person) RETURN p", "correct", id="nodes"),
        pytest.param("MATCH (s:Set {set: 1}) RETURN s.set, s.name", NAMES, "unknown_name", id="writing words as names"),
        pytest.param("MATCH (p:Person RETURN p.name", NAMES, "invalid", id="syntax"),
        pytest.param("MATCH (p:Person) RETURN q.name", NAMES, "invalid", id="unknown variable"),
    ],
)
def test_results_are_compared(world: Path, answer: str, expected: str, kind: str) -> None:
    verdict = graders.cypher(answer, world, expected)
    assert (verdict.kind, verdict.passed) == (kind, kind == "correct"), verdict.detail


@pytest.mark.parametrize(
    ("script", "expected", "match"),
    [
        pytest.param(SCRIPT, "MATCH (p RETURN p", "expected query fails.*syntax error", id="expected query"),
        pytest.param(SCRIPT, "CREATE (n) RETURN n", "expected query fails.*CREATE", id="expected query writes"),
        pytest.param("CREATE (a:A);\nCREATE (b", "RETURN 1", r"world\.cypher: statement 2: .*syntax", id="script"),
    ],
)
def test_a_case_at_fault_is_named(tmp_path: Path, script: str, expected: str, match: str) -> None:
    path = tmp_path / "world.cypher"
    path.write_text(script, encoding="utf-8")
    with pytest.raises(InputError, match=match):
        graders.cypher("RETURN 1", path, expected)
