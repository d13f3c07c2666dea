"""What cannot be judged is told before any model is loaded or trained."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.cases import EvalCase, read_cases
from expert_cli.evaluation.evaluate import check_gradable
from expert_cli.evaluation.verifiers.sandbox import isolation
from expert_cli.utils.reporter import NullReporter

JSON = {"verifier": "json", "schema": None, "expected": 7, "rule": "exact"}
PROGRAM = {"verifier": "typescript", "tests": "if (f() !== 7) throw new Error();", "prefix": "function f(): number {"}


class Heard(NullReporter):
    """A reporter that keeps its warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, text: str) -> None:
        self.warnings.append(text)


def cases(folder: Path, *rows: dict[str, Any]) -> list[EvalCase]:
    with closing(sqlite3.connect(folder / "shop.sqlite")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
        connection.commit()
    path = folder / "cases.jsonl"
    path.write_text("".join(json.dumps({"prompt": "?", **row}) + "\n" for row in rows), encoding="utf-8")
    return read_cases(path)


def query(text: str) -> dict[str, Any]:
    return {"verifier": "sql", "database": "shop.sqlite", "expected": text}


def test_sound_cases_are_told_of_nothing(tmp_path: Path) -> None:
    report = Heard()
    check_gradable(cases(tmp_path, JSON, query("SELECT a FROM t")), report, remedy="leave it")
    check_gradable([], report, remedy="leave it")
    assert report.warnings == []


def test_a_faulty_expected_query_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cases\.jsonl:2: the expected query fails .*no such column: b"):
        check_gradable(cases(tmp_path, query("SELECT a FROM t"), query("SELECT b FROM t")), NullReporter())


def test_a_missing_engine_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "has_package", lambda package: package != "apsw")
    with pytest.raises(EnvironmentProblem, match="the package apsw is missing"):
        check_gradable(cases(tmp_path, query("SELECT a FROM t")), NullReporter())


def test_a_missing_judge_of_programs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "has_package", lambda package: package != "deno")
    with pytest.raises(EnvironmentProblem, match="the package deno is missing") as raised:
        check_gradable(cases(tmp_path, JSON, PROGRAM, PROGRAM | {"prefix": ""}), NullReporter())
    assert raised.value.hint == 'pip install "expert-cli[evaluate]"'
