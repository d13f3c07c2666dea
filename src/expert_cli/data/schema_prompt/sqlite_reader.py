"""SQLite reads a database: a file, which is not changed, or CREATE TABLE texts.

What is read is bounded by rows and by steps of SQLite's machine, never by time: the same database gives the same prompts.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from expert_cli.data.schema_prompt.schema import Column, Database, ForeignKey, Table, Values
from expert_cli.data.schema_prompt.words import STOP_WORDS, joined, text_words
from expert_cli.errors import InputError

MOST_ROWS = 20_000
"""Of a table, the first ones: values further down are not found."""
MOST_VALUES = 200_000
"""Of a database."""
LONGEST_VALUE = 60
"""In characters."""
MOST_TABLES = 2_000
_MOST_STEPS = 300_000_000
_STEPS_AT_ONCE = 100_000
_CREATE = re.compile(r"\s*CREATE\s+(?:TEMP(?:ORARY)?\s+)?(?:TABLE|VIEW)\b(?!\s+[\"`\[]?sqlite_)", re.IGNORECASE)
_FIRST_CREATE = re.compile(r"\bCREATE\s+(?:TEMP(?:ORARY)?\s+)?(?:TABLE|VIEW)\b", re.IGNORECASE)
_SHOWN_EXAMPLES = 5


def read_file(file: Path) -> Database:
    """Return the tables of an SQLite file and the texts in them. Raises InputError: it is none, or has no table."""
    if not file.is_file():
        raise InputError(f"{file}: no such file", "name an SQLite database")
    uri = f"{file.resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            tables = _tables(connection)
            values = _values(connection, tables)
    except sqlite3.Error as error:
        raise InputError(f"{file}: {error}", "name an SQLite database") from error
    if not tables:
        raise InputError(f"{file}: there is no table", "name an SQLite database")
    return Database(tables, values)


def read_text(text: str) -> Database:
    """Return the tables that a text creates. Raises InputError: there are none, or SQLite refuses a statement."""
    start = _FIRST_CREATE.search(text)
    if start is None:
        raise InputError("no CREATE TABLE stands in the input", "give the tables, or the database")
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.set_authorizer(_only_definitions)
        for statement in _statements(text[start.start() :]):
            try:
                connection.execute(statement)
            except (sqlite3.Error, ValueError, UnicodeError) as error:
                raise InputError(f"SQLite refuses a CREATE statement of the input: {error}", "mend it") from error
        connection.set_authorizer(None)
        return Database(_tables(connection))


def creates_tables(text: str) -> bool:
    """Whether a CREATE statement of a table or view stands in a text."""
    return _FIRST_CREATE.search(text) is not None


def _only_definitions(action: int, *_: object) -> int:
    return sqlite3.SQLITE_DENY if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_ATTACH) else sqlite3.SQLITE_OK


def _statements(text: str) -> Iterator[str]:
    """Yield the CREATE statements of a text; what else stands there is not executed."""
    begun = ""
    for piece in re.split(r"(?<=;)", text):
        begun += piece
        if sqlite3.complete_statement(begun):
            if _CREATE.match(begun):
                yield begun
            begun = ""
    if _CREATE.match(begun):
        yield begun


def _tables(connection: sqlite3.Connection) -> tuple[Table, ...]:
    connection.text_factory = _decoded
    names = connection.execute(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
        "ORDER BY rowid LIMIT ?",
        (MOST_TABLES,),
    )
    tables = (_table(connection, name) for (name,) in names.fetchall())
    return tuple(table for table in tables if table.columns)


def _table(connection: sqlite3.Connection, name: str) -> Table:
    rows = connection.execute("SELECT name, type, pk FROM pragma_table_info(?) ORDER BY cid", (name,)).fetchall()
    key = tuple(column for _, column in sorted((place, column) for column, _, place in rows if place))
    columns = tuple(Column(column, type_) for column, type_, _ in rows)
    return Table(name, columns, key, _foreign_keys(connection, name))


def _foreign_keys(connection: sqlite3.Connection, name: str) -> tuple[ForeignKey, ...]:
    found: dict[int, tuple[str, list[tuple[str, str]]]] = {}
    query = 'SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?) ORDER BY id DESC, seq'
    for number, table, column, other in connection.execute(query, (name,)).fetchall():
        found.setdefault(number, (table, []))[1].append((column, other or ""))
    return tuple(ForeignKey(table, tuple(pairs)) for table, pairs in found.values())


def _values(connection: sqlite3.Connection, tables: tuple[Table, ...]) -> Values:
    values = Values()
    steps = iter(range(_MOST_STEPS // _STEPS_AT_ONCE))
    connection.set_progress_handler(lambda: next(steps, None) is None, _STEPS_AT_ONCE)
    room = MOST_VALUES
    for table in tables:
        for column in table.columns:
            counted = _counted(connection, table.name, column.name, room)
            texts = [value for value, _ in counted if isinstance(value, str)]
            room -= len(texts)
            for text in texts:
                words = text_words(text)
                if words and not (len(words) == 1 and (words[0] in STOP_WORDS or len(words[0]) < 2)):
                    values.by_words.setdefault(joined(words), []).append((table.name, column.name, text))
            first = [literal(value) for value, _ in counted[:_SHOWN_EXAMPLES]]
            values.frequent[table.name, column.name] = tuple(first)
    connection.set_progress_handler(None, 0)
    return values


def _counted(connection: sqlite3.Connection, table: str, column: str, room: int) -> list[tuple[str | float, int]]:
    """Return the values of a column that can be shown, with how often they stand there, the most frequent first."""
    inner = f"SELECT {quoted(column)} AS value FROM {quoted(table)} LIMIT {MOST_ROWS}"  # noqa: S608  quoted
    query = (
        f"SELECT value, count(*) FROM ({inner}) WHERE typeof(value) IN ('text', 'integer', 'real') "  # noqa: S608  quoted
        f"AND length(value) BETWEEN 1 AND {LONGEST_VALUE} GROUP BY value ORDER BY count(*) DESC, min(value) LIMIT {room}"
    )
    try:
        rows = connection.execute(query).fetchall()
    except sqlite3.Error:  # a view that fails, or takes more steps than there are
        return []
    return [(value, count) for value, count in rows if not isinstance(value, str) or _can_be_shown(value)]


def _can_be_shown(text: str) -> bool:
    """Whether a text can stand in a prompt's line and be copied from there."""
    return text.isprintable() and "\ufffd" not in text and "*/" not in text and bool(text.strip())


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def quoted(name: str) -> str:
    """Return a name as SQL writes any name."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: str | float) -> str:
    """Return a value as SQL writes it."""
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
