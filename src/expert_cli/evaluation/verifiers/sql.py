"""Judges an SQL query by what it returns from a copy of the case's database."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from expert_cli.evaluation.verifiers.case import Example
from expert_cli.evaluation.verifiers.query import QueryCase
from expert_cli.evaluation.verifiers.query_text import split
from expert_cli.evaluation.verifiers.sandbox.postgres_server import server
from expert_cli.evaluation.verifiers.sandbox.worker import Worker

_SQLITE = Worker(f"{__package__}.sandbox.sqlite:judge", "apsw", "sqlglot")
_POSTGRES = Worker(f"{__package__}.sandbox.postgres:judge", "apsw", "sqlglot", arguments=lambda: [server()])


class SqlCase(QueryCase):
    """`database`, an SQLite file, and `expected`, one or more accepted queries: the results are compared."""

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

    database: str | list[str] = Field(
        min_length=1,
        description="An SQLite database, relative to the file of the row, or a list: right means right on all.",
    )
    dialect: Literal["sqlite", "postgresql"] = Field(
        default="sqlite",
        description="`postgresql`: PostgreSQL runs the queries; `database` may be a script of CREATE TABLE and INSERT.",
    )

    @property
    def expected_text(self) -> str:
        """The first accepted query."""
        return next(iter(split(self.expected, self.dialect)), "")

    def judged_by(self) -> Worker:
        """Return the processes that ask SQLite, or PostgreSQL."""
        return _POSTGRES if self.dialect == "postgresql" else _SQLITE
