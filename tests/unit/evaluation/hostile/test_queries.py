"""Answers that try to escape, to harm or to be judged right without being so: `sql.jsonl`, `cypher.jsonl`.

"kinds": the verdicts that are acceptable, never "correct". What an answer writes is called made-by-answer; what it connects to
is PORT of this machine.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import expert_cli
from expert_cli.evaluation.verifiers.case import Grade
from tests import graders
from tests.unit.evaluation.hostile import runner

SHORT_S, LONG_S = 0.2, 5.0
"""The time of an answer that may run into it, and of the others."""
SHOP = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT, balance REAL, joined DATE);
INSERT INTO customers VALUES (1, 'Ada', 'Berlin', 10.5, '2020-01-02'), (2, 'Bob', 'Paris', 0.1, '2021-05-06'),
  (3, 'Cid', NULL, 0.2, NULL), (4, 'Dee', 'Paris', 0.3, '2021-07-08');
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, total DECIMAL(8,2));
INSERT INTO orders VALUES (1, 1, 5.25), (2, 1, 7), (3, 4, 2.5);
"""
PEOPLE = """
CREATE (a:Person {name: 'Ada', born: 1815}), (b:Person {name: 'Bob', born: 1950}), (c:Person {name: 'Cid', born: 2000}),
  (a)-[:KNOWS]->(b), (b)-[:KNOWS]->(c);
"""
IN_PARIS = "SELECT name FROM customers WHERE city = 'Paris'"
YOUNG = "MATCH (p:Person) WHERE p.born > 1900 RETURN p.name"
HONEST = {
    "sql": "SELECT c.name FROM customers AS c WHERE c.city LIKE 'Par%'",
    "cypher": "MATCH (p:Person) WHERE p.born >= 1950 RETURN p.name",
}


def judge(name: str, folder: Path) -> tuple[Callable[[str, float], Grade], Path]:
    """Return what judges one answer, and the file that it must not change."""
    if name == "cypher":
        script = folder / "people.cypher"
        script.write_text(PEOPLE, encoding="utf-8")
        return lambda answer, limit: graders.cypher(answer, script, YOUNG, timeout_s=limit), script
    database = graders.database(folder / "shop.sqlite", SHOP)
    return lambda answer, limit: graders.sql(answer, database, IN_PARIS, timeout_s=limit), database


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.setblocking(False)
        yield server


@runner.few_and_rest
@pytest.mark.parametrize("name", HONEST)
def test_hostile_answers_are_contained(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listener: socket.socket, few: bool
) -> None:
    source, elsewhere = tmp_path / "source", tmp_path / "elsewhere"
    source.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    grade, file = judge(name, source)
    before = file.read_bytes()
    port = str(listener.getsockname()[1])
    found = []
    for row in runner.some(name, few=few):
        started = time.monotonic()
        verdict = grade(
            runner.answer_of(row).replace(runner.PORT, port), SHORT_S if "timeout" in row["kinds"] else LONG_S
        )
        took = time.monotonic() - started
        if verdict.kind not in row["kinds"] or took > 2 * LONG_S or not verdict.detail.isprintable():
            found.append((row["id"], verdict, round(took, 1)))
        elif not grade(HONEST[name], LONG_S).passed:
            found.append((row["id"], "the next answer is judged wrong", 0))
    assert found == [], "\n".join(map(str, found))
    assert file.read_bytes() == before
    assert list(source.iterdir()) == [file]
    assert list(elsewhere.iterdir()) == []
    watched = (Path("/tmp"), Path(tempfile.gettempdir()), Path(expert_cli.__file__).parents[1], Path.home())  # noqa: S108
    assert [path for folder in watched if folder.is_dir() for path in folder.glob("made-by-answer*")] == []
    with pytest.raises(BlockingIOError):
        listener.accept()
