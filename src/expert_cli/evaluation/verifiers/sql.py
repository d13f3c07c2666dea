"""Judges an SQL query by what it returns from a copy of the case's database."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from pydantic import Field

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.case import Example
from expert_cli.evaluation.verifiers.query import FileState, QueryCase, Source
from expert_cli.evaluation.verifiers.query_text import split
from expert_cli.evaluation.verifiers.sandbox.engine_client import EngineProcess
from expert_cli.evaluation.verifiers.sandbox.limits import MAX_SQL_BYTES


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
        default="sqlite", description="`sqlite`: no other is run here yet."
    )

    def require_sound(self) -> None:
        """Raise InputError for a dialect that is not run here."""
        super().require_sound()
        if self.dialect != "sqlite":
            raise InputError(
                f"dialect: {self.dialect} is not run here", "write the case for SQLite, or judge by `command`"
            )

    def source(self, files: Sequence[FileState]) -> Source:
        """Return copies of the databases."""
        return _source(tuple(files))

    @property
    def expected_text(self) -> str:
        """The first accepted query."""
        return next(iter(split(self.expected, "sqlite")), "")


@lru_cache(maxsize=16)
def _source(files: tuple[FileState, ...]) -> Source:
    paths = [file.path for file in files]
    return Source(str(paths[0]), EngineProcess("sqlite", *paths), "sqlite", MAX_SQL_BYTES)
