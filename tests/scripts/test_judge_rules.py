"""The judges that ours is compared with, and the paraphrases that it is tried on."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks import judge_rules
from benchmarks.lib import official_judges as official
from benchmarks.lib.official_judges import Table
from benchmarks.lib.paraphrases import REWRITES, SPELLINGS, left_to_chance, paraphrases, variants

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


def test_what_is_left_to_chance_is_told() -> None:
    assert left_to_chance("SELECT name, max(age) FROM people GROUP BY city") == "a column outside GROUP BY"
    assert left_to_chance("SELECT name FROM people LIMIT 2") == "LIMIT without ORDER BY"
    assert left_to_chance("SELECT * FROM (SELECT id FROM people ORDER BY age LIMIT 1)").startswith(
        "LIMIT in a subquery"
    )
    assert left_to_chance("SELECT FROM WHERE") == ""


def test_variants(database: Path) -> None:
    made = variants("SELECT name, count(*) FROM people GROUP BY name ORDER BY 2", judge_rules.schema_of(database))
    assert [one.rewrites[0] for one in made] == [
        "columns in reverse", "a column more", "whole numbers as floats", "tied rows in reverse",
    ]  # fmt: skip
    assert made[0].query.startswith("SELECT COUNT(*), name FROM")
    assert not variants("SELECT * FROM people", judge_rules.schema_of(database))


def table(*rows: tuple[Any, ...], names: str = "abcdefgh") -> Table:
    return Table(list(names[: len(rows[0]) if rows else 1]), rows)


@pytest.mark.parametrize(
    ("gold", "answer", "query", "right"),
    [
        pytest.param(table((1, "a"), (2, "b")), table(("b", 2), ("a", 1)), "", True, id="columns and rows"),
        pytest.param(table((1,), (2,)), table((2,), (1,)), "ORDER BY", False, id="order"),
        pytest.param(table((1,), (1,)), table((1,)), "", False, id="a row twice"),
        pytest.param(table((1, 1), (2, 2)), table((1, 2), (2, 1)), "", False, id="cells across rows"),
        pytest.param(table((0.3,)), table((0.1 + 0.2,)), "", False, id="noise"),
        pytest.param(table((1,)), table((1.0,)), "", True, id="a whole float"),
        pytest.param(table((1, "1.5")), table((1.0, "1.5")), "", False, id="a whole float that is sorted elsewhere"),
        pytest.param(table(), Table(["a", "b"], []), "", True, id="nothing"),
        pytest.param(table((1, 2, 3, 4, 5)), table((5, 4, 3, 2, 1)), "", True, id="five columns"),
    ],
)
def test_spiders_judge(gold: Table, answer: Table, query: str, right: bool) -> None:
    assert official.spider(gold, answer, query) is right


@pytest.mark.parametrize(
    ("gold", "answer", "question", "right"),
    [
        pytest.param(table((1, "a"), (2, "b")), table(("b", 2, 7), ("a", 1, 7)), "", True, id="columns, one more"),
        pytest.param(table((1,), (2,)), table((1,), (2,), (2,)), "", True, id="a row twice"),
        pytest.param(table((None,), (1,)), table((None,), (1,)), "", True, id="NULL"),
        pytest.param(table((None,), (1,)), table((None,), (1,), (1,)), "", False, id="NULL among numbers, a row twice"),
        pytest.param(table((1.0,)), table((1.000005,)), "", True, id="within 1e-5"),
        pytest.param(table((1,)), table(), "", True, id="one row expected, none given"),
        pytest.param(table((1,)), table((1,), (1,)), "", True, id="one row, repeated"),
        pytest.param(table((1,), (2,)), table(), "", False, id="two rows expected, none given"),
        pytest.param(table((1,), (2,)), table((2,), (1,)), "Sort them.", False, id="asked to sort"),
        pytest.param(table((1,), (2,)), table((2,), (1,)), "List them.", True, id="not asked to"),
    ],
)
def test_defogs_judge(gold: Table, answer: Table, question: str, right: bool) -> None:
    assert official.defog("SELECT a FROM t", [gold], "SELECT a FROM t", answer, question=question) is right


def test_birds_judge() -> None:
    assert official.bird(table((1,), (2,), (2,)), table((2,), (1,)))
    assert not official.bird(table((1, 2)), table((2, 1)))


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
