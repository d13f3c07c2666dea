"""Answers of rows are run as far as they can be, and what was not run is counted as that."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from expert_cli.evaluation.audit.findings import Findings
from expert_cli.evaluation.audit.rows import AuditRow
from expert_cli.evaluation.audit.run_cases import run_cases
from expert_cli.evaluation.audit.run_queries import database_file
from expert_cli.evaluation.audit.run_rows import Running, run_answers
from expert_cli.evaluation.audit.sql_schema import compile_fault, open_schema, schema_of
from expert_cli.evaluation.cases import EvalCase, read_case
from expert_cli.evaluation.verifiers.sandbox import isolation
from expert_cli.utils.reporter import NullReporter

TABLE = "CREATE TABLE shops (id, name)"


def run(
    verifier: str, answers: list[str], running: Running | None = None, cases: tuple[EvalCase, ...] = (), **of_row: str
) -> tuple[Findings, dict[int, str]]:
    findings = Findings()
    given = [
        AuditRow(
            f"f:{number}",
            "Which shops?",
            of_row.get("input", ""),
            answer,
            of_row.get("database", ""),
            of_row.get("tests", ""),
        )
        for number, answer in enumerate(answers)
    ]
    return findings, run_answers(given, cases, verifier, running or Running(), findings, NullReporter())


def broken(findings: Findings) -> set[Any]:
    return findings.found["does_not_run"].members


def case(**keys: Any) -> EvalCase:
    return EvalCase(read_case("f:1", keys), "f:1", "1", "", None, "?", "")


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("SELECT name FROM shops", ""),
        ("SELECT nme FROM shops", "no such column: nme"),
        ("SELECT name FROM shop", "no such table: shop"),
        ("SELECT name FROM shops WHERE", "incomplete input"),
        ("SELECT year(name) FROM shops", "no such function: year"),
        ("SELECT 1 FROM \ud800", "surrogates not allowed"),
    ],
)
def test_sql_is_compiled_against_the_tables_of_its_row(query: str, fault: str) -> None:
    connection, lacking = open_schema(TABLE)
    assert lacking == ""
    told = compile_fault(connection, query)
    assert fault in told
    assert bool(told) is bool(fault)


def test_a_schema_makes_tables_and_runs_nothing(tmp_path: Path) -> None:
    target = tmp_path / "made.sqlite"
    made = "CREATE TABLE boats (id INTEGER PRIMARY KEY AUTOINCREMENT, hull TEXT UNIQUE DEFAULT 'x' CHECK (length(hull) > 0))"
    text = (
        f"Say which. {TABLE}; {made}; create view v AS SELECT name FROM shops; ATTACH '{target}' AS x; DROP TABLE shops"  # noqa: S608
    )
    connection, lacking = open_schema(schema_of("", text))
    assert lacking == ""
    assert compile_fault(connection, "SELECT v.name, boats.hull FROM shops, boats, v") == ""
    assert not target.exists()
    for large in (
        "SELECT zeroblob(900000000) AS b",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i + 1 FROM n) SELECT i FROM n",
    ):
        assert open_schema(f"CREATE TABLE t AS {large}")[1].endswith("not authorized")
    assert schema_of("no tables", "none") == ""


def test_sql_without_a_schema_is_only_parsed_and_said_to_be_so() -> None:
    findings, _ = run("sql", ["SELECT name FROM shops", "SELECT FROM WHERE", "", "SELECT 1; SELECT 2"])
    assert broken(findings) == {1, 2, 3}
    assert (findings.ran, findings.parsed) == (0, 0)
    assert dict(findings.not_run) == {"only parsed: neither a database nor CREATE TABLE in the row": 1}


def test_sql_runs_on_the_database_that_its_row_names(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "city.sqlite")
    connection.executescript(f"{TABLE}; INSERT INTO shops VALUES (1, 'a'), (2, NULL)")  # noqa: S608
    connection.close()
    answers = ["SELECT id FROM shops", "SELECT name FROM shops WHERE id = 2", "SELECT id FROM shops WHERE id = 3"]
    answers += ["SELECT id FROM shops ORDER BY id DESC", "SELECT nme FROM shops", "```sql\nSELECT id FROM shops\n```"]
    findings, results = run("sql", answers, Running(tmp_path), input=TABLE, database="city")
    assert {name: found.members for name, found in findings.found.items() if found.members} == {
        "does_not_run": {4},
        "empty_result": {2},
    }
    assert (findings.ran, findings.parsed) == (5, 0)
    assert findings.found["empty_result"].groups == {"city.sqlite": 1}
    assert results[0] == results[3] == results[5]
    assert len(set(results.values())) == 3


def test_only_names_are_looked_for_in_the_folder_of_databases(tmp_path: Path) -> None:
    for path in ("a.sqlite", "b/b.sqlite", "c.db"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path.parent / "outside.sqlite").touch()
    found = [database_file(tmp_path, name, (".sqlite", ".db")) for name in ("a", "b", "c", "d", "", "../outside", "/")]
    assert found == [tmp_path / "a.sqlite", tmp_path / "b" / "b.sqlite", tmp_path / "c.db", None, None, None, None]
    assert database_file(None, "a", (".sqlite",)) is None


def test_cypher_is_asked_of_an_empty_graph_or_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "towns.cypher").write_text("CREATE (:Town {name: 'Oslo'})", encoding="utf-8")
    answers = ["MATCH (t:Town) RETURN t.name", "MATCH (t:Town RETURN t", "MATCH (t:Town) RETURN t.a LET x = 1"]
    answers += ["MATCH (t:Town) RETURN x", "MATCH (t:Town) RETURN apoc.map.keys(t)"]
    answers += ["MATCH (o:O)-[:P]->(:O), (o)-[:C]->(c:D) RETURN o.name, c.name"]  # graphqlite's own SQL fails
    findings, results = run("cypher", answers, Running(tmp_path), database="moon")
    assert (broken(findings), findings.parsed, findings.ran, results) == ({1, 3}, 1, 0, {})
    assert sorted(findings.not_run.items()) == [
        ("graphqlite cannot run it, which says nothing of the query", 2),
        ("graphqlite, asked in place of Neo4j, has no LET", 1),
    ]
    findings, results = run("cypher", answers[:1], Running(tmp_path), database="towns")
    assert (findings.ran, findings.parsed, list(results)) == (1, 0, [0])
    assert not findings.found["empty_result"].members


def test_values_are_read_as_their_judges_do() -> None:
    assert broken(run("json", ['{"a": 1}', '{"a": 1, "a": 2}', "[1,]", "NaN", '```json\n{"a": 1}\n```'])[0]) == {
        1,
        2,
        3,
    }
    assert broken(run("number", ["42 km", "forty-two"])[0]) == {1}
    of = case(verifier="choice", labels=["good", "bad"], expected="good")
    assert broken(run("choice", ["good", "Bad.", "so-so"], cases=(of,))[0]) == {2}
    for name in ("choice", "regex", "command"):
        told = f"answers of the verifier {name} are only judged with a case"
        assert dict(run(name, ["good"])[0].not_run) == {told: 1}
    assert dict(run("", ["a"])[0].not_run) == {"no cases tell how": 1}


def test_programs_are_run_as_long_as_there_is_time() -> None:
    answers = ["const f = (n: number) => n + 1;", "const f = (n: number) => ;", "const f = (n: number) => n;"]
    findings, _ = run("typescript", answers, Running(program_s=0.0))
    assert (broken(findings), findings.ran, findings.parsed) == (set(), 0, 3)
    assert dict(findings.not_run) == {"parsed only: 0 s for programs were over (--program-seconds)": 3}
    findings, _ = run("typescript", answers, tests="if (f(1) !== 2) throw new Error('no');")
    assert (broken(findings), findings.ran) == ({1, 2}, 3)


def test_python_rows_are_run_where_they_have_tests() -> None:
    answers = ["def f(n):\n    return n + 1", "def f(n):", "def f(n):\n    return n"]
    findings, _ = run("python", answers)
    assert (broken(findings), findings.ran, findings.parsed) == ({1}, 0, 2)
    if not isolation.is_network_shut():
        pytest.skip("nothing here keeps programs from the network")
    findings, _ = run("python", answers, tests="assert f(1) == 2")
    assert (broken(findings), findings.ran) == ({1, 2}, 2)


def test_programs_are_only_parsed_where_nothing_keeps_them_from_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "standing_walls", lambda: ("limits", "files"))
    findings, _ = run("typescript", ["const f = (n: number) => n;"], tests="if (f(1) !== 2) throw new Error('no');")
    assert (broken(findings), findings.ran, findings.parsed) == (set(), 0, 1)
    assert list(findings.not_run) == ["nothing here keeps programs from the network (expert-cli doctor)"]


def test_cases_are_held_against_their_own_judges(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "s.sqlite")
    connection.executescript(f"{TABLE}; INSERT INTO shops VALUES (1, 'a')")  # noqa: S608
    connection.close()
    rows: list[dict[str, Any]] = [
        {"database": "s.sqlite", "verifier": "sql", "expected": query}
        for query in (
            "SELECT id FROM shops",
            "SELECT id FROM shops; SELECT 2",
            "SELECT nme FROM shops",
            "SELECT id FROM shops WHERE id > 1",
        )
    ]
    rows += [
        {"verifier": "json", "schema": {"type": "string"}, "expected": 1, "rule": "exact"},
        {"verifier": "typescript", "tests": "if (f(1) !== 2) throw new Error();"},
        {"verifier": "typescript", "tests": "if (f(1) !== 2) {"},
        {"verifier": "number", "expected": 1.5},
        {"verifier": "command", "command": "s.sqlite", "expected": "not run"},
        {"verifier": "regex", "pattern": "a+"},
    ]
    cases = [
        EvalCase(read_case(f"c:{n}", row), f"c:{n}", str(n), "", tmp_path / "s.sqlite", "?", "")
        for n, row in enumerate(rows)
    ]
    findings = Findings()
    run_cases(cases, findings, NullReporter())
    assert {name: found.members for name, found in findings.found.items() if found.members} == {
        "case_fails": {"c:2", "c:4", "c:6"},
        "case_empty": {"c:3"},
        "weak_case": {"c:5"},
    }
    assert findings.not_checked["case_fails"].startswith("2 without an answer")
