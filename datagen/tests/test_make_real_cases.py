"""Benchmarks become cases and training rows in the experts' form; what cannot be judged is left out."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from datagen.spider import make_real_cases as maker

CONTEXT = "CREATE TABLE city (name TEXT, Population INT)"


def write(path: Path, *rows: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def run_script(monkeypatch: pytest.MonkeyPatch, data: Path, output: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["make_real_cases.py", str(data), str(output)])
    maker.main()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("SELECT 1", ["SELECT 1;"]),
        ("SELECT ';' ;SELECT 2;", ["SELECT ';' ;", "SELECT 2;"]),
        ("SELECT 1;;", ["SELECT 1;"]),
    ],
)
def test_statements_are_parted_outside_quotes(text: str, parts: list[str]) -> None:
    assert maker.statements(text) == parts


@pytest.mark.parametrize(
    ("query", "tidied"),
    [
        ('SELECT name ,  age FROM city WHERE name  =  "O\'Neil" ;', "SELECT name, age FROM city WHERE name = 'O''Neil'"),
        ('SELECT "Name" FROM city', 'SELECT "Name" FROM city'),
        ("SELECT name FROM city WHERE name = ' a ,  b '", "SELECT name FROM city WHERE name = ' a ,  b '"),
        ("SELECT ( SELECT MAX ( population ) FROM city )", "SELECT (SELECT MAX (population) FROM city)"),
    ],
)  # fmt: skip
def test_a_query_is_tidied_outside_its_literals(query: str, tidied: str) -> None:
    assert maker.tidy(query, CONTEXT) == tidied


def test_names_lose_their_quotes_where_sqlite_takes_them_bare() -> None:
    assert maker.unquoted('CREATE TABLE "city" ("name" TEXT)') == "CREATE TABLE city (name TEXT)"
    assert maker.unquoted('CREATE TABLE "order" ("name" TEXT)') == 'CREATE TABLE "order" ("name" TEXT)'


def test_defog_questions_keep_the_right_queries_that_find_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, output = tmp_path / "data", tmp_path / "out"
    (data / "sql" / "defog_db").mkdir(parents=True)
    with closing(sqlite3.connect(data / "sql" / "defog_db" / "atlas.sqlite")) as connection:
        connection.executescript(CONTEXT + "; INSERT INTO city VALUES ('Oslo', 7);")  # noqa: S608
    asked = {"db_id": "atlas", "question": "Which cities?", "context": 'CREATE TABLE "city" ("name" TEXT)'}
    write(
        data / "sql" / "defog_eval.jsonl",
        {**asked, "answer": "SELECT name FROM city;SELECT town FROM city", "instructions": "Use names."},
        {**asked, "answer": "SELECT name FROM city WHERE name = 'Rome'", "instructions": None},
    )
    run_script(monkeypatch, data, output)
    assert read(output / "sql" / "cases.jsonl") == [
        {
            "id": "atlas-1",
            "category": "1 one table",
            "verifier": "sql",
            "prompt": "Which cities? Use names.",
            "input": "CREATE TABLE city (name TEXT)",
            "database": "data/atlas.sqlite",
            "expected": "SELECT name FROM city;",
        }
    ]
    assert (output / "sql" / "data" / "atlas.sqlite").is_file()
    assert not (output / "json").exists()


def test_spider_rows_leave_out_what_defog_asks_about_and_what_does_not_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"question": "Which cities? ", "context": CONTEXT}
    write(
        tmp_path / "data" / "sql" / "spider_train.jsonl",
        {**asked, "db_id": "world", "answer": "SELECT  name FROM city ;"},
        {**asked, "db_id": "world", "answer": "SELECT town FROM city"},
        {**asked, "db_id": "yelp", "answer": "SELECT name FROM city"},
    )
    run_script(monkeypatch, tmp_path / "data", tmp_path / "out")
    kept = {"question": "Which cities?", "context": CONTEXT, "answer": "SELECT name FROM city"}
    assert read(tmp_path / "out" / "sql" / "spider_train.jsonl") == [kept]


def test_a_function_is_asked_for_by_signature_task_and_example(tmp_path: Path) -> None:
    doc = "/**\n * Write a function to double n.\n * \n * Examples:\n * >>> twice(2)\n * >>> 4\n */\n"
    asked = doc + "const twice = function (n: number) : number  {\n"
    test = "\nimport * as assert from 'assert'\n\nlet actual_1 = twice(2);\nlet expected_1 = 4;\n"
    test += 'assert.deepEqual(actual_1, expected_1, "Exception --- test case 0 failed to pass");\n'
    write(
        tmp_path / "typescript" / "mbxp.jsonl",
        {"task_id": "MBTSP/1", "instruction": asked, "output": "  return 2 * n;\n}", "test": test},
        {"task_id": "MBTSP/2", "instruction": "import {Heap} from 'heap-js'\n" + asked, "output": "", "test": test},
    )
    (case,) = maker.functions(tmp_path, tmp_path)
    assert (
        case["prompt"]
        == "Write a TypeScript function `twice(n: number): number` to double n. Example: `twice(2)` gives `4`."
    )
    assert case["tests"].splitlines()[0] == 'import { deepStrictEqual } from "node:assert";'
    assert case["tests"].splitlines()[-1] == "deepStrictEqual(actual_1, expected_1);"


def test_cypher_questions_keep_what_runs_and_finds_something(tmp_path: Path) -> None:
    script = (
        "CREATE INDEX IF NOT EXISTS FOR (p:Person) ON (p.born);\nCREATE (:Person {name: 'Ann; Lee', born: 1960});\n"
    )
    (tmp_path / "cypher").mkdir()
    (tmp_path / "cypher" / "movies.cypher").write_text(script, encoding="utf-8")
    asked = {"database": "movies", "question": "Who?", "schema": "Person {name: STRING}"}
    write(
        tmp_path / "cypher" / "text2cypher_opus.jsonl",
        {**asked, "cypher": "MATCH (p:Person) RETURN p.name"},
        {**asked, "cypher": "MATCH (p:Person) WHERE p.born > 2000 RETURN p.name"},
        {**asked, "cypher": "MATCH (p:Person RETURN"},
        {**asked, "database": "twitch", "cypher": "MATCH (p:Person) RETURN p.name"},
    )
    (case,) = maker.movies(tmp_path, tmp_path / "out")
    assert (case["id"], case["category"], case["script"]) == ("movies-1", "1 nodes", "data/movies.cypher")
    assert (tmp_path / "out" / "data" / "movies.cypher").read_text(encoding="utf-8") == script.partition("\n")[2]
