"""Rows are read strictly, and every fault is named with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from expert_cli.errors import InputError
from expert_cli.evaluation.cases import read_answers, read_cases, spread
from expert_cli.evaluation.verifiers.json_schema import JsonCase
from expert_cli.evaluation.verifiers.query import CypherCase, SqlCase
from expert_cli.evaluation.verifiers.typescript import TypescriptCase

JSON_ROW = {"verifier": "json", "schema": None, "expected": 1, "rule": "exact", "answer": "1"}
SQL_ROW = {"verifier": "sql", "database": "db/shop.sqlite", "expected": "SELECT 1", "answer": "SELECT 1"}


def write(tmp_path: Path, *rows: Any) -> Path:
    path = tmp_path / "answers.jsonl"
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "db").mkdir(exist_ok=True)
    (tmp_path / "db" / "shop.sqlite").touch()
    return path


def test_the_four_kinds(tmp_path: Path) -> None:
    rows = read_answers(
        write(
            tmp_path,
            {**SQL_ROW, "id": "a", "category": "easy", "dialect": "sqlite"},
            "",
            {"verifier": "cypher", "script": "db/shop.sqlite", "expected": "RETURN 1", "answer": ""},
            JSON_ROW,
            {"verifier": "typescript", "tests": None, "answer": "1"},
        )
    )
    assert [type(row.case) for row in rows] == [SqlCase, CypherCase, JsonCase, TypescriptCase]
    assert [row.id for row in rows] == ["a", "3", "4", "5"]
    assert [row.case.category for row in rows] == ["easy", *["uncategorised"] * 3]
    assert rows[0].file == rows[1].file == (tmp_path / "db" / "shop.sqlite").resolve()
    assert [row.file for row in rows[2:]] == [None, None]
    assert rows[2].where == f"{tmp_path / 'answers.jsonl'}:4"


def test_the_digest_is_of_the_case_not_of_its_answer(tmp_path: Path) -> None:
    one, other, changed = read_answers(
        write(tmp_path, JSON_ROW, {**JSON_ROW, "answer": "2"}, {**JSON_ROW, "expected": 2})
    )
    assert one.digest == other.digest != changed.digest


@pytest.mark.parametrize(
    ("row", "message"),
    [
        pytest.param("{", "not JSON", id="no JSON"),
        pytest.param("[1]", "a list, not an object", id="no object"),
        pytest.param('{"verifier": "json", "verifier": "json"}', 'duplicate key "verifier"', id="a key twice"),
        pytest.param({**JSON_ROW, "answer": None}, "answer: a text is needed, not null", id="no answer"),
        pytest.param({"answer": "1"}, "verifier: ", id="no verifier"),
        pytest.param({**JSON_ROW, "verifier": "yaml"}, "verifier: .*'yaml'", id="unknown verifier"),
        pytest.param({**JSON_ROW, "rules": "exact"}, "rules: Extra inputs", id="unknown key"),
        pytest.param({**JSON_ROW, "schema": {"type": "strng"}}, "schema", id="no schema"),
        pytest.param({k: v for k, v in JSON_ROW.items() if k != "expected"}, "expected: Field required", id="missing"),
        pytest.param({**SQL_ROW, "database": "no.sqlite"}, "no.sqlite: no such file", id="missing database"),
        pytest.param({**SQL_ROW, "dialect": "mysql"}, "dialect: Input should be", id="unknown dialect"),
        pytest.param({**JSON_ROW, "id": "1"}, "id '1' is that of .*:1", id="an id twice"),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, row: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"answers.jsonl:3: .*{message}"):
        read_answers(write(tmp_path, JSON_ROW, "", row))


def test_a_row_of_answers_may_hold_what_was_asked(tmp_path: Path) -> None:
    case = {name: value for name, value in JSON_ROW.items() if name != "answer"} | {"prompt": "p"}
    asked, below, bare = read_answers(
        write(tmp_path, {**case, "answer": "1"}, {**case, "answer": "1", "input": "i"}, JSON_ROW)
    )
    assert (asked.asked, below.asked, bare.asked) == (("p", ""), ("p", "i"), ("", ""))
    assert len({asked.digest, below.digest, bare.digest}) == 3
    assert asked.digest == read_cases(write(tmp_path, case))[0].digest
    with pytest.raises(InputError, match=r"answers.jsonl:1: input: a text is needed, not a number"):
        read_answers(write(tmp_path, {**case, "answer": "1", "input": 1}))


def test_no_rows_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no rows"):
        read_answers(write(tmp_path, ""))
    with pytest.raises(InputError, match=r"none\.jsonl: No such file"):
        read_answers(tmp_path / "none.jsonl")


def test_cases_have_prompts_instead_of_answers(tmp_path: Path) -> None:
    case = {name: value for name, value in JSON_ROW.items() if name != "answer"}
    one, other = read_cases(write(tmp_path, {**case, "prompt": "p", "input": "i"}, {**case, "prompt": "p"}))
    assert (one.prompt, one.input, other.input) == ("p", "i", "")
    assert one.digest != other.digest, "what is asked belongs to the case"
    answered = one.answered("1")
    assert (answered.answer, answered.id, answered.digest) == ("1", one.id, one.digest)
    with pytest.raises(InputError, match=r"answers.jsonl:1: prompt: a text is needed, not null"):
        read_cases(write(tmp_path, case))
    with pytest.raises(InputError, match="answer"):
        read_cases(write(tmp_path, {**JSON_ROW, "prompt": "p"}))


@pytest.mark.parametrize(("count", "found"), [(3, "cgk"), (None, "abcdefghijkl"), (99, "abcdefghijkl")])
def test_a_part_of_the_rows_is_evenly_spread(count: int | None, found: str) -> None:
    assert "".join(spread("abcdefghijkl", count)) == found
