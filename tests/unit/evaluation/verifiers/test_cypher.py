"""Cypher answers are judged by what they return from a graph, and can do no harm."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.sandbox.engine_client import EngineProcess
from expert_cli.evaluation.verifiers.sandbox.limits import Stopped
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


HARMFUL = {
    "create": ("CREATE (n:Person {name: 'x'}) RETURN n.name", "refused"),
    "create after a match": ("MATCH (p:Person) CREATE (p)-[:KNOWS]->(:Person) RETURN p.name", "refused"),
    "merge": ("MERGE (n:Person {name: 'x'}) RETURN n.name", "refused"),
    "set": ("MATCH (p:Person) SET p.name = 'x' RETURN p.name", "refused"),
    "set a label": ("MATCH (p:Person) SET p:Other RETURN p.name", "refused"),
    "remove": ("MATCH (p:Person) REMOVE p.name RETURN p", "refused"),
    "delete": ("MATCH (p:Film) DELETE p", "refused"),
    "detach delete": ("MATCH (p:Person) DETACH DELETE p RETURN 1", "refused"),
    "delete in a subquery": ("MATCH (p:Person) CALL { WITH p DETACH DELETE p } RETURN 1", "refused"),
    "foreach": ("FOREACH (i IN range(1, 3) | CREATE (:Person))", "refused"),
    "create index": ("CREATE INDEX FOR (p:Person) ON (p.name)", "refused"),
    "drop index": ("DROP INDEX some", "refused"),
    "two statements, the second writes": (f"{NAMES}; MATCH (n) DETACH DELETE n", "refused"),
    "two queries": (f"{NAMES}; {NAMES}", "invalid"),
    "load csv": ("LOAD CSV FROM 'file:///etc/passwd' AS row RETURN row", "refused"),
    "load csv, spread": ("LOAD /* x */\n// y\ncsv WITH HEADERS FROM '/etc/passwd' AS row RETURN row", "refused"),
    "load csv, network": ("LOAD CSV FROM 'http://127.0.0.1:9/x' AS row RETURN row", "refused"),
    "apoc": ("CALL apoc.load.json('file:///etc/passwd') YIELD value RETURN value", "refused"),
    "apoc, quoted": ("CALL `apoc`.load.json('file:///etc/passwd') YIELD value RETURN value", "invalid"),
    "unknown procedure": ("CALL dbms.killTransactions(['x'])", "invalid"),
    "load_extension": ("RETURN load_extension('libc.so.6')", "invalid"),
    "readfile": ("RETURN readfile('/etc/passwd')", "invalid"),
    "SQL in a label": ("MATCH (n:`x'; DROP TABLE nodes; --`) RETURN n", "unknown_name"),
    "SQL in a property": ("MATCH (n:Person) RETURN n.`x'); DELETE FROM nodes; --`", "unknown_name"),
    "SQL in a text": ("MATCH (n) WHERE n.name = 'x'' OR 1=1 --' RETURN n.name", "invalid"),
    "SQL in an alias": ('MATCH (n:Person) RETURN n.born AS `x"; DROP TABLE nodes; --`', "wrong|invalid"),
    "SQL": ("SELECT name FROM sqlite_master", "invalid"),
    "PRAGMA": ("PRAGMA query_only = OFF", "invalid"),
    "ATTACH": ("ATTACH 'made.sqlite' AS x", "invalid"),
    "cross product": ("MATCH " + ", ".join(f"(n{i})" for i in range(30)) + " RETURN count(*)", "timeout"),
    "long range": ("UNWIND range(1, 1000000000) AS x RETURN x", "timeout|too_large"),
    "size of a long range": ("RETURN size(range(1, 1000000000))", "timeout|too_large"),
    "ranges of ranges": (
        "UNWIND range(1, 99999) AS a UNWIND range(1, 99999) AS b RETURN count(*)",
        "timeout|too_large",
    ),
    "doubling text": ("RETURN reduce(s = 'xx', i IN range(1, 60) | s + s)", "timeout|too_large"),
    "huge result": (
        "UNWIND range(1, 1000) AS a UNWIND range(1, 1000) AS b RETURN a, b, 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' AS t",
        "timeout|too_large",
    ),
    "long path": ("MATCH " + "-->".join(["()"] * 200) + " RETURN 1", "invalid"),
    "endless path": ("MATCH p = (a)-[*]-(b)-[*]-(c)-[*]-(d)-[*]-(e)-[*]-(f) RETURN count(p)", "timeout|wrong"),
    "slow pattern": ("RETURN '" + "a" * 40 + "b' =~ '(a+)+c'", "wrong|timeout"),
    "deep brackets": ("RETURN " + "(" * 4000 + "1" + ")" * 4000, "wrong|invalid"),
    "deep lists": ("RETURN " + "[" * 4000 + "]" * 4000, "wrong|invalid"),
    "lists as deep as can be read": ("RETURN " + "[" * 486 + "]" * 486, "too_large"),
    "lists deeper than can be read": ("RETURN " + "[" * 1000 + "]" * 1000, "too_large"),
    "lists a little deep": ("RETURN " + "[" * 101 + "]" * 101, "too_large"),
    "deep negation": ("RETURN " + "NOT " * 2000 + "true", "wrong|invalid"),
    "long sum": ("RETURN " + "+".join(["1"] * 4000), "wrong|invalid|timeout"),
    "large number": ("RETURN 99999999999999999999999", "invalid"),
    "large limit": (f"{NAMES} LIMIT 99999999999999999999", "invalid"),
    "1 MB of text": ("RETURN '" + "x" * 1_000_000 + "'", "too_large"),
    "1 MB of a name": ("x" * 1_000_000, "too_large"),
    "1 MB in other letters": ("ж" * 500_000, "too_large"),
    "8 kB of text": ("RETURN '" + "x" * 8_000 + "'", "wrong"),
    "8 kB of quotes": ("'" * 8_001, "invalid"),
    "8 kB of semicolons": (";" * 8_000, "empty"),
    "control characters": ("MATCH (p) \x1b[2J\x07 RETURN p", "invalid"),
    "NUL": (f"{NAMES}\0", "invalid"),
    "lone surrogate": ("RETURN '\udfff'", "invalid"),
    "a parameter": ("RETURN $x", "invalid|wrong"),
    "explain": (f"EXPLAIN {NAMES}", "wrong"),
    "nothing": ("", "empty"),
    "a comment": ("// RETURN 1", "empty"),
    "words": ("I am sorry, I cannot answer that.", "invalid"),
}


@pytest.mark.parametrize(("answer", "kind"), HARMFUL.values(), ids=HARMFUL.keys())
def test_harm_is_refused(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    started = time.monotonic()
    verdict = graders.cypher(answer, world, BY_NAME, timeout_s=0.5 if "timeout" in kind else 5)
    assert verdict.kind in kind.split("|"), verdict
    assert time.monotonic() - started < 10
    assert verdict.detail.isprintable()
    assert list(tmp_path.iterdir()) == []
    whole = "MATCH (n) RETURN count(n), sum(n.born); MATCH (n) RETURN 5, 5765"
    assert graders.cypher("RETURN 5, 5765", world, whole).passed
    assert graders.cypher("MATCH (n) RETURN count(n), sum(n.born)", world, "RETURN 5, 5765").passed


def test_there_are_forty_harmful_answers() -> None:
    assert len(HARMFUL) >= 40


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limits")
def test_the_engine_itself_cannot_open_files(world: Path) -> None:
    engine = EngineProcess("graphqlite", world)
    with pytest.raises(Stopped, match="cannot open"):
        engine.run("LOAD CSV FROM 'file:///etc/passwd' AS row RETURN row", timeout_s=2)
    engine.close()


def test_an_engine_that_breaks_is_started_again(world: Path) -> None:
    engine = EngineProcess("graphqlite", world)
    with pytest.raises(Stopped, match="broke off"):
        engine.run("RETURN '" + "x" * 2_000_000 + "'", timeout_s=5)
    assert engine.run("MATCH (n) RETURN count(n)", timeout_s=5) == [(5,)]
    engine.close()


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
