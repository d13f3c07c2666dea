"""Judges an SQL query by what it returns from a copy of the case's database."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from expert_cli.evaluation.verifiers.case import Example
from expert_cli.evaluation.verifiers.query import QueryCase, Source
from expert_cli.evaluation.verifiers.sandbox.engine_client import EngineProcess
from expert_cli.evaluation.verifiers.sandbox.limits import MAX_SQL_BYTES

SqlDialect = Literal["sqlite", "postgresql"]


class SqlCase(QueryCase):
    """`database`, an SQLite file, and `expected`, one or more accepted queries: the results are compared; `"dialect":
    "postgresql"` asks DuckDB.
    """

    fences = frozenset(
        {
            "sql",
            "sqlite",
            "sqlite3",
            "postgres",
            "postgresql",
            "psql",
            "pgsql",
            "plpgsql",
            "mysql",
            "mariadb",
            "tsql",
            "duckdb",
        }
    )
    example = Example(
        {"prompt": "How many customers?", "database": "shop.sqlite", "expected": "SELECT count(*) FROM customers;"},
        right="SELECT count(id) FROM customers",
        wrong="SELECT max(id) FROM customers",
    )

    file_key = "database"

    database: str = Field(min_length=1, description="An SQLite database, relative to the file of the row.")
    dialect: SqlDialect = "sqlite"

    def source(self, file: Path, size: int, mtime_ns: int) -> Source:
        """Return a copy of the database: in SQLite, or with dialect "postgresql" the same tables in DuckDB."""
        return _source(file, size, mtime_ns, self.dialect)


@lru_cache(maxsize=16)
def _source(database: Path, size: int, mtime_ns: int, dialect: SqlDialect) -> Source:  # noqa: ARG001  the file's state
    engine = EngineProcess("duckdb" if dialect == "postgresql" else "sqlite", database)
    return Source(str(database), engine, dialect, MAX_SQL_BYTES)
