"""Runs queries on SQLite databases in memory that only read, within limits of time and memory. Runs in the worker's process.

apsw brings its own SQLite, so that answers are judged alike on every system.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

import apsw

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.contents import Way, database_contents
from expert_cli.evaluation.verifiers.result_rows import Row
from expert_cli.evaluation.verifiers.sandbox import child_process
from expert_cli.evaluation.verifiers.sandbox.child_process import MAX_VALUE_BYTES, Stopped, bounded
from expert_cli.evaluation.verifiers.sandbox.query_judge import QueryJudge

_UNKNOWN_NAME = re.compile("no such (table|column): |cannot join using column ")
_READING = frozenset((apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE))
"""Everything else changes something, or reaches outside."""
_FORBIDDEN_FUNCTIONS = frozenset(("load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"))
_LIMITS = {
    apsw.SQLITE_LIMIT_ATTACHED: 0,
    apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: 500,
    apsw.SQLITE_LIMIT_VDBE_OP: 1_000_000,
    apsw.SQLITE_LIMIT_WORKER_THREADS: 0,
}


class ReadOnly:
    """Runs one query at a time on a copy of a database, within limits of time and memory; refuses what writes."""

    def __init__(self, connection: Any, *, also: Sequence[int] = (), value_bytes: int = MAX_VALUE_BYTES) -> None:
        """Close the connection to everything but reading, and what is done `also`."""
        self._connection, self._allowed, self._refusal = connection, _READING | set(also), ""
        self._shown: tuple[bytes, bool] | None = None
        connection.enable_load_extension(False)
        connection.execute("PRAGMA temp_store = MEMORY; PRAGMA query_only = ON").fetchall()
        for name, value in (_LIMITS | {apsw.SQLITE_LIMIT_LENGTH: value_bytes}).items():
            connection.limit(name, value)
        connection.authorizer = self._authorize

    def show(self, content: bytes, *, reverse: bool) -> None:
        """Put another database in the place of this one. reverse: rows that no query orders come the other way round."""
        if self._shown != (content, reverse):
            self._shown, self._connection.authorizer = (content, reverse), None
            self._connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 1)
            try:
                self._connection.deserialize("main", content)
                self._connection.execute(f"PRAGMA reverse_unordered_selects = {int(reverse)}").fetchall()
            finally:
                self._connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
                self._connection.authorizer = self._authorize

    def run(self, statement: str, bindings: Sequence[Any] = (), *, timeout_s: float) -> list[Row]:
        """Return the rows. Raises `Stopped`."""
        self._refusal, fault, rows, deadline = "", None, list[Row](), time.monotonic() + timeout_s
        self._connection.set_progress_handler(lambda: time.monotonic() > deadline, 1_000)
        apsw.hard_heap_limit(apsw.memory_used() + child_process.HEAP_BYTES)
        try:
            rows = bounded(self._connection.execute(statement, bindings))
        except (apsw.Error, MemoryError, UnicodeError, re.error, TypeError) as error:  # the last of a pattern in Cypher
            fault = error
        finally:
            apsw.hard_heap_limit(0)
            self._connection.set_progress_handler(None)
        if self._refusal:
            raise Stopped("refused", self._refusal)
        if time.monotonic() > deadline:
            raise Stopped("timeout", f"not done after {timeout_s:g} s")
        if isinstance(fault, apsw.TooBigError | apsw.NoMemError | apsw.FullError | MemoryError):
            told = f"a value over {MAX_VALUE_BYTES:,} bytes, or more memory than is given: {fault}"
            raise Stopped("too_large", told) from fault
        if fault is not None:
            raise Stopped("unknown_name" if _UNKNOWN_NAME.match(str(fault)) else "invalid", str(fault)) from fault
        return rows

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action in self._allowed and not (
            (action == apsw.SQLITE_FUNCTION and str(second).lower() in _FORBIDDEN_FUNCTIONS)
            or (action == apsw.SQLITE_READ and str(first).lower().startswith("pragma_"))
        ):
            return apsw.SQLITE_OK
        what = str(apsw.mapping_authorizer_function[action]).removeprefix("SQLITE_").replace("_", " ")
        self._refusal = self._refusal or " ".join(filter(None, (what, first, second)))
        return apsw.SQLITE_DENY


class SqliteJudge(QueryJudge):
    """Judges SQL. A content is an SQLite file."""

    dialect = "sqlite"

    def __init__(self) -> None:
        super().__init__()
        self._guard = ReadOnly(apsw.Connection(":memory:", statementcachesize=0))  # cached ones are of another database

    def content_of(self, file: bytes) -> tuple[bytes, Way]:
        """Return what a file holds, and what makes others of it. Raises InputError."""
        file = file[:18] + file[18:20].replace(b"\x02\x02", b"\x01\x01") + file[20:]  # none in WAL mode opens in memory
        try:
            return file, database_contents(file)
        except apsw.Error as error:
            raise InputError(f"not an SQLite database: {error}") from error

    def run(self, content: bytes, query: str, timeout_s: float, *, reverse: bool = False) -> list[Row]:
        """Return the rows, blobs as their hexadecimal text behind "x". Raises `Stopped`."""
        self._guard.show(content, reverse=reverse)
        rows = self._guard.run(query, timeout_s=timeout_s)
        return [tuple("x" + cell.hex() if isinstance(cell, bytes) else cell for cell in row) for row in rows]
