"""Judges an SQL query by what it returns from a copy of the case's database."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from pydantic import Field

from expert_cli.evaluation.verifiers.case import Case, Example
from expert_cli.evaluation.verifiers.query import FileState, QueryCase, Source
from expert_cli.evaluation.verifiers.query_text import split
from expert_cli.evaluation.verifiers.sandbox.engine_client import Engine, EngineProcess
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
    finds_nothing = "SELECT 1 WHERE 1 = 0"

    database: str | list[str] = Field(
        min_length=1,
        description="An SQLite database, relative to the file of the row, or a list: right means right on all.",
    )
    dialect: SqlDialect = "sqlite"

    def source(self, files: Sequence[FileState]) -> Source:
        """Return copies of the databases: in SQLite, or with dialect "postgresql" the same tables in DuckDB."""
        return _source(tuple(files), self.dialect)

    def right_answers(self) -> list[str]:
        """Return each accepted query."""
        return split(self.expected, self.dialect)

    @classmethod
    def row_engine(cls, cases: Sequence[Case]) -> Engine:
        """Return the engine of the cases, SQLite where they have both."""
        return "duckdb" if {case.dialect for case in cases if isinstance(case, cls)} == {"postgresql"} else "sqlite"


@lru_cache(maxsize=16)
def _source(files: tuple[FileState, ...], dialect: SqlDialect) -> Source:
    paths = [file.path for file in files]
    engine = EngineProcess("duckdb" if dialect == "postgresql" else "sqlite", *paths)
    return Source(str(paths[0]), engine, dialect, MAX_SQL_BYTES)
