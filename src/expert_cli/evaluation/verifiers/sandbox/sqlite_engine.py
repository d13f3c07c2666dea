"""An SQLite database in memory. Runs in the process of `engine_server.py`: a single call like trim() can take minutes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import apsw

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.contents import SqliteContents, opened
from expert_cli.evaluation.verifiers.query_text import code_words
from expert_cli.evaluation.verifiers.sandbox.limits import Stopped
from expert_cli.evaluation.verifiers.sandbox.sqlite_guard import ReadOnlySqlite

MAX_DATABASE_BYTES = 512 << 20
_QUERIES = ("SELECT", "WITH", "VALUES")
_UNKNOWN_NAME = re.compile("no such (table|column): |cannot join using column ")
_WAL = b"\x02\x02"


class SqliteEngine:
    """A copy of a database that can only be read."""

    def __init__(self, database: Path) -> None:
        """Read the file. Raises InputError."""
        connection = open_copy(database)
        self._contents = SqliteContents(bytes(connection.serialize("main")))
        self._guard = ReadOnlySqlite(connection)

    def perturbed(self, queries: Sequence[str], number: int) -> tuple[SqliteEngine, SqliteEngine]:
        """Return another content of the same tables, and it once more: there, unordered rows come the other way round."""
        content = self._contents.content(queries, number)
        return self._over(content, reverse=False), self._over(content, reverse=True)

    def _over(self, content: bytes, *, reverse: bool) -> SqliteEngine:
        connection = opened(content)
        connection.execute(f"PRAGMA reverse_unordered_selects = {int(reverse)}").fetchall()
        other = copy(self)
        other._guard = ReadOnlySqlite(connection)
        return other

    def run(self, query: str, *, timeout_s: float) -> list[tuple[Any, ...]]:
        """Return the rows, blobs as their hexadecimal text behind "x". Raises `Stopped`."""
        if _first(query) not in _QUERIES:
            self.prepare(query, timeout_s=timeout_s)
            raise Stopped("refused", _first(query))
        with _naming_unknown():
            rows = self._guard.run(query, timeout_s=timeout_s)
        return [tuple("x" + cell.hex() if isinstance(cell, bytes) else cell for cell in row) for row in rows]

    def prepare(self, query: str, *, timeout_s: float) -> None:
        """Compile the statement. Raises `Stopped`."""
        try:
            with _naming_unknown():
                self._guard.prepare(query, timeout_s=timeout_s)
        except Stopped as stopped:
            if stopped.kind == "refused" and _first(query) not in _QUERIES:
                raise Stopped("refused", _first(query)) from stopped
            raise


@contextmanager
def _naming_unknown() -> Iterator[None]:
    """Tell a table or column that is not there from other faults."""
    try:
        yield
    except Stopped as stopped:
        if stopped.kind == "invalid" and _UNKNOWN_NAME.match(stopped.detail):
            raise Stopped("unknown_name", stopped.detail) from stopped
        raise


def _first(statement: str) -> str:
    """Return the first word or mark of the code, "" where there is none: a number, a text."""
    return next((word for word, _ in code_words(statement, "sqlite")), "")


def open_copy(database: Path) -> Any:
    """Return a connection to a copy of the database in memory; nothing beside the file is read or made.

    Raises InputError.
    """
    content = database.read_bytes() if database.stat().st_size <= MAX_DATABASE_BYTES else b""
    if not content.startswith(b"SQLite format 3\0"):
        raise InputError(f"not an SQLite database of at most {MAX_DATABASE_BYTES:,} bytes")
    journal = database.with_name(f"{database.name}-wal")
    if journal.exists() and journal.stat().st_size:
        raise InputError(f"has changes not yet written to it: sqlite3 {database.name} 'PRAGMA wal_checkpoint'")
    if content[18:20] == _WAL:  # such a database cannot be opened in memory
        content = content[:18] + b"\x01\x01" + content[20:]
    connection = apsw.Connection(":memory:")
    connection.deserialize("main", content)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    except apsw.Error as error:
        raise InputError(str(error)) from error
    return connection
