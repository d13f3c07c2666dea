"""Databases of a real PostgreSQL: each content of a case is a schema. Runs in the worker's process, as a client."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import groupby
from typing import Any

import apsw
import pg8000.native

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.case import Kind
from expert_cli.evaluation.verifiers.contents import SqliteContents, opened, quoted, read_tables
from expert_cli.evaluation.verifiers.query_text import code_words
from expert_cli.evaluation.verifiers.result_rows import Row
from expert_cli.evaluation.verifiers.sandbox.child_process import MAX_SQL_BYTES, Stopped, bounded
from expert_cli.evaluation.verifiers.sandbox.sqlite import Engine, QueryJudge

FETCHED = 100
"""Rows that are read, or written, at once."""
_COMMANDS = re.compile(
    "ABORT|ALTER|ANALYZE|BEGIN|CALL|CHECKPOINT|CLOSE|CLUSTER|COMMENT|COMMIT|COPY|CREATE|DEALLOCATE|DECLARE|DELETE|DISCARD|DO|"
    "DROP|END|EXECUTE|EXPLAIN|FETCH|GRANT|IMPORT|INSERT|LISTEN|LOAD|LOCK|MERGE|MOVE|NOTIFY|PREPARE|REASSIGN|REFRESH|REINDEX|"
    "RELEASE|RESET|REVOKE|ROLLBACK|SAVEPOINT|SECURITY|SET|SHOW|START|TRUNCATE|UNLISTEN|UPDATE|VACUUM"
)
"""What begins a statement of PostgreSQL that is no query."""
_KINDS: dict[str, Kind] = {
    "57014": "timeout", "42P01": "unknown_name", "42703": "unknown_name", "25006": "refused", "42501": "refused",
    "0A000": "refused", "53": "too_large", "54": "too_large",
}  # fmt: skip
"""By SQLSTATE, or the class that it begins with; any other is "invalid"."""
_TYPES = {
    "INT": "bigint", "CHAR|CLOB|TEXT": "text", "BLOB": "bytea", "REAL|FLOA|DOUB": "double precision", "BOOL": "boolean",
    "DATETIME|TIMESTAMP": "timestamp", "DATE": "date", "TIME": "time", ".": "numeric",
}  # fmt: skip
"""What a type that SQLite lets a column declare is in PostgreSQL, by the first that is found in its name."""
_DEFINED = """
SELECT relname, '"' || replace(attname, '"', '""') || '"' || CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END, attnum
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
WHERE relnamespace = '{0}'::regnamespace AND relkind = 'r' AND attnum > 0 AND NOT attisdropped
UNION ALL SELECT relname, pg_get_constraintdef(pg_constraint.oid), 10000
FROM pg_constraint JOIN pg_class ON pg_class.oid = conrelid
WHERE connamespace = '{0}'::regnamespace AND contype IN ('p', 'u', 'f') ORDER BY 1, 3, 2
"""
"""The columns and keys of each table, as SQLite reads them, too."""


def _number(text: str) -> int | float:
    value = Decimal(text)
    return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)


_READ: Mapping[int, Callable[[str], Any]] = {
    16: "t".__eq__, 20: int, 21: int, 23: int, 26: int, 700: float, 701: float, 1700: _number,
    114: json.loads, 3802: json.loads,
}  # fmt: skip
"""By the type's oid; what has none is a text."""


class PostgresJudge(QueryJudge):
    """Holds a session that makes contents, and one that reads them: of expected queries it ends before an answer is run."""

    sockets = 3

    def __init__(self, server: Mapping[str, str]) -> None:
        """Connect as the owner of the contents. server: of `postgres_server`."""
        super().__init__(partial(PostgresEngine.of_file, self), "postgresql", MAX_SQL_BYTES)
        self._server, self._role, self._numbers = server, "", itertools.count()
        self.owner: Any = self._connected("owner")
        self.reader: Any = None

    def __call__(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a verdict, a key or what is lacking. Raises `Stopped`, InputError."""
        role = "gold" if question["do"] == "prepare" else "judged"
        if role != self._role:
            if self.reader is not None:
                self.reader.close()
            self.reader, self._role = self._connected(role), role
        return super().__call__(question)

    def new_schema(self) -> str:
        """Make a schema, the owner's current one, that readers may use. Return its name."""
        name = f"content_{os.getpid()}_{next(self._numbers)}"
        grants = f"GRANT USAGE ON SCHEMA {name} TO gold, judged; ALTER DEFAULT PRIVILEGES IN SCHEMA {name} "
        grants += "GRANT SELECT ON TABLES TO gold, judged"
        self.owner.execute_simple(f"CREATE SCHEMA {name}; SET search_path TO {name}; {grants}")
        return name

    def _connected(self, role: str) -> Any:
        login = {"password": self._server[role], "database": "postgres", "unix_sock": self._server["socket"]}
        found = pg8000.native.Connection(role, **login)
        for oid in found.pg_types:
            found.register_in_adapter(oid, _READ.get(oid, str))
        return found


class PostgresEngine(Engine):
    """A schema that is only read. twin: the same rows in SQLite, of which others are made, and what its names are here."""

    def __init__(self, judge: PostgresJudge, schema: str, twin: SqliteContents, folds: bool) -> None:
        """Take a schema, which goes with this object. folds: names of the twin are written in small letters here."""
        self._judge, self._schema, self._twin, self._folds = judge, schema, twin, folds
        weakref.finalize(self, _drop, judge, schema)

    @classmethod
    def of_file(cls, judge: PostgresJudge, file: bytes) -> PostgresEngine:
        """Make a content of an SQLite file, or of a script of CREATE TABLE and INSERT. Raises InputError."""
        is_sqlite, schema = file.startswith(b"SQLite format 3\0"), judge.new_schema()
        try:
            if is_sqlite:
                connection = opened(file)
                judge.owner.execute_simple("".join(_created(connection)))
                engine = cls(judge, schema, SqliteContents(file, "postgres"), folds=True)
                engine._fill(connection)
                return engine
            judge.owner.execute_simple(file.decode())
            return cls(judge, schema, SqliteContents(_as_sqlite(judge.owner, schema), "postgres"), folds=False)
        except (pg8000.native.DatabaseError, apsw.Error, UnicodeDecodeError) as error:
            raise InputError(f"PostgreSQL cannot hold it: {_told(error)}") from error

    def perturbed(self, queries: Sequence[str], number: int) -> tuple[PostgresEngine, PostgresEngine]:
        """Return another content of the same tables, and it once more: there, unordered rows come the other way round."""
        content = opened(self._twin.content(queries, number))
        return self._filled(content, reverse=False), self._filled(content, reverse=True)

    def _filled(self, content: Any, *, reverse: bool) -> PostgresEngine:
        schema = self._judge.new_schema()
        for table in map(self._named, self._twin.tables):
            self._judge.owner.execute_simple(f"CREATE TABLE {table} (LIKE {self._schema}.{table} INCLUDING ALL)")
        made = PostgresEngine(self._judge, schema, self._twin, self._folds)
        made._fill(content, lenient=True, reverse=reverse)
        return made

    def _fill(self, content: Any, *, lenient: bool = False, reverse: bool = False) -> None:
        """Write the rows of an SQLite database into the owner's newest schema. lenient: a row that does not fit is left out."""
        owner = self._judge.owner
        for table in self._twin.tables.values():
            listed = ", ".join(map(quoted, table.columns))
            found = content.execute(f"SELECT {listed} FROM {quoted(table.name)}").fetchall()  # noqa: S608
            rows = [f"({', '.join(map(_literal, row))})" for row in (found[::-1] if reverse else found)]
            into = f"INSERT INTO {self._named(table.name)} ({', '.join(map(self._named, table.columns))}) VALUES "  # noqa: S608
            try:
                for start in range(0, len(rows), FETCHED):
                    owner.execute_simple(into + ", ".join(rows[start : start + FETCHED]))
            except pg8000.native.DatabaseError:
                if not lenient:
                    raise
                for row in rows:
                    with contextlib.suppress(pg8000.native.DatabaseError):
                        owner.execute_simple(f"{into}{row} ON CONFLICT DO NOTHING")

    def _named(self, name: str) -> str:
        return _folded(name) if self._folds else quoted(name)

    def run(self, query: str, *, timeout_s: float) -> list[Row]:
        """Return the rows. Raises `Stopped`."""
        return bounded(self._rows(query, timeout_s))

    def prepare(self, query: str, *, timeout_s: float) -> None:
        """Plan the statement. Raises `Stopped`."""
        list(self._rows(query, timeout_s, most=0))

    def _rows(self, query: str, timeout_s: float, most: int = FETCHED) -> Iterable[Row]:
        """Yield the rows of one query through a cursor: a query that only reads, and no more rows than are asked for."""
        reader, end = self._judge.reader, time.monotonic() + timeout_s
        limits = (
            f"SET LOCAL search_path TO {self._schema}; SET LOCAL statement_timeout = {max(1, int(timeout_s * 1000))}"
        )
        try:
            reader.execute_simple(f"BEGIN READ ONLY; {limits}")
            reader.execute_unnamed(f"DECLARE answer NO SCROLL CURSOR FOR {query}")
            while most and (rows := reader.execute_simple(f"FETCH {most} FROM answer").rows):
                yield from map(tuple, rows)
                if time.monotonic() > end:
                    raise Stopped("timeout", f"not done after {timeout_s:.2g} s")
        except pg8000.native.DatabaseError as error:
            code, first = error.args[0].get("C", ""), next(iter(code_words(query, "postgresql")), "")
            if _COMMANDS.fullmatch(first):
                raise Stopped("refused", first) from error
            raise Stopped(_KINDS.get(code) or _KINDS.get(code[:2], "invalid"), _told(error)) from error
        finally:
            with contextlib.suppress(pg8000.native.DatabaseError):  # what it left can be over its limit once more
                reader.execute_simple("ROLLBACK")
            reader.execute_simple("ROLLBACK")
            reader.execute_simple("DISCARD ALL")


def _drop(judge: PostgresJudge, schema: str) -> None:
    with contextlib.suppress(pg8000.native.Error):
        judge.owner.execute_simple(f"DROP SCHEMA {schema} CASCADE")


def _told(error: Exception) -> str:
    told = error.args[0] if error.args else ""
    return str(told.get("M")) if isinstance(told, dict) else str(error)


def _literal(value: Any) -> str:
    """Return a value as a text that PostgreSQL reads as the column's type."""
    if value is None:
        return "NULL"
    text = f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)
    return "'" + text.replace("'", "''") + "'"


def _folded(name: str) -> str:
    """Return a name of SQLite so that PostgreSQL knows it without quotes, in whatever case."""
    return quoted(name.lower() if re.fullmatch(r"[^\W\d]\w*", name) else name)


def _created(connection: Any) -> Iterable[str]:
    """Yield statements that make the tables of an SQLite database, without what only guards writes."""
    for name in read_tables(connection):
        info = connection.execute("SELECT name, type, pk FROM pragma_table_info(?)", (name,)).fetchall()
        types = (
            next((to for of, to in _TYPES.items() if re.search(of, row[1], re.IGNORECASE)), "text") for row in info
        )
        parts = [f"{_folded(row[0])} {type_}" for row, type_ in zip(info, types, strict=True)]
        key = [_folded(column) for column, _, place in sorted(info, key=lambda row: row[2]) if place]
        parts += [f"PRIMARY KEY ({', '.join(key)})"] if key else []
        yield f"CREATE TABLE {_folded(name)} ({', '.join(parts)});\n"


def _as_sqlite(owner: Any, schema: str) -> bytes:
    """Return the tables of a schema, with their keys, as an SQLite file."""
    connection = apsw.Connection(":memory:")
    for table, parts in groupby(owner.execute_simple(_DEFINED.format(schema)).rows, key=lambda row: row[0]):
        connection.execute(f"CREATE TABLE {quoted(table)} ({', '.join(part for _, part, _ in parts)})")
        for row in owner.execute_simple(f"SELECT * FROM {schema}.{quoted(table)}").rows:  # noqa: S608
            plain = [json.dumps(cell) if isinstance(cell, list | dict) else cell for cell in row]
            connection.execute(f"INSERT INTO {quoted(table)} VALUES ({', '.join('?' * len(row))})", plain)  # noqa: S608
    return bytes(connection.serialize("main"))
