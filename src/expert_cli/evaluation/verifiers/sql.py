"""Judges an SQL query by what it returns from a copy of the case's database."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers.query import Source, state_of
from expert_cli.evaluation.verifiers.sandbox.engine_client import EngineProcess
from expert_cli.evaluation.verifiers.sandbox.limits import MAX_SQL_BYTES

SqlDialect = Literal["sqlite", "postgresql"]


def check(
    answer: str, database: Path, expected: str, *, timeout_s: float = 2.0, dialect: SqlDialect = "sqlite"
) -> Grade:
    """Run `answer` on a copy of `database` (an SQLite file) and compare its rows with those of the expected queries.

    `expected` may hold several accepted queries; where one has an outer ORDER BY, its rows are compared in order, also
    where several orders would satisfy it. With dialect "postgresql" both run in DuckDB, on the same tables. The engine
    has a process of its own, kept for the next answer; the file is read once, and never written.

    Raises InputError where the database cannot be read or an expected query fails, EnvironmentProblem without the engine.
    """
    source = _source(database, *state_of(database), dialect)
    return source.check(answer, expected, timeout_s=timeout_s, max_bytes=MAX_SQL_BYTES)


@lru_cache(maxsize=16)
def _source(database: Path, size: int, mtime_ns: int, dialect: SqlDialect) -> Source:  # noqa: ARG001  the file's state
    return Source(str(database), EngineProcess("duckdb" if dialect == "postgresql" else "sqlite", database), dialect)
