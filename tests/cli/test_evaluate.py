"""`expert-cli evaluate --answers`: what it prints, writes and returns."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from expert_cli.evaluation.verifiers.sandbox.child_process import standing_walls

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "evaluate.schema.json"
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
    jsonschema_rs.validator_for(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(document)
    assert document == json.loads((answers.parent / "out" / "evaluation.json").read_text(encoding="utf-8"))
    assert (done.code, document["accuracy"], document["passed"]) == (0, 0.75, True)
    assert document["failures"] == {"refused": 1}
    assert list(document["by_category"]) == ["easy", "hard", "uncategorised"]


def test_labels_have_a_confusion_matrix(cli: Cli, tmp_path: Path) -> None:
    case = {"verifier": "choice", "labels": ["cat", "dog"], "expected": "cat"}
    many = {**case, "labels": [f"l{i}" for i in range(9)], "expected": "l0"}
    rows = [case | {"answer": text} for text in ("cat", "Cat.", "dog", "cow")] + [many | {"answer": "l8"}]
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    document = json.loads(cli("evaluate", "--answers", path, "--json").out)
    jsonschema_rs.validator_for(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(document)
    assert [one["confusion"][0] for one in document["classification"]] == [[2, 1, 1], [0] * 8 + [1, 0]]
    shown = cli("evaluate", "--answers", path).out
    assert "labels: macro F1 0.333; " in shown
    assert "    4      1.000   0.500  0.667  cat\n" in shown


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


@pytest.mark.parametrize("flags", [("--baseline",), ("--samples", "2"), ("--cases", "cases.jsonl")], ids=lambda f: f[0])
def test_what_needs_a_model_is_refused_with_answers(cli: Cli, answers: Path, flags: tuple[str, ...]) -> None:
    done = cli("evaluate", "--answers", answers, *flags)
    assert (done.code, done.out) == (2, "")
    assert "--adapter" in done.err


def test_a_malformed_row_exits_with_2_and_its_line(cli: Cli, answers: Path) -> None:
    with answers.open("a", encoding="utf-8") as file:
        file.write('{"verifier": "sql", "answer": "SELECT 1"}\n')
    done = cli("evaluate", "--answers", answers)
    assert (done.code, done.out) == (2, "")
    assert "answers.jsonl:5: expected: Field required" in done.err


def test_programs_run_behind_walls_and_commands_only_where_they_are_allowed(cli: Cli, tmp_path: Path) -> None:
    python = {
        "verifier": "python",
        "tests": "assert twice(2) == 4",
        "answer": "```python\ndef twice(n): return 2 * n\n```",
    }
    (tmp_path / "programs.jsonl").write_text(json.dumps(python), encoding="utf-8")
    done = cli("evaluate", "--answers", "programs.jsonl", "--json", "--without-walls", "--case-timeout", "20")
    document = json.loads(done.out)
    jsonschema_rs.validator_for(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(document)
    assert (done.code, document["accuracy"], document["walls"]) == (0, 1.0, [*standing_walls()])
    assert f"walls     {', '.join(standing_walls()) or 'none'} around answers that are programs" in done.err
    (tmp_path / "judge.py").write_text("print('{\"correct\": true}')", encoding="utf-8")
    row = {"verifier": "command", "command": "judge.py", "answer": "x"}
    (tmp_path / "commands.jsonl").write_text(json.dumps(row), encoding="utf-8")
    refused = cli("evaluate", "--answers", "commands.jsonl")
    assert (refused.code, "commands.jsonl:1: this case is judged by a program of its own" in refused.err) == (2, True)
    assert cli("evaluate", "--answers", "commands.jsonl", "--allow-commands", "--case-timeout", "20").code == 0
