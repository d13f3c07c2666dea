"""Answers graded by a case of one verifier, without a file of rows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from expert_cli.evaluation.cases import read_case
from expert_cli.evaluation.verifiers.case import Grade


def database(path: Path, script: str) -> Path:
    """Make an SQLite file."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


def graded(verifier: str, answer: str, file: Path | None, timeout_s: float, row: dict[str, Any]) -> Grade:
    """Grade an answer as `evaluate` does with a row of these keys."""
    return read_case("here", {"verifier": verifier, **row}).verdict(answer, file, timeout_s)


def sql(answer: str, database: Path, expected: str, *, timeout_s: float = 2.0) -> Grade:
    """Grade a query by those whose rows are right."""
    row = {"database": database.name, "expected": expected}
    return graded("sql", answer, database, timeout_s, row)


def cypher(answer: str, script: Path, expected: str, *, timeout_s: float = 2.0) -> Grade:
    """Grade a query by those whose rows are right."""
    return graded("cypher", answer, script, timeout_s, {"script": script.name, "expected": expected})


def json_value(answer: str, expected: Any, *, schema: Any, rule: str) -> Grade:
    """Grade JSON text by a value."""
    return graded("json", answer, None, 2.0, {"schema": schema, "expected": expected, "rule": rule})


def typescript(answer: str, tests: str | None, *, timeout_s: float) -> Grade:
    """Grade a program by its tests."""
    return graded("typescript", answer, None, timeout_s, {"tests": tests})
