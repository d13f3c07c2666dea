"""SQL compiled against the tables that its own row describes, in an empty database in memory: nothing is run."""

from __future__ import annotations

import re
import time
from typing import Any

from expert_cli.evaluation.verifiers.query_text import split
from expert_cli.evaluation.verifiers.requirements import require_packages

SCHEMA_S = 2.0
_CREATE = re.compile(r"\bCREATE\s+(?:TABLE|VIEW)\b", re.IGNORECASE)
_OWN_TABLES = ("sqlite_master", "sqlite_sequence")


def schema_of(*texts: str) -> str:
    """Return the first of some texts that has CREATE statements, from the first one on; "" without any."""
    found = (text[start.start() :] for text in texts if (start := _CREATE.search(text)))
    return next(found, "")


def open_schema(schema: str) -> tuple[Any, str]:
    """Return an empty SQLite database with the tables of a text, and what it lacks of them, "" for nothing.

    The text is a stranger's: only tables, views and indexes can be made, within `SCHEMA_S`.
    """
    require_packages("apsw")
    import apsw

    connection = apsw.Connection(":memory:")
    connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
    connection.authorizer = _allows
    fault = "" if schema else "neither a database nor CREATE TABLE in the row"
    deadline = time.monotonic() + SCHEMA_S
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 1_000)
    for statement in split(schema, "sqlite"):
        if _CREATE.match(statement):
            try:
                connection.execute(statement)
            except (apsw.Error, UnicodeError) as error:
                fault = f"SQLite refuses a CREATE statement of the row: {error}"
    connection.authorizer = None
    connection.set_progress_handler(None)
    return connection, fault


def _allows(action: int, first: str | None, *_: str | None) -> int:
    import apsw

    making = (
        apsw.SQLITE_CREATE_TABLE,
        apsw.SQLITE_CREATE_VIEW,
        apsw.SQLITE_CREATE_INDEX,
        apsw.SQLITE_REINDEX,
        apsw.SQLITE_SELECT,
        apsw.SQLITE_READ,
        apsw.SQLITE_FUNCTION,
    )
    writing = action in (apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE) and first in _OWN_TABLES
    return int(apsw.SQLITE_OK if writing or action in making else apsw.SQLITE_DENY)


def compile_fault(connection: Any, statement: str) -> str:
    """Return why SQLite does not compile a statement; "" where it does."""
    import apsw

    try:
        connection.execute(statement, explain=2).fetchall()
    except (apsw.Error, UnicodeError) as error:
        return str(error) or type(error).__name__
    return ""


def is_syntax_fault(fault: str) -> bool:
    """Whether a statement is no SQL, whatever the tables are."""
    return any(words in fault for words in ("syntax error", "incomplete input", "unrecognized token"))
