"""Judges an SQL query by what it returns from a copy of the case's database."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from expert_cli.errors import InputError
from expert_cli.evaluation.verdict import Verdict
from expert_cli.evaluation.verifiers import child
from expert_cli.evaluation.verifiers.compare import Result, Row, judge_rows
from expert_cli.evaluation.verifiers.limits import GOLD_TIMEOUT_S, MAX_SQL_BYTES, Stopped, readable
from expert_cli.evaluation.verifiers.needs import need
from expert_cli.evaluation.verifiers.statements import orders_rows, split

if TYPE_CHECKING:
    from expert_cli.evaluation.verifiers.guard import Guard

SqlDialect = Literal["sqlite", "postgresql"]

MAX_DATABASE_BYTES = 512 << 20
_WAL = b"\x02\x02"


def check(
    answer: str, database: Path, expected: str, *, timeout_s: float = 2.0, dialect: SqlDialect = "sqlite"
) -> Verdict:
    """Run `answer` on a copy of `database` (an SQLite file) and compare its rows with those of the expected queries.

    `expected` may hold several accepted queries; where one has an outer ORDER BY, its rows are compared in order. With
    dialect "postgresql" both run in DuckDB, on the same tables. The file is read once a process, and never written.

    Raises InputError where the database cannot be read or an expected query fails, EnvironmentProblem where the engine is missing.
    """
    copy = _copy(database, dialect)
    accepted = copy.accepted(expected)
    try:
        readable(answer, MAX_SQL_BYTES)
        rows = copy.answer(answer, timeout_s)
    except Stopped as stopped:
        return stopped.verdict
    return judge_rows(rows, accepted)


class _Copy:
    """A database in memory, opened once for many answers."""

    def __init__(self, database: Path, dialect: SqlDialect) -> None:
        self._where = database
        self._dialect: SqlDialect = dialect
        self._known: dict[str, tuple[Result, ...]] = {}
        self._engine = child.Child("duckdb", database) if dialect == "postgresql" else _open(database)

    def accepted(self, expected: str) -> tuple[Result, ...]:
        """Return what the expected queries return; they run once."""
        if expected not in self._known:
            queries = split(expected, self._dialect)
            if not queries:
                raise InputError("no expected query", "write the query whose rows are right")
            self._known[expected] = tuple(
                Result(self._gold(query), orders_rows(query, self._dialect)) for query in queries
            )
        return self._known[expected]

    def answer(self, answer: str, timeout_s: float) -> list[Row]:
        """Return the rows of an answer. Raises `Stopped`."""
        statements = split(answer, self._dialect)
        if not statements:
            raise Stopped("empty", "no query")
        if len(statements) > 1:
            for statement in statements:
                self._engine.look(statement, timeout_s=timeout_s)
            raise Stopped("invalid", f"{len(statements)} statements, one query expected")
        return self._engine.run(statements[0], timeout_s=timeout_s)

    def _gold(self, query: str) -> list[Row]:
        try:
            return self._engine.run(query, timeout_s=GOLD_TIMEOUT_S)
        except Stopped as stopped:
            message = f"the expected query fails on {self._where}: {stopped.verdict.detail}"
            raise InputError(message, f"correct the case's query: {query[:200]}") from stopped


def _copy(database: Path, dialect: SqlDialect) -> _Copy:
    try:
        facts = database.stat()
    except OSError as error:
        raise InputError(f"{database}: {error.strerror}", "give the path of an SQLite database") from error
    return _copy_of(database, facts.st_size, facts.st_mtime_ns, dialect)


@lru_cache(maxsize=16)
def _copy_of(database: Path, size: int, mtime_ns: int, dialect: SqlDialect) -> _Copy:  # noqa: ARG001  the state of the file
    return _Copy(database, dialect)


def read_database(database: Path) -> bytes:
    """Return the bytes of an SQLite database as they can be opened in memory. Raises InputError."""
    content = database.read_bytes() if database.stat().st_size <= MAX_DATABASE_BYTES else b""
    if not content.startswith(b"SQLite format 3\0"):
        hint = f"an SQLite database of at most {MAX_DATABASE_BYTES:,} bytes is needed"
        raise InputError(f"{database}: {database.stat().st_size:,} bytes, not such a database", hint)
    journal = database.with_name(f"{database.name}-wal")
    if journal.exists() and journal.stat().st_size:
        raise InputError(
            f"{database}: has changes not yet written to it", f"sqlite3 {database} 'PRAGMA wal_checkpoint'"
        )
    return content[:18] + b"\x01\x01" + content[20:] if content[18:20] == _WAL else content


def _open(database: Path) -> Guard:
    need("apsw")
    import apsw

    from expert_cli.evaluation.verifiers.guard import Guard

    connection = apsw.Connection(":memory:")
    connection.deserialize("main", read_database(database))
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    except apsw.Error as error:
        raise InputError(f"{database}: {error}", "give another copy of the database") from error
    return Guard(connection)
