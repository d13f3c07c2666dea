"""What the benchmarks of judges and experts rest on: paraphrases, and commands that are commands."""

from __future__ import annotations

import argparse
import json
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import judge_rules
from benchmarks import measure_experts as measured
from benchmarks.lib import official_judges as official
from benchmarks.lib.paraphrases import REWRITES, SPELLINGS, left_to_chance, paraphrases
from expert_cli import cli

TABLES = """
CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, age INTEGER, city INTEGER);
CREATE TABLE cities (id INTEGER PRIMARY KEY, town TEXT, size REAL);
INSERT INTO cities VALUES (1, 'Rome', 2.8), (2, 'Oslo', NULL), (3, NULL, 0.7);
INSERT INTO people VALUES (1, 'Ada', 30, 1), (2, 'Bob', NULL, 2), (3, NULL, 30, NULL), (4, 'Dee', 40, 3), (5, 'Ada', 20, 1);
"""
QUERIES = [
    'SELECT name FROM people WHERE age >= 30 AND name != "Bob"',
    "SELECT DISTINCT name, age FROM people WHERE age BETWEEN 20 AND 30 OR age IS NULL",
    "SELECT T1.name, T2.town FROM people AS T1 JOIN cities AS T2 ON T1.city = T2.id WHERE T2.size > 1",
    "SELECT count(*), T2.town FROM people AS T1 JOIN cities AS T2 ON T1.city = T2.id GROUP BY T2.town",
    "SELECT count(*) FROM people WHERE age IN (20, 30)",
    "SELECT town FROM cities WHERE id IN (SELECT city FROM people WHERE age = 30)",
    "SELECT town FROM cities WHERE id NOT IN (SELECT city FROM people WHERE city IS NOT NULL AND age < 40)",
    "SELECT name, age FROM people ORDER BY age DESC, name",
    "SELECT town FROM cities UNION SELECT name FROM people",
    "SELECT avg(age), max(size) FROM people, cities WHERE people.city = cities.id",
    "SELECT name FROM people WHERE age > (SELECT avg(age) FROM people)",
]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("judges") / "towns.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(TABLES)
    connection.close()
    return path


def test_paraphrases_mean_the_same(database: Path) -> None:
    """With NULL in every column but the keys; where rows are ordered, in the same order."""
    schema = judge_rules.schema_of(database)
    assert schema.keys == {"people": "id", "cities": "id"}
    used: Counter[str] = Counter()
    for query in QUERIES:
        expected = official.run(database, query).rows
        assert expected
        assert not left_to_chance(query)
        for made in paraphrases(query, schema, 40):
            rows = official.run(database, made.query).rows
            assert (rows if "ORDER BY" in query else Counter(rows)) == (
                expected if "ORDER BY" in query else Counter(expected)
            ), made.query
            used.update(made.rewrites)
    assert set(used) == {*REWRITES, *SPELLINGS}


def test_the_benchmark_runs(database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for questions, databases in (("spider/train.jsonl", "spider/databases"), ("sql/defog_eval.jsonl", "sql/defog_db")):
        rows = [{"db_id": "towns", "question": "Which?", "answer": query} for query in QUERIES]
        (tmp_path / databases).mkdir(parents=True)
        (tmp_path / questions).write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        (tmp_path / databases / "towns.sqlite").write_bytes(database.read_bytes())
    judge_rules.main([str(tmp_path), "--pairs", "40", "--paraphrases", "20"])
    printed = capsys.readouterr().out
    assert printed.startswith("40 pairs: ")
    assert "20 paraphrases by our default: 0 wrong" in printed
    assert "our spider and the official spider: 0 of 40 apart" in printed


def options(out: Path, limit: int | None = None, max_steps: int | None = None) -> argparse.Namespace:
    return argparse.Namespace(out=out, data=None, experts=list(measured.EXPERTS), limit=limit, max_steps=max_steps)


@pytest.mark.parametrize("more", [{}, {"limit": 2, "max_steps": 5}], ids=["all", "little"])
def test_every_command_is_one(tmp_path: Path, more: dict[str, int]) -> None:
    asked = options(tmp_path, **more)
    for name in measured.EXPERTS:
        train = measured.train_command(name, asked)
        files = measured.case_files(name, asked)
        assert set(files) == {"cases", "unseen"}
        for command in (train, *(measured.evaluate_command(name, key, path, asked) for key, path in files.items())):
            read = cli.command(command[0]).make_context(command[0], command[1:]).params
            for part in ("manifest", "dataset", "cases"):
                assert not read.get(part) or (measured.HERE / read[part]).is_file()
        assert measured.printed(train, tmp_path).count("OUT") == 1
    assert measured.limit_of("real", asked) == more.get("limit", 300)
