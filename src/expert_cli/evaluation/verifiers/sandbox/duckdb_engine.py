"""An SQLite database's tables in DuckDB, for queries in PostgreSQL's dialect. Runs in the process of `engine_server.py`."""

from __future__ import annotations

import re
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from decimal import Decimal
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import duckdb

from expert_cli.evaluation.verifiers.query_text import code_words, rewrite_code
from expert_cli.evaluation.verifiers.sandbox.limits import MEMORY_BYTES, Stopped, bounded
from expert_cli.evaluation.verifiers.sandbox.postgresql_functions import FUNCTIONS, POSTGRESQL_ONLY
from expert_cli.evaluation.verifiers.sandbox.sqlite_engine import open_copy
from expert_cli.evaluation.verifiers.worlds.sqlite_tables import SqliteContents, opened

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
_SETTINGS = {
    "TimeZone": "UTC",
    "integer_division": True,
    "default_null_order": "nulls_last_on_asc_first_on_desc",
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
        self._connection = duckdb.connect(":memory:")
        self._names, self._schema = count(), "main"
        source = open_copy(database)
        self._contents = SqliteContents(bytes(source.serialize("main")))
        self._fill(source)
        for name, (function, parameters, returned) in FUNCTIONS.items():
            self._connection.create_function(
                name, function, ["VARCHAR"] * parameters, returned, null_handling="special"
            )
        self._connection.execute("LOAD json")
        self._connection.execute(_MACROS.read_text(encoding="utf-8"))
        self._dividing_intervals = self._connection.cursor()
        for key, value in _SETTINGS.items():
            self._connection.execute(f"SET {key} = {value!r}")
        self._connection.execute(_IMPORTING).fetchall()

    def perturbed(self, queries: Sequence[str], number: int) -> tuple[DuckDBEngine, DuckDBEngine]:
        """Return another content of the same tables, in a schema of its own, and it once more, rows the other way round."""
        source = opened(self._contents.content(queries, number))
        return self._over(source, reverse=False), self._over(source, reverse=True)

    def _over(self, source: Any, *, reverse: bool) -> DuckDBEngine:
        other = copy(self)
        other._schema = f"contents_{next(self._names)}"
        self._connection.execute(f"CREATE SCHEMA {other._schema}")
        weakref.finalize(other, self._connection.cursor().execute, f"DROP SCHEMA {other._schema} CASCADE")
        other._fill(source, reverse=reverse)
        return other

    def run(self, query: str, *, timeout_s: float) -> list[tuple[Any, ...]]:
        """Return the rows. Raises `Stopped`."""
        query = self._prepared(query, timeout_s)
        try:
            return self._rows(self._connection, query, timeout_s)
        except Stopped as stopped:
            if "'//(INTERVAL" in stopped.detail:  # with integer_division no interval can be divided
                return self._rows(self._dividing_intervals, query, timeout_s)
            raise

    def _rows(self, connection: Any, query: str, timeout_s: float) -> list[tuple[Any, ...]]:
        connection.execute(f"SET search_path = '{self._schema},main'")
        connection.execute("BEGIN TRANSACTION READ ONLY")  # a SELECT can hold a DELETE, in WITH
        try:
            with _held(connection, timeout_s, query):
                pieces = iter(partial(connection.execute(query).fetchmany, 1_000), [])
                return bounded([_plain(value) for value in row] for row in chain.from_iterable(pieces))
        finally:
            connection.execute("ROLLBACK")

    def prepare(self, query: str, *, timeout_s: float) -> None:
        """Parse the query, and refuse what is not one SELECT. Raises `Stopped`."""
        self._prepared(query, timeout_s)

    def _prepared(self, query: str, timeout_s: float) -> str:
        """Return the query as DuckDB is asked it."""
        query = rewrite_code(query, "postgresql", partial(_OTHERWISE.sub, _in_duckdb))
        query = _SIGN_IN_INTERVAL.sub(r"\1", query)
        with _held(self._connection, timeout_s, query):
            statements = self._connection.extract_statements(query)
        if len(statements) != 1:
            raise Stopped("invalid", f"{len(statements)} statements, one query expected")
        if statements[0].type != duckdb.StatementType.SELECT:
            raise Stopped("refused", statements[0].type.name)
        return query

    def _fill(self, source: Any, *, reverse: bool = False) -> None:
        for name in [row[0] for row in source.execute(_TABLES)]:
            self._copy(source, name, reverse=reverse)

    def _copy(self, source: Any, table: str, *, reverse: bool) -> None:
        columns = source.execute("SELECT name, type FROM pragma_table_info(?)", (table,)).fetchall()
        shape = ", ".join(f"{_quoted(name)} {_type(declared)}" for name, declared in columns)
        self._connection.execute(f"CREATE TABLE {self._schema}.{_quoted(table)} ({shape})")
        rows = source.execute(f"SELECT * FROM {_quoted(table)}").fetchall()[:: -1 if reverse else 1]  # noqa: S608  quoted
        if rows:
            slots = ", ".join(f"TRY_CAST(? AS {_type(declared)})" for _, declared in columns)
            self._connection.executemany(f"INSERT INTO {self._schema}.{_quoted(table)} VALUES ({slots})", rows)  # noqa: S608


_NAMES = {
    "json_agg": "list",
    "jsonb_agg": "list",
    "json_object_agg": "json_group_object",
    "jsonb_object_agg": "json_group_object",
    "json_build_object": "json_object",
    "jsonb_build_object": "json_object",
    "json_build_array": "json_array",
    "jsonb_build_array": "json_array",
    "jsonb_array_length": "json_array_length",
    "to_jsonb": "to_json",
    "every": "bool_and",
    "regexp_matches": "postgresql_matches",
}
_OTHERWISE = re.compile(
    rf"\b(?P<name>{'|'.join(_NAMES)})(?=\s*\()|(?<![-+*/<>=~!@#%^&|`?])!?~(?![-+*/<>=~!@#%^&|`?])", re.IGNORECASE
)
"""What a macro cannot stand for: aggregates, any number of arguments, and the operators ~ and !~ (DuckDB 1 matches all)."""
_LACKING = (
    r"types '(?:(\W+\(\w+, \w+\))|(sum\(INTERVAL\)))'",
    r"at or near \"(ANY)\"|Unsupported comparison \"!?(~~\*?)\"",
    r"invalid escape sequence: (\\\w)|invalid perl operator: (\S+)",
    r"NotImplementedError: (?:(template \S+)|())",
)
"""What its messages say it lacks: operators on dates and intervals, LIKE ANY, parts of patterns, templates of to_char."""
_SIGN_IN_INTERVAL = re.compile(r"(\binterval\s*'[^']*?[+-])\s+(?=\d)", re.IGNORECASE)
_UNKNOWN_NAME = re.compile(
    r"Catalog Error: Table with name .* does not exist"
    r"|Binder Error: (?:Referenced (?:table|column) .* not found|Table .* does not have a column named"
    r"|Column .* does not exist on (?:left|right) side of join)"
)
_IMPORTING = "SELECT to_timestamp(0), to_date('2001', 'YYYY'), time '10:00', interval 1 day, 1.5, uuid()"
"""Asked while files can be opened: DuckDB (from 2.0.1 on by zoneinfo, before by pytz) and to_date import what they need."""
_MACROS = Path(__file__).with_name("postgresql.sql")
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"


def _type(declared: str | None) -> str:
    return next((ours for theirs, ours in _TYPES if re.search(theirs, declared or "", re.IGNORECASE)), "VARCHAR")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _held(connection: Any, timeout_s: float, query: str) -> Iterator[None]:
    """Interrupt the work at its time, and name what stopped it."""
    deadline = time.monotonic() + timeout_s
    timer = threading.Timer(timeout_s, connection.interrupt)
    timer.start()
    try:
        yield
    except duckdb.Error as error:
        raise _stopped(error, query, time.monotonic() > deadline, timeout_s) from error
    finally:
        timer.cancel()


def _stopped(error: duckdb.Error, query: str, late: bool, timeout_s: float) -> Stopped:
    if isinstance(error, duckdb.InterruptException) or late:
        return Stopped("timeout", f"not done after {timeout_s:g} s")
    if isinstance(error, duckdb.PermissionException) or "transaction is launched in read-only mode" in str(error):
        return Stopped("refused", str(error))
    if isinstance(error, duckdb.OutOfMemoryException):
        return Stopped("too_large", "more memory than is given")
    lacking = _lacking(query, str(error))
    if lacking:
        return Stopped("parsed_only", f"DuckDB, asked in place of PostgreSQL, has no {lacking}: {error}")
    return Stopped("unknown_name" if _UNKNOWN_NAME.match(str(error)) else "invalid", str(error))


def _in_duckdb(found: re.Match[str]) -> str:
    return _NAMES[found["name"].lower()] if found["name"] else f"{found[0]}@"


def _lacking(query: str, error: str) -> str:
    """Return what PostgreSQL has and DuckDB has not, where that may be why a query failed; else ""."""
    for pattern in _LACKING:
        if match := re.search(pattern, error):
            return str(match[1] or match[2])
    return next((word.lower() for word, _ in code_words(query, "postgresql") if word in POSTGRESQL_ONLY), "")


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
