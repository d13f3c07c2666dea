"""An SQLite database's tables in DuckDB, for queries in PostgreSQL's dialect. Runs in the process of `engine_server.py`."""

from __future__ import annotations

import importlib
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb

from expert_cli.evaluation.verifiers.sandbox.limits import MEMORY_BYTES, Stopped, bounded
from expert_cli.evaluation.verifiers.sandbox.sqlite_engine import open_copy

_TYPES = (
    (r"BOOL", "BOOLEAN"),
    (r"TIMESTAMP|DATETIME", "TIMESTAMP"),
    (r"DATE", "DATE"),
    (r"TIME", "TIME"),
    (r"INT|SERIAL", "BIGINT"),
    (r"CHAR|CLOB|TEXT|UUID", "VARCHAR"),
    (r"REAL|FLOA|DOUB|DEC|NUM", "DOUBLE"),
    (r"BLOB|BYTEA", "BLOB"),
)
_SAFE = {
    "TimeZone": "UTC",
    "threads": 1,
    "memory_limit": f"{4 * MEMORY_BYTES // (1 << 20)}MB",
    "temp_directory": "",
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "lock_configuration": True,
}


class DuckDBEngine:
    """A copy of every table, in a database that refuses files, extensions and settings."""

    def __init__(self, database: Path) -> None:
        """Copy the tables. Raises InputError."""
        importlib.import_module("pytz")  # duckdb wants it for times with a zone, when no file can be opened any more
        self._connection = duckdb.connect(":memory:")
        source = open_copy(database)
        for name in [row[0] for row in source.execute(_TABLES)]:
            self._copy(source, name)
        for key, value in _SAFE.items():
            self._connection.execute(f"SET {key} = {value!r}")

    def run(self, query: str, *, timeout_s: float) -> list[tuple[Any, ...]]:
        """Return the rows. Raises `Stopped`."""
        self.prepare(query, timeout_s=timeout_s)
        with self._held(timeout_s):
            pieces = iter(partial(self._connection.execute(query).fetchmany, 1_000), [])
            return bounded([_plain(value) for value in row] for row in chain.from_iterable(pieces))

    def prepare(self, query: str, *, timeout_s: float) -> None:
        """Parse the query, and refuse what is not one SELECT. Raises `Stopped`."""
        with self._held(timeout_s):
            statements = self._connection.extract_statements(query)
        if len(statements) != 1:
            raise Stopped("invalid", f"{len(statements)} statements, one query expected")
        if statements[0].type != duckdb.StatementType.SELECT:
            raise Stopped("refused", statements[0].type.name)

    @contextmanager
    def _held(self, timeout_s: float) -> Iterator[None]:
        """Interrupt the work at its time, and name what stopped it."""
        deadline = time.monotonic() + timeout_s
        timer = threading.Timer(timeout_s, self._connection.interrupt)
        timer.start()
        try:
            yield
        except duckdb.Error as error:
            raise _stopped(error, time.monotonic() > deadline, timeout_s) from error
        finally:
            timer.cancel()

    def _copy(self, source: Any, table: str) -> None:
        columns = source.execute("SELECT name, type FROM pragma_table_info(?)", (table,)).fetchall()
        shape = ", ".join(f"{_quoted(name)} {_type(declared)}" for name, declared in columns)
        self._connection.execute(f"CREATE TABLE {_quoted(table)} ({shape})")
        rows = source.execute(f"SELECT * FROM {_quoted(table)}").fetchall()  # noqa: S608  the name is quoted
        if rows:
            slots = ", ".join(f"TRY_CAST(? AS {_type(declared)})" for _, declared in columns)
            self._connection.executemany(f"INSERT INTO {_quoted(table)} VALUES ({slots})", rows)  # noqa: S608


_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"


def _type(declared: str | None) -> str:
    return next((ours for theirs, ours in _TYPES if re.search(theirs, declared or "", re.IGNORECASE)), "VARCHAR")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _stopped(error: duckdb.Error, late: bool, timeout_s: float) -> Stopped:
    if isinstance(error, duckdb.InterruptException) or late:
        return Stopped("timeout", f"not done after {timeout_s:g} s")
    if isinstance(error, duckdb.PermissionException):
        return Stopped("refused", str(error))
    if isinstance(error, duckdb.OutOfMemoryException):
        return Stopped("too_large", "more memory than is given")
    return Stopped("invalid", str(error))


def _plain(value: Any) -> Any:
    """Return what JSON has: decimals as floats, dates and the like as text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else str(value)
