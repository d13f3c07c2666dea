"""SQLite databases in memory that only read, within limits of time and memory. Runs in the worker's process.

apsw brings its own SQLite, so that answers are judged alike on every system.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from copy import copy
from typing import Any

import apsw

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.contents import SqliteContents, opened
from expert_cli.evaluation.verifiers.query_text import code_words
from expert_cli.evaluation.verifiers.rows import Row
from expert_cli.evaluation.verifiers.sandbox import isolation
from expert_cli.evaluation.verifiers.sandbox.isolation import MAX_VALUE_BYTES, Stopped, bounded
from expert_cli.evaluation.verifiers.sandbox.query_judge import Engine, QueryJudge

STEPS_BETWEEN_LOOKS = 1_000
_QUERIES = ("SELECT", "WITH", "VALUES")
_UNKNOWN_NAME = re.compile("no such (table|column): |cannot join using column ")
_WAL = b"\x02\x02"
_READING = frozenset((apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE))
"""Everything else changes something, or reaches outside."""
_NAMES = {code: name for code, name in apsw.mapping_authorizer_function.items() if isinstance(code, int)}
_FORBIDDEN_FUNCTIONS = frozenset(("load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"))
_LIMITS = {
    apsw.SQLITE_LIMIT_ATTACHED: 0,
    apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: 500,
    apsw.SQLITE_LIMIT_VDBE_OP: 1_000_000,
    apsw.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_TOO_LARGE = (apsw.TooBigError, apsw.NoMemError, apsw.FullError, MemoryError)


def judge() -> QueryJudge:
    """Return what judges SQL."""
    return QueryJudge(SqliteEngine, "sqlite", isolation.MAX_SQL_BYTES)


class ReadOnly:
    """Runs one query at a time on `connection`; for good it refuses what does not only read.

    `also`: authorizer codes allowed besides reading. Not for several threads at once: the memory limit is the process's.
    """

    def __init__(self, connection: Any, *, also: Sequence[int] = (), value_bytes: int = MAX_VALUE_BYTES) -> None:
        """Close the connection to everything but reading."""
        self._connection, self._allowed, self._refusal = connection, _READING | set(also), ""
        connection.enable_load_extension(False)
        connection.execute("PRAGMA temp_store = MEMORY").fetchall()
        connection.execute("PRAGMA query_only = ON").fetchall()
        for name, value in (_LIMITS | {apsw.SQLITE_LIMIT_LENGTH: value_bytes}).items():
            connection.limit(name, value)
        connection.authorizer = self._authorize

    def show(self, content: bytes, *, reverse: bool) -> None:
        """Put another database in the place of this one. reverse: rows that no query orders come the other way round."""
        self._connection.authorizer = None
        try:
            self._connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 1)
            self._connection.deserialize("main", content)
            self._connection.execute(f"PRAGMA reverse_unordered_selects = {int(reverse)}").fetchall()
        finally:
            self._connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
            self._connection.authorizer = self._authorize

    def run(
        self, statement: str, bindings: Sequence[Any] = (), *, timeout_s: float, compile_only: bool = False
    ) -> list[Row]:
        """Return the rows. Raises `Stopped`."""
        self._refusal, fault, rows = "", None, list[Row]()
        deadline = time.monotonic() + timeout_s
        self._connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_LOOKS)
        apsw.hard_heap_limit(apsw.memory_used() + isolation.HEAP_BYTES)
        try:
            rows = bounded(self._connection.execute(statement, bindings, explain=2 if compile_only else -1))
        except (apsw.Error, MemoryError, UnicodeError) as error:
            fault = error
        finally:
            apsw.hard_heap_limit(0)
            self._connection.set_progress_handler(None)
        if self._refusal:
            raise Stopped("refused", self._refusal)
        if time.monotonic() > deadline:
            raise Stopped("timeout", f"not done after {timeout_s:g} s")
        if isinstance(fault, _TOO_LARGE):
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
        if not self._refusal:
            what = str(_NAMES.get(action, action)).removeprefix("SQLITE_").replace("_", " ")
            self._refusal = " ".join((what, *(part for part in (first, second) if part)))
        return apsw.SQLITE_DENY


class SqliteEngine(Engine):
    """A copy of a database that can only be read."""

    def __init__(self, file: bytes) -> None:
        """Take what a file holds. Raises InputError."""
        if not file.startswith(b"SQLite format 3\0"):
            raise InputError("not an SQLite database")
        if file[18:20] == _WAL:  # such a database cannot be opened in memory
            file = file[:18] + b"\x01\x01" + file[20:]
        try:
            self._contents = SqliteContents(file)
        except apsw.Error as error:
            raise InputError(str(error)) from error
        self._guard = ReadOnly(opened(file))

    def perturbed(self, queries: Sequence[str], number: int) -> tuple[SqliteEngine, SqliteEngine]:
        """Return another content of the same tables, and it once more: there, unordered rows come the other way round."""
        content, ways = self._contents.content(queries, number), (copy(self), copy(self))
        for reverse, way in enumerate(ways):
            connection = opened(content)
            connection.execute(f"PRAGMA reverse_unordered_selects = {reverse}").fetchall()
            way._guard = ReadOnly(connection)
        return ways

    def run(self, query: str, *, timeout_s: float) -> list[Row]:
        """Return the rows, blobs as their hexadecimal text behind "x". Raises `Stopped`."""
        first = _first(query)
        if first not in _QUERIES:
            self.prepare(query, timeout_s=timeout_s)
            raise Stopped("refused", first)
        rows = self._guard.run(query, timeout_s=timeout_s)
        return [tuple("x" + cell.hex() if isinstance(cell, bytes) else cell for cell in row) for row in rows]

    def prepare(self, query: str, *, timeout_s: float) -> None:
        """Compile the statement. Raises `Stopped`."""
        try:
            self._guard.run(query, timeout_s=timeout_s, compile_only=True)
        except Stopped as stopped:
            first = _first(query)
            if stopped.kind == "refused" and first not in _QUERIES:
                raise Stopped("refused", first) from stopped
            raise


def _first(statement: str) -> str:
    """Return the first word or mark of the code, "" where there is none: a number, a text."""
    return next(iter(code_words(statement, "sqlite")), "")
