"""SQL compiled against the tables that its own row describes, in an empty database in memory: nothing is run."""

from __future__ import annotations

import re
from typing import Any

from expert_cli.evaluation.verifiers.query_text import split
from expert_cli.evaluation.verifiers.requirements import require_packages

_CREATE = re.compile(r"\bCREATE\s+(?:TABLE|VIEW)\b", re.IGNORECASE)


def schema_of(*texts: str) -> str:
    """Return the first of some texts that has CREATE statements, from the first one on; "" without any."""
    found = (text[start.start() :] for text in texts if (start := _CREATE.search(text)))
    return next(found, "")


def open_schema(schema: str) -> tuple[Any, str]:
    """Return an empty SQLite database with the tables of a text, and what it lacks of them, "" for nothing.

    The text is a stranger's: of its statements only CREATE TABLE and CREATE VIEW are executed, and none that selects.
    """
    require_packages("apsw")
    import apsw

    connection = apsw.Connection(":memory:")
    connection.authorizer = lambda action, *_: apsw.SQLITE_DENY if action == apsw.SQLITE_SELECT else apsw.SQLITE_OK
    fault = "" if schema else "neither a database nor CREATE TABLE in the row"
    for statement in split(schema, "sqlite"):
        if _CREATE.match(statement):
            try:
                connection.execute(statement)
            except (apsw.Error, UnicodeError) as error:
                fault = f"SQLite refuses a CREATE statement of the row: {error}"
    connection.authorizer = None
    return connection, fault


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
