"""An SQLite connection that only reads, within limits of time and memory.

apsw brings its own SQLite, so that answers are judged alike on every system, and gives every Python the limits that the
standard library has from 3.11 on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import apsw

from expert_cli.evaluation.verifiers.sandbox.limits import MAX_VALUE_BYTES, MEMORY_BYTES, Stopped, bounded

STEPS_BETWEEN_LOOKS = 1_000
_READING = frozenset(
    (apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE)
)  # everything else changes something, or reaches outside
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


class ReadOnlySqlite:
    """Runs one query at a time on `connection`; for good it refuses what does not only read.

    `also`: authorizer codes allowed besides reading. Not for several threads at once: the memory limit is the process's.
    """

    def __init__(self, connection: Any, *, also: Sequence[int] = (), value_bytes: int = MAX_VALUE_BYTES) -> None:
        """Close the connection to everything but reading."""
        self._connection = connection
        self._allowed = _READING | set(also)
        self._refusal = ""
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

    def run(self, statement: str, bindings: Sequence[Any] = (), *, timeout_s: float) -> list[tuple[Any, ...]]:
        """Return the rows. Raises `Stopped`."""
        return self._held(lambda: bounded(self._connection.execute(statement, bindings)), timeout_s)

    def prepare(self, statement: str, *, timeout_s: float) -> None:
        """Compile the statement without running it. Raises `Stopped`."""
        self._held(lambda: self._connection.execute(statement, explain=2).fetchall(), timeout_s)

    def _held(self, work: Callable[[], list[tuple[Any, ...]]], timeout_s: float) -> list[tuple[Any, ...]]:
        self._refusal = ""
        deadline = time.monotonic() + timeout_s
        self._connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_LOOKS)
        apsw.hard_heap_limit(apsw.memory_used() + MEMORY_BYTES)
        try:
            rows = work()
        except (apsw.Error, MemoryError, UnicodeError) as error:
            raise self._stopped(error, deadline, timeout_s) from error
        finally:
            apsw.hard_heap_limit(0)
            self._connection.set_progress_handler(None)
        if self._refusal:
            raise Stopped("refused", self._refusal)
        if time.monotonic() > deadline:
            raise Stopped("timeout", f"not done after {timeout_s:g} s")
        return rows

    def _stopped(self, error: Exception, deadline: float, timeout_s: float) -> Stopped:
        if self._refusal:
            return Stopped("refused", self._refusal)
        if time.monotonic() > deadline:
            return Stopped("timeout", f"not done after {timeout_s:g} s")
        if isinstance(error, _TOO_LARGE):
            return Stopped(
                "too_large", f"a value over {MAX_VALUE_BYTES:,} bytes, or more memory than is given: {error}"
            )
        return Stopped("invalid", str(error))

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
