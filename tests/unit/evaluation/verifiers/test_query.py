"""An answer must be right on every content: on a list of files, or on those made of one."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from expert_cli.errors import InputError
from expert_cli.evaluation.cases import read_answers, read_case
from expert_cli.evaluation.verdict import Grade

MOST = "SELECT name, weight FROM pets ORDER BY weight DESC LIMIT 1"
PETS = "CREATE TABLE pets (id INTEGER PRIMARY KEY, name TEXT, weight INTEGER); INSERT INTO pets VALUES "
GRAPH = "CREATE (:Pet {name: 'Rex', weight: 40}), (:Pet {name: 'Tom', weight: 4}), (:Pet {name: 'Kim', weight: 6});"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pets")
    for name, rows in {
        "pets": "(1, 'Rex', 40), (2, 'Tom', 4), (3, 'Kim', 6)",
        "more": "(1, 'Ann', 3), (2, 'Bea', 5)",
    }.items():
        with closing(sqlite3.connect(folder / f"{name}.sqlite")) as connection:
            connection.executescript(f"{PETS}{rows};")
    with closing(sqlite3.connect(folder / "other.sqlite")) as connection:
        connection.execute("CREATE TABLE plants (name)")
    (folder / "pets.cypher").write_text(GRAPH, encoding="utf-8")
    return folder


def graded(folder: Path, answer: str, expected: str, timeout_s: float = 10, **keys: Any) -> Grade:
    """Grade an answer as a row of a file would be."""
    named = {"verifier": "sql", "database": "pets.sqlite", "expected": expected, "answer": answer, **keys}
    (folder / "rows.jsonl").write_text(json.dumps(named), encoding="utf-8")
    [row] = read_answers(folder / "rows.jsonl")
    return row.case.grade(row.answer, row.file, timeout_s)


LUCKY = {
    "a missing order": (MOST, "SELECT name, weight FROM pets LIMIT 1"),
    "at least for more than": ("SELECT name FROM pets WHERE weight > 5", "SELECT name FROM pets WHERE weight >= 5"),
    "a near number": ("SELECT name FROM pets WHERE weight > 5", "SELECT name FROM pets WHERE weight > 4"),
    "a count of values": ("SELECT count(*) FROM pets", "SELECT count(DISTINCT name) FROM pets"),
    "rows that are different by chance": ("SELECT name FROM pets", "SELECT DISTINCT name FROM pets"),
    "no NULL by chance": ("SELECT count(*) FROM pets", "SELECT count(weight) FROM pets"),
    "the constant itself": ("SELECT max(weight) FROM pets", "SELECT 40"),
}


@pytest.mark.parametrize(("expected", "answer"), LUCKY.values(), ids=LUCKY.keys())
def test_what_is_right_by_luck_is_caught(folder: Path, expected: str, answer: str) -> None:
    assert graded(folder, answer, expected).passed
    verdict = graded(folder, answer, expected, perturb=8)
    assert verdict.kind in ("wrong", "empty")
    assert "right on the first content, not on content" in verdict.detail


def test_values_beyond_all_that_are_there_tell_a_second_limit(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as connection:
        rows = ", ".join(f"({number}, '202{number}-01-0{number + 1}')" for number in range(5))
        connection.executescript(f"CREATE TABLE t (a int, b text); INSERT INTO t VALUES {rows};")
    for expected, answer in (
        ("SELECT b FROM t WHERE a > 1", "SELECT b FROM t WHERE a BETWEEN 2 AND 9"),
        ("SELECT a FROM t WHERE a > 1", "SELECT a FROM t WHERE a BETWEEN 2 AND 1000"),
        ("SELECT count(*) FROM t WHERE a < 3", "SELECT count(*) FROM t WHERE a BETWEEN -1 AND 2"),
        ("SELECT a FROM t WHERE b >= '2021-01-01'", "SELECT a FROM t WHERE b BETWEEN '2021-01-01' AND '2030-12-31'"),
    ):
        asked = {"expected": expected, "database": "t.sqlite", "perturb": 8}
        assert graded(tmp_path, answer, **asked).kind == "wrong", answer
        assert graded(tmp_path, expected, **asked).passed, expected


@pytest.mark.parametrize("expected", [expected for expected, _ in LUCKY.values()])
def test_the_expected_query_and_its_like_are_right_on_all(folder: Path, expected: str) -> None:
    alike = f"SELECT * FROM ({expected}) AS alike" if "ORDER" not in expected else expected.lower()
    for answer in (expected, alike):
        verdict = graded(folder, answer, expected, perturb=8)
        assert verdict.passed, (answer, verdict.detail)


def test_every_accepted_query_is_right_but_not_a_mixture(folder: Path) -> None:
    accepted = "SELECT min(weight) FROM pets; SELECT 4"
    assert graded(folder, "SELECT min(weight) FROM pets", accepted, perturb=8).passed
    assert graded(folder, "SELECT 4", accepted, perturb=8).passed
    count = "(SELECT count(*) FROM pets)"
    mixture, accepted = f"SELECT iif({count} = 3, 4, 6)", f"SELECT 4; SELECT iif({count} = 3, 5, 6)"
    assert graded(folder, mixture, accepted).passed
    assert not graded(folder, mixture, accepted, perturb=8).passed


def test_a_graph_has_other_contents_too(folder: Path) -> None:
    def asked(answer: str, **more: Any) -> Grade:
        row = {"script": "pets.cypher", "expected": "MATCH (p:Pet) WHERE p.weight > 5 RETURN p.name", **more}
        return read_case("here", {"verifier": "cypher", **row}).grade(answer, folder / "pets.cypher", 10)

    lucky = "MATCH (p:Pet) WHERE p.weight >= 5 RETURN p.name"
    assert asked(lucky).passed
    assert "right on the first content" in asked(lucky, perturb=8).detail
    assert asked("MATCH (p:Pet) WHERE 5 < p.weight RETURN p.name", perturb=8).passed


def test_a_list_of_databases_is_asked_one_after_the_other(folder: Path) -> None:
    both = ["pets.sqlite", "more.sqlite"]
    assert graded(folder, MOST, MOST, database=both).passed
    verdict = graded(folder, "SELECT 'Rex', 40", MOST, database=both)
    assert verdict == Grade(
        "wrong", "right on the first content, not on content 2: row 1 is ('Rex', 40), ('Bea', 5) expected"
    )
    only = graded(folder, MOST, MOST, database=["more.sqlite"])
    assert only.passed
    with pytest.raises(InputError, match=r"expected query fails on .*other\.sqlite: no such table: pets"):
        graded(folder, MOST, MOST, database=["pets.sqlite", "other.sqlite"])
    with pytest.raises(InputError, match=r"rows\.jsonl:1: none\.sqlite: no such file"):
        graded(folder, MOST, MOST, database=["pets.sqlite", "none.sqlite"])
    with pytest.raises(InputError, match="perturb: 2 files are named"):
        graded(folder, MOST, MOST, database=both, perturb=8)
    with pytest.raises(InputError, match="database"):
        graded(folder, MOST, MOST, database=[])


@pytest.mark.parametrize("count", [0, -1, 101, 1000, 1.5, "8", True])
def test_a_number_of_contents_that_makes_no_sense_is_refused(count: object) -> None:
    with pytest.raises(InputError, match="here: perturb: Input should be"):
        read_case("here", {"verifier": "sql", "database": "a", "expected": "SELECT 1", "perturb": count})


def test_the_time_of_an_answer_is_that_of_all_contents(folder: Path) -> None:
    # never done where there are more pets than on the first content
    endless = f"SELECT count(*) FROM {', '.join(f'pets AS p{number}' for number in range(40))}"
    slow = f"SELECT count(*) FROM pets WHERE (SELECT count(*) FROM pets) <= 3 OR ({endless}) > 0"
    assert graded(folder, slow, "SELECT count(*) FROM pets", 1.0, perturb=8).kind == "timeout"
    started = time.monotonic()
    assert graded(folder, slow, "SELECT count(*) FROM pets", 1.0, perturb=8).kind == "timeout"
    assert time.monotonic() - started < 3.0  # the time, what an engine may take to stop, and some more


def test_where_rows_are_cut_by_chance_no_content_is_made(folder: Path) -> None:
    assert graded(folder, "SELECT name FROM pets LIMIT 2", "SELECT name FROM pets LIMIT 2", perturb=4).passed
