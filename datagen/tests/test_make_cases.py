"""The experts' test cases are those the script makes, are held out from every training row, and their answers hold."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from datagen.cases import case_files, case_worlds
from datagen.cases import make as make_cases
from datagen.cases.case_files import Cases, overlaps
from datagen.cases.make import EXPERTS, cypher_category, sql_category
from datagen.common.dataset_files import shape, side_of
from datagen.json.domain_table import DOMAINS, SCENES
from datagen.json.domains import parse_domains as parse_objects
from datagen.neo4j import make as make_neo4j_data
from datagen.neo4j.domain_table import TEXT as GRAPH_TEXT
from datagen.neo4j.domains import parse_graphs
from datagen.neo4j.small_domains import TEXT as SMALL_GRAPH_TEXT
from datagen.sql import make as make_sql_data
from datagen.sql.domain_table import TEXT as SQL_TEXT
from datagen.sql.domains import parse_domains
from datagen.sql.small_domains import TEXT as SMALL_SQL_TEXT
from datagen.typescript.check import failures
from datagen.typescript.small_domains import DOMAINS as SMALL_OBJECTS

every_expert = pytest.mark.parametrize("name", EXPERTS)
every_file = pytest.mark.parametrize(
    ("name", "file"), [(expert, file) for expert in EXPERTS for file in EXPERTS[expert]]
)
ANSWERS = {"expert-sql": "answer", "expert-neo4j": "cypher"}
KEYS = {
    "expert-sql": {"id", "category", "verifier", "prompt", "input", "database", "perturb", "expected"},
    "expert-neo4j": {"id", "category", "verifier", "prompt", "input", "script", "perturb", "expected"},
    "expert-json": {"id", "category", "verifier", "prompt", "input", "schema", "expected", "rule"},
    "expert-typescript": {"id", "category", "verifier", "prompt", "tests"},
}


@cache
def made(expert: str, name: str = "cases") -> Cases:
    return EXPERTS[expert][name]()


def folder(name: str) -> Path:
    return make_cases.OUTPUT / name / "tests"


def committed(name: str, file: str = "cases") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder(name) / f"{file}.jsonl").read_text(encoding="utf-8").splitlines()]


def queries(name: str) -> list[dict[str, Any]]:
    return [row for file in EXPERTS[name] for row in committed(name, file)]


def training_rows(name: str) -> list[dict[str, str]]:
    files = sorted((make_cases.OUTPUT / name / "datasets").rglob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def unix(content: bytes) -> bytes:
    return content if content.startswith(b"SQLite") else content.replace(b"\r\n", b"\n")


@every_expert
def test_the_committed_files_are_those_the_script_writes(name: str, tmp_path: Path) -> None:
    for file in EXPERTS[name]:
        case_files.write_cases(tmp_path, file, made(name, file))
    files = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    there = {p.relative_to(folder(name)): unix(p.read_bytes()) for p in folder(name).rglob("*") if p.is_file()}
    assert there == files


@every_file
def test_cases_are_many_unique_and_go_from_easy_to_hard(name: str, file: str) -> None:
    rows = committed(name, file)
    assert len(rows) >= 100
    assert len({row["id"] for row in rows}) == len(rows)
    assert len({(row["prompt"], row.get("input")) for row in rows}) == len(rows)
    categories = [row["category"] for row in rows]
    assert categories == sorted(categories)
    assert min(map(categories.count, categories)) >= 10
    assert all(set(row) | {"input"} == KEYS[name] | {"input"} for row in rows)


def test_the_files_are_small() -> None:
    assert sum(path.stat().st_size for name in EXPERTS for path in folder(name).rglob("*")) < 1_500_000


@every_file
def test_no_prompt_and_no_answer_stands_in_the_training_or_validation_rows(name: str, file: str) -> None:
    assert len(training_rows(name)) > 1500
    assert overlaps(made(name, file), training_rows(name)) == {}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_case_differs_from_training_rows_and_other_cases_by_more_than_values(name: str) -> None:
    known = {shape(row[ANSWERS[name]]).lower() for row in training_rows(name)}
    shapes = [shape(answer).lower() for answer in made(name).answers]
    assert known.isdisjoint(shapes)
    assert len(set(shapes)) == len(shapes)


def test_an_overlap_is_found_whatever_its_layout() -> None:
    cases = Cases()
    cases.add({"id": "a", "prompt": "How many cats are there?", "input": "CREATE TABLE cats (id INT)"}, "SELECT 1")
    row = {"question": "Who?", "context": "CREATE TABLE dogs (id INT)", "answer": "select  1 "}
    assert overlaps(cases, [row]) == {"a": "its answer"}
    row = {"question": "how many  CATS are there?", "context": "CREATE TABLE cats (id INT)", "answer": "SELECT 2"}
    assert overlaps(cases, [row]) == {"a": "its prompt"}
    row = {"question": "How many cats are there?", "context": "CREATE TABLE dogs (id INT)", "answer": "SELECT 2"}
    assert overlaps(cases, [row]) == {}


def test_the_order_of_keys_hides_no_overlap() -> None:
    cases = Cases()
    cases.add({"id": "a", "prompt": "Write b and a."}, '{"b": 1, "a": [2, 3]}')
    assert overlaps(cases, [{"instruction": "?", "input": "", "output": '{"a":[2,3],"b":1}'}]) == {"a": "its answer"}
    assert overlaps(cases, [{"instruction": "?", "input": "", "output": '{"a":[3,2],"b":1}'}]) == {}


@pytest.mark.parametrize(
    ("query", "bare"),
    [
        ("SELECT name FROM a WHERE x > 10.5 AND y = 'Ada 3' LIMIT 3", "SELECT name FROM a WHERE x > ? AND y = ? LIMIT ?"),
        ("MATCH (p1:P {name: 'x'}) WHERE p1.born > 1990 RETURN p1.a2", "MATCH (p1:P {name: ?}) WHERE p1.born > ? RETURN p1.a2"),
        ("SELECT strftime('%Y', d) FROM a", "SELECT strftime(?, d) FROM a"),
    ],
)  # fmt: skip
def test_the_shape_of_a_query_has_no_values(query: str, bare: str) -> None:
    assert shape(query) == bare


def test_every_group_has_one_side_and_the_shares_are_kept() -> None:
    sides = Counter(side_of(str(number), cases=0.2, valid=0.1) for number in range(2000))
    assert 340 < sides["cases"] < 460
    assert 150 < sides["valid"] < 250
    assert sides.total() == 2000


def test_the_worlds_of_unseen_cases_are_not_those_of_the_training_rows() -> None:
    parse_domains(SQL_TEXT + SMALL_SQL_TEXT + case_worlds.SQL)  # refuses a table that stands twice
    parse_graphs(GRAPH_TEXT + SMALL_GRAPH_TEXT + case_worlds.GRAPHS)  # refuses a relationship that stands twice
    objects = {domain.noun for domain in parse_objects(case_worlds.OBJECTS)}
    assert objects.isdisjoint(domain.noun for domain in parse_objects(DOMAINS + SMALL_OBJECTS))
    fields = {field.words for domain in parse_objects(case_worlds.OBJECTS) for field in domain.fields}
    small = {field.words for domain in parse_objects(SMALL_OBJECTS) for field in domain.fields}
    assert small & fields <= {field.words for domain in parse_objects(DOMAINS) for field in domain.fields}
    assert {part[:40] for part in case_worlds.SCENES.split("\n\n")}.isdisjoint(
        part[:40] for part in SCENES.split("\n\n")
    )


@pytest.mark.parametrize("row", queries("expert-sql"), ids=lambda row: row["id"])
def test_a_sql_answer_finds_something_that_a_wrong_query_does_not(row: dict[str, Any]) -> None:
    database = folder("expert-sql") / row["database"]
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        found = make_sql_data.run(connection, row["expected"])
        assert any(cell is not None for cells in found for cell in cells)
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
        wrong = [*make_sql_data.mutants(row["expected"]), *(f"SELECT * FROM {name}" for (name,) in tables)]  # noqa: S608
        same = [query for query in wrong if make_sql_data.attempt(connection, query) == found]
        assert [query for query in same if query != row["expected"]] == []


def test_the_answers_of_cypher_run_on_the_committed_graphs() -> None:
    for script in sorted((folder("expert-neo4j") / "data").iterdir()):
        connection = make_neo4j_data.connect()
        connection.execute("SELECT cypher(?)", (script.read_text(encoding="utf-8").rstrip().rstrip(";"),)).fetchall()
        asked = [row["expected"] for row in queries("expert-neo4j") if row["script"] == f"data/{script.name}"]
        assert len(asked) > 10
        for query in asked:
            found = make_neo4j_data.run(connection, query)
            assert any(value not in (None, 0, []) for row in found for value in row), query
            wrong = [make_neo4j_data.attempt(connection, mutant) for mutant in make_neo4j_data.mutants(query)]
            assert found not in wrong, query


@pytest.mark.parametrize("file", EXPERTS["expert-json"])
def test_the_answers_of_json_fit_their_schemas(file: str) -> None:
    for row, answer in zip(made("expert-json", file).rows, made("expert-json", file).answers, strict=True):
        assert jsonschema_rs.is_valid(row["schema"], row["expected"]), row["id"]
        assert json.loads(answer) == row["expected"]
        assert row["rule"] == "exact"


@pytest.mark.parametrize("file", EXPERTS["expert-typescript"])
def test_the_answers_of_typescript_stay_out_of_the_file(file: str) -> None:
    cases = made("expert-typescript", file)
    bodies = [answer.partition("{\n")[2] for answer in cases.answers]
    text = json.dumps(committed("expert-typescript", file))
    assert [body for body in bodies if json.dumps(body)[1:-1] in text] == []


@pytest.mark.parametrize("file", EXPERTS["expert-typescript"])
def test_the_answers_of_typescript_pass_and_empty_ones_fail(file: str) -> None:
    cases = made("expert-typescript", file)
    right = [{"output": a, "test": row["tests"]} for row, a in zip(cases.rows, cases.answers, strict=True)]
    assert [why for why in failures(right) if why] == []
    emptied = [
        {**row, "output": re.sub(r"return [^;]+;", "return undefined as never;", row["output"])} for row in right
    ]
    changed = [row for row, old in zip(emptied, right, strict=True) if row["output"] != old["output"]]
    assert len(changed) > 90
    assert None not in failures(changed)


@pytest.mark.parametrize(
    ("query", "category"),
    [
        ("SELECT name FROM boats WHERE name LIKE '%a%'", "1 one table"),
        ("SELECT SUBSTR(name, 1, 1), COUNT(*) FROM boats GROUP BY 1", "2 groups"),
        ("SELECT a.x, COUNT(*) FROM a JOIN b ON a.id = b.id GROUP BY a.x", "3 joins"),
        ("SELECT name FROM a WHERE x = (SELECT MAX(x) FROM a)", "4 nested"),
        ("SELECT x FROM a EXCEPT SELECT x FROM b", "4 nested"),
    ],
)
def test_sql_is_sorted_by_its_structure(query: str, category: str) -> None:
    assert sql_category(query) == category


@pytest.mark.parametrize(
    ("query", "category"),
    [
        ("MATCH (h:Hut) RETURN h.name", "1 nodes"),
        ("MATCH (h:Hut)<-[r:PASSES]-(t:Trail) RETURN r.days", "2 relationships"),
        ("MATCH (a:A)-[:X*1..3]->(b:A) RETURN b.name", "3 paths"),
        ("MATCH (a:A)-[:X]->(b:B) MATCH (b)<-[:Y]-(c:C) RETURN c.name", "3 paths"),
        ("MATCH (a:A)-[:X]->(b:B) WHERE b.name STARTS WITH 'c' RETURN a.name", "2 relationships"),
        ("MATCH (a:A)-[:X]->(b:B) WITH a, count(b) AS total WHERE total > 2 RETURN a.name", "4 several parts"),
        ("MATCH (a:A) WHERE NOT EXISTS { MATCH (a)-[:X]->(:B) } RETURN a.name", "4 several parts"),
    ],
)
def test_cypher_is_sorted_by_its_parts_and_the_relationships_it_walks(query: str, category: str) -> None:
    assert cypher_category(query) == category
