"""`evaluate --answers` and `audit` as a user calls them: what they print, write and return."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from expert_cli.evaluation.verifiers.sandbox.child_process import standing_walls
from expert_cli.runs.metrics import read_json
from tests import manifests
from tests.schemas import valid
from tests.train.projects import write_rows

Cli = Callable[..., Any]


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    """Four answers, three of them right."""
    connection = sqlite3.connect(tmp_path / "shop.sqlite")
    connection.execute("CREATE TABLE t AS SELECT 1 AS a UNION SELECT 2")
    connection.commit()
    connection.close()
    (tmp_path / "graph.cypher").write_text("CREATE (:A {x: 1});", encoding="utf-8")
    query = {"verifier": "sql", "database": "shop.sqlite", "expected": "SELECT a FROM t"}
    rows = [
        {**query, "id": "q1", "category": "easy", "answer": "```sql\nSELECT a FROM t\n```"},
        {**query, "id": "q2", "category": "hard", "answer": "DROP TABLE t"},
        {"verifier": "cypher", "script": "graph.cypher", "expected": "RETURN 1", "answer": "MATCH (n) RETURN n.x"},
        {"verifier": "json", "schema": None, "expected": {"a": 1}, "rule": "subset", "answer": '{"a": 1, "b": 2}'},
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_the_document_is_as_its_schema_says_and_is_what_output_writes(cli: Cli, answers: Path) -> None:
    done = cli("evaluate", "--answers", answers, "--json", "--output", "out/evaluation.json", "--threshold", "0.75")
    document = json.loads(done.out)
    valid(document, "evaluate")
    assert document == read_json(answers.parent / "out" / "evaluation.json")
    assert (done.code, document["accuracy"], document["passed"]) == (0, 0.75, True)
    assert document["failures"] == {"refused": 1}
    assert list(document["by_category"]) == ["easy", "hard", "uncategorised"]


@pytest.mark.parametrize("flags", [(), ("--json",)], ids=["words", "json"])
def test_a_missed_threshold_exits_with_5_after_the_result(cli: Cli, answers: Path, flags: tuple[str, ...]) -> None:
    done = cli("evaluate", "--answers", answers, "--threshold", "0.8", *flags)
    assert done.code == 5
    if flags:
        assert json.loads(done.out)["passed"] is False
    else:
        assert "3/4" in done.out
        assert "accuracy 0.7500 (3 of 4) is below the threshold 0.8" in done.err


def test_a_fall_against_an_earlier_evaluation_exits_with_5(cli: Cli, answers: Path) -> None:
    assert cli("evaluate", "--answers", answers, "--output", "old.json").code == 0
    answers.write_text(answers.read_text(encoding="utf-8").replace('{\\"a\\": 1,', "{"), encoding="utf-8")
    allowed = cli("evaluate", "--answers", answers, "--against", "old.json", "--max-drop", "0.25", "--json")
    assert (allowed.code, json.loads(allowed.out)["against"]["drop"]) == (0, 0.25)
    fell = cli("evaluate", "--answers", answers, "--against", "old.json")
    assert fell.code == 5
    assert "4 cases, 1 lost, 0 gained; accuracy fell by 25.0%" in fell.out
    assert "accuracy fell by 0.2500 against old.json, more than 0.05" in fell.err


def test_programs_run_behind_walls_and_commands_only_where_they_are_allowed(cli: Cli, tmp_path: Path) -> None:
    python = {
        "verifier": "python",
        "tests": "assert twice(2) == 4",
        "answer": "```python\ndef twice(n): return 2 * n\n```",
    }
    (tmp_path / "programs.jsonl").write_text(json.dumps(python), encoding="utf-8")
    done = cli("evaluate", "--answers", "programs.jsonl", "--json", "--without-walls", "--case-timeout", "20")
    document = json.loads(done.out)
    valid(document, "evaluate")
    assert (done.code, document["accuracy"]) == (0, 1.0)
    assert f"walls     {', '.join(standing_walls()) or 'none'} around answers that are programs" in done.err
    (tmp_path / "judge.py").write_text("print('{\"correct\": true}')", encoding="utf-8")
    row = {"verifier": "command", "command": "judge.py", "answer": "x"}
    (tmp_path / "commands.jsonl").write_text(json.dumps(row), encoding="utf-8")
    refused = cli("evaluate", "--answers", "commands.jsonl")
    assert (refused.code, "commands.jsonl:1: this case is judged by the program" in refused.err) == (2, True)
    assert cli("evaluate", "--answers", "commands.jsonl", "--allow-commands", "--case-timeout", "20").code == 0


ROOT = Path(__file__).parents[2]
TABLE = "CREATE TABLE shops (id, name, city)"


def row(question: str, answer: str) -> dict[str, str]:
    return {"question": question, "context": TABLE, "answer": answer}


def case(prompt: str, expected: str) -> dict[str, str]:
    return {"verifier": "sql", "database": "s.sqlite", "prompt": prompt, "input": TABLE, "expected": expected}


GOOD = [
    row("Which shops of all are in Oslo, by their ids?", "SELECT id FROM shops WHERE city = 'Oslo'"),
    row("Name them.", "SELECT name FROM shops"),
]
PLANTED = {
    "unreadable": row("Name the third shop of all.", ""),
    "does_not_run": row("Count the shops of the city.", "SELECT count(*) FROM shop"),
    "prompt_in_answer": row("Give every id there is.", "SELECT id FROM shops -- <|im_end|>"),
    "leak": row("How  many shops are there at all?", "SELECT count(id) FROM shops"),
    "duplicate": {**GOOD[0], "answer": GOOD[0]["answer"].upper()},
    "near_duplicate": {**GOOD[0], "question": f"Say: {GOOD[0]['question']}"},
}
CASES = [
    case("How many shops are there at all?", "SELECT count(*) FROM shops"),
    case("Which shop is in Rome?", "SELECT name FROM shops WHERE city = 'Rome'"),
    case("What is the mean?", "SELECT mean(id)"),
]


def test_planted_faults_are_found(cli: Cli, tmp_path: Path) -> None:
    manifests.write(tmp_path, manifests.small(max_seq_length=512))
    write_rows(tmp_path / "tests" / "cases.jsonl", CASES)
    with closing(sqlite3.connect(tmp_path / "tests" / "s.sqlite")) as database:
        database.executescript(f"{TABLE}; INSERT INTO shops VALUES (1, 'a', 'Oslo'), (2, 'b', 'Lima')")  # noqa: S608
    rows = write_rows(tmp_path / "rows.jsonl", [*GOOD, *PLANTED.values()])
    asked = ("audit", "-m", "manifest.json", "--dataset", "rows.jsonl", "--offline")
    done = cli(*asked, "--json")
    document = json.loads(done.out)
    valid(document, "audit")
    found = {name: check for name, check in document["checks"].items() if check["count"]}
    at = {name: [example["line"] for example in check["examples"]] for name, check in found.items()}
    planted = {name: [len(GOOD) + number] for number, name in enumerate(PLANTED, start=1)}
    assert at == planted | {"case_empty": [2], "case_fails": [3]}
    assert (done.code, document["errors"], document["warnings"]) == (5, 6, 2)
    told = cli(*asked)
    assert (told.code, told.err.splitlines()[-2]) == (5, "error: 6 errors in rows and cases")
    assert f"  {rows}:4: no such table: shop: " in told.out


def test_a_shipped_expert_has_no_errors(cli: Cli) -> None:
    folder = ROOT / "experts" / "expert-json"
    args = ("-m", folder / "manifest.json", "--dataset", folder / "datasets" / "train.jsonl", "--limit", 300)
    done = cli("audit", *args, "--offline", "--json")
    document = json.loads(done.out)
    assert (done.code, document["errors"], document["rows"], document["cases"]) == (0, 0, 300, 300)
    assert document["not_checked"] == {}
