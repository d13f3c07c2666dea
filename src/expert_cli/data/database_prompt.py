"""Describes a database, or the CREATE TABLE statements of an input, in the prompt of a question.

The words of the question (in training also of the answer) decide which tables, columns and values are shown. Reading is limited
by rows and by steps of SQLite's virtual machine, never by time, so the same database always gives the same prompt.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from expert_cli.errors import InputError
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig
from expert_cli.utils.files import stamp

MOST_ROWS = 20_000  # read from the beginning of each table; values in later rows are not found
MOST_STEPS = 300_000_000  # steps of SQLite's virtual machine to read the values of a database
CREATE = re.compile(r"\bCREATE\s+(?:TEMP(?:ORARY)?\s+)?(?:TABLE|VIEW)\b(?!\s+[\"`\[]?sqlite_)", re.IGNORECASE)
_LEADING = re.compile(r"\A(?:\s|--[^\n]*|/\*.*?\*/)+", re.DOTALL)  # white space and comments
_DENIED = dict.fromkeys((sqlite3.SQLITE_SELECT, sqlite3.SQLITE_ATTACH), sqlite3.SQLITE_DENY)  # in a text
_COLUMNS = r"""SELECT t.name, c.name, type, pk FROM (
  SELECT rowid AS place, name FROM sqlite_master
  WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY place LIMIT 2000
) AS t, pragma_table_info(t.name) AS c ORDER BY place, cid"""
_FOREIGN_KEYS = """SELECT t.name, id, k."table", "from",
  coalesce("to", (SELECT name FROM pragma_table_info(k."table") WHERE pk = seq + 1), '')
FROM sqlite_master AS t, pragma_foreign_key_list(t.name) AS k WHERE type = 'table' ORDER BY t.rowid, id DESC, seq"""
_VALUES = """SELECT value FROM (SELECT {column} AS value FROM {table} LIMIT {rows})
WHERE typeof(value) IN ('text', 'integer', 'real') AND length(value) BETWEEN 1 AND 60
GROUP BY value ORDER BY count(*) DESC, min(value) LIMIT {most}"""
_NOT_SHOWN = re.compile(r"\ufffd|\*/|^ *$")  # invalid UTF-8, the end of a comment, blanks only
_PLURAL = re.compile("(?<=...ss)es$|(?<=...[cs]h)es$|(?<=...x)es$|(?<=...)(?<!s)s$")
_STOP = """a about above after all also am an and any are as at be been before being below between both but by can did do does
    each else every find for from get give had has have having he her him his how i if in into is it its itself least less
    list many me more most much my no nor not number of on one only or order other our out over per please return same she
    show shown so some tell than that the their them then there these they this those through to together two under up
    us use used uses using was we were what when where which while who whom whose why will with you your"""
_STOP_WORDS = frozenset(_STOP.split())  # words that alone name no table, column or value
_NAME_OR_TEXT = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|[^\W\d]\w*")
HEADING = "Tables:"
_SHORT_TYPES = {  # SQLite recognizes types by parts of their names
    "int": "int",
    **dict.fromkeys(("char", "clob", "text", "string"), ""),
    **{name: name for name in ("bool", "date", "time", "blob")},
    **dict.fromkeys(("real", "floa", "doub"), "real"),
}


@dataclass(frozen=True)
class Table:
    """A table or view: its columns with their declared types, and its references.

    foreign_keys: each referenced table, with its columns by this table's ("": not named, and it has no primary key). joined: by
    a foreign key in either direction. values: the values of each column as SQL literals, the most frequent first.
    """

    name: str
    columns: dict[str, str] = field(default_factory=dict)
    primary_key: list[str] = field(default_factory=list)
    foreign_keys: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    joined: set[str] = field(default_factory=set)
    values: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Database:
    """Tables by name, in order. places: the (table, column, text) of each text in them, by the stems of its words."""

    tables: dict[str, Table]
    places: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)

    def matches(self, question: str) -> dict[tuple[str, str], list[str]]:
        """Return the values that a question contains, by (table, column), the longest first; none inside a longer one."""
        words = text_words(question)
        found: dict[tuple[str, str], set[tuple[int, bool, str]]] = defaultdict(set)
        taken: set[int] = set()
        for count in range(min(8, len(words)), 0, -1):  # number of words
            hits: set[int] = set()
            for at in range(len(words) - count + 1):
                span = set(range(at, at + count))
                texts = self.places.get(" ".join(map(stem, words[at : at + count])))
                # "Ande" does not occur in a question with "and", though their stems are equal.
                if texts and (count > 1 or words[at] not in _STOP_WORDS):
                    hits |= span
                    for table, column, text in [] if span <= taken else texts:
                        found[table, column].add((-count, text not in question, text))
            taken |= hits
        return {place: [literal(text) for *_, text in sorted(texts)] for place, texts in found.items()}


def read_file(file: Path) -> Database:
    """Return the tables of an SQLite file with values, cached until the file changes. Raises InputError if it has none."""
    if not file.is_file():
        raise InputError(f"{file}: no such file", "name an SQLite database")
    return _read_file(file, *stamp(file))


@lru_cache(maxsize=256)
def _read_file(file: Path, *_stamp: int) -> Database:
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            database = Database(_tables(connection))
            _add_values(connection, database)
    except sqlite3.Error as error:
        raise InputError(f"{file}: {error}", "name an SQLite database") from error
    if not database.tables:
        raise InputError(f"{file}: it has no table", "name an SQLite database")
    return database


@lru_cache(maxsize=256)
def read_text(text: str) -> Database:
    """Return the tables that a text creates. Raises InputError if it creates none, or SQLite refuses a statement."""
    start = CREATE.search(text)
    if start is None:
        raise InputError("the input has no CREATE TABLE", "give the tables, or the database")
    try:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.set_authorizer(lambda action, *_: _DENIED.get(action, sqlite3.SQLITE_OK))
            statement = ""
            for piece in re.split(r"(?<=;)", text[start.start() :]):
                statement += piece
                if sqlite3.complete_statement(statement) or not piece.endswith(";"):
                    connection.execute(statement if CREATE.match(_LEADING.sub("", statement)) else "")
                    statement = ""
            connection.set_authorizer(None)
            return Database(_tables(connection))
    except (sqlite3.Error, ValueError) as error:  # ValueError: a NUL, or half of a surrogate pair
        raise InputError(f"SQLite refuses a CREATE statement of the input: {error}", "mend it") from error


def _tables(connection: sqlite3.Connection) -> dict[str, Table]:
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    tables: dict[str, Table] = {}
    rows = connection.execute(_COLUMNS).fetchall()
    for name, column, type_, _ in rows:
        tables.setdefault(name, Table(name)).columns[column] = type_
    for name, column, _, place in sorted(rows, key=itemgetter(3)):
        tables[name].primary_key.extend([column] if place else [])
    by_name = {name.casefold(): table for name, table in tables.items()}
    for (name, _, referred), pairs in groupby(connection.execute(_FOREIGN_KEYS), itemgetter(0, 1, 2)):
        table, other = tables.get(name), by_name.get(referred.casefold())
        if table and other:
            declared = {column.casefold(): column for column in other.columns}
            columns = {own: declared.get(theirs.casefold(), theirs) for *_, own, theirs in pairs}
            table.foreign_keys.append((other.name, columns))
            table.joined.add(other.name)
            other.joined.add(name)
    return tables


def _add_values(connection: sqlite3.Connection, database: Database) -> None:
    steps = iter(range(MOST_STEPS // 100_000))
    connection.set_progress_handler(lambda: next(steps, None) is None, 100_000)
    room = 200_000
    for table, column in [(one, column) for one in database.tables.values() for column in one.columns]:
        query = _VALUES.format(column=quoted(column), table=quoted(table.name), rows=MOST_ROWS, most=room)
        try:
            values = [value for (value,) in connection.execute(query)]
        except sqlite3.Error:  # a view that fails, or exceeds the limit of steps
            continue
        values = [one for one in values if str(one).isprintable() and not _NOT_SHOWN.search(str(one))]
        table.values[column] = [literal(value) for value in values[:5]]
        texts = [value for value in values if isinstance(value, str)]
        room -= len(texts)
        for text in texts:
            words = text_words(text)
            if len(words) > 1 or (words and words[0] not in _STOP_WORDS and len(words[0]) > 1):
                database.places.setdefault(" ".join(map(stem, words)), []).append((table.name, column, text))


def quoted(name: str) -> str:
    """Return a name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: str | float) -> str:
    """Return a value as an SQL literal."""
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


@lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    """Return a word without its ending, so that "flies" and "fly", "producing" and "produce" are equal."""
    word = _PLURAL.sub("", re.sub("(?<=...)ies$", "y", word.casefold()))
    return re.sub("(?<=...)y$", "i", re.sub("(?<=...)(?:ing|ed|er|or|e)$", "", word))


@lru_cache(maxsize=100_000)
def name_words(name: str) -> list[str]:
    """Return the stems of a name's words: equal for "Home_Town", "homeTown" and "home town"."""
    return [stem(part) for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_]+", name)]


def text_words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return [word.casefold() for word in re.findall(r"[^\W_]+", text)]


_STOPPED = frozenset(map(stem, _STOP_WORDS))


# The description of a database for a question -------------------------------------------------------------------------


def schema_prompt(settings: SchemaPromptConfig, question: str, input_: str, file: Path | None, answer: str = "") -> str:
    """Return a database's description for a question. file None: tables of the input. answer: its tables are shown, too."""
    database = read_text(input_) if file is None else read_file(file)
    stems = frozenset(map(stem, text_words(question)))
    matches = database.matches(question)
    fits = {
        name: {column: _name_fit(column, stems) + ((name, column) in matches) for column in table.columns}
        for name, table in database.tables.items()
    }
    words = _NAME_OR_TEXT.findall(answer) if settings.gold_in_training else ()
    answered = {word.strip('"`[]').casefold() for word in words if word[0] != "'"}
    chosen = _best_tables(database, fits, stems, settings.tables or len(fits))
    chosen += [name for name in fits if name.casefold() in answered and name not in chosen]
    keys = {name: set(database.tables[name].primary_key) for name in chosen}
    for name in chosen:
        for other, pairs in database.tables[name].foreign_keys:
            if other in keys:
                keys[name] |= pairs.keys()
                keys[other] |= set(pairs.values()) - {""}
    shown = []
    for table in map(database.tables.__getitem__, chosen):
        fit = {
            name: (name in keys[table.name], own + 0.3 * ("name" in name_words(name)))
            for name, own in fits[table.name].items()
        }
        most = max(settings.columns or len(fit), len(keys[table.name]))
        best = set(sorted(fit, key=fit.__getitem__, reverse=True)[:most])
        best |= {name for name in fit if {name.casefold(), table.name.casefold()} <= answered}
        values = {}
        for name in best:
            matched = matches.get((table.name, name), [])[: settings.values]
            frequent = [one for one in table.values.get(name, [])[: settings.examples] if one not in matched]
            values[name] = matched + frequent[: max(0, settings.examples - len(matched))]
        columns = {name: type_ if settings.types else "" for name, type_ in table.columns.items() if name in best}
        foreign_keys = [key for key in table.foreign_keys if settings.keys and key[0] in keys]
        primary_key = table.primary_key if settings.keys else []
        shown.append(replace(table, columns=columns, primary_key=primary_key, foreign_keys=foreign_keys, values=values))
    return (_joins if settings.style == "joins" else _compact)(shown)


@lru_cache(maxsize=10_000)
def _name_fit(name: str, stems: frozenset[str]) -> float:
    """Return how well a name fits a question: 1 if all its words occur, less for abbreviations and parts of words."""
    fits = weights = 0.0
    for word in name_words(name):
        alike = [own for own in stems - _STOPPED if min(len(own), len(word)) >= 3 and (own in word or word in own)]
        starts = any(own.startswith(word) or word.startswith(own) for own in alike)
        part = any(min(len(own), len(word)) >= 4 for own in alike)
        weight = 0.2 if word in _STOPPED else 1.0
        fits += weight * (1.0 if word in stems else 0.6 if starts else 0.5 if part else 0.0)
        weights += weight
    return fits / (weights or 1.0)


def _best_tables(database: Database, fits: dict[str, dict[str, float]], stems: frozenset[str], most: int) -> list[str]:
    """Return at most `most` tables, the best first, each after the tables that join it to those before, if these fit."""
    table_fits = {}
    for name, of_columns in fits.items():
        first, second, third = [*sorted(of_columns.values(), reverse=True), 0.0, 0.0][:3]
        table_fits[name] = 1.5 * _name_fit(name, stems) + (first + 0.5 * second + 0.25 * third)
    chosen: list[str] = []
    while len(chosen) < min(most, len(fits)):
        rest = [name for name in fits if name not in chosen]
        best = max(rest, key=lambda name: table_fits[name] + 0.4 * len(database.tables[name].joined & {*chosen}))
        paths: dict[str, list[str]] = {name: [] for name in chosen}
        queue = [*chosen]
        for name in queue:  # by the fewest joins from the chosen ones
            for other in sorted(database.tables[name].joined - paths.keys()):
                paths[other] = [*paths[name], other]
                queue.append(other)
        path = paths.get(best, [best])
        chosen += path if len(chosen) + len(path) <= most else [best]
    return chosen


def _compact(tables: list[Table]) -> str:
    """Return one line per table: head(head_id int key, name, born_state = 'California'). A foreign key: `> department`."""

    def column(table: Table, name: str) -> list[str]:
        key = "key" if name in table.primary_key else ""
        for other, theirs in [(other, pairs[name]) for other, pairs in table.foreign_keys if name in pairs][:1]:
            same = theirs.casefold() in (name.casefold(), "")
            key += f" > {written(other)}" + ("" if same else f".{written(theirs)}")
        values = f"= {' | '.join(table.values[name])}" if table.values[name] else ""
        return [written(name), _short_type(table.columns[name]), key.strip(), values]

    return "\n".join(_lines(tables, written, column))


def _joins(tables: list[Table]) -> str:
    """Return tables, joins and values, with names as in queries, in lower case where SQL ignores case:

    Joins:
    management.head_id = head.head_id
    Values:
    head.born_state = 'California'
    """
    lines = _lines(tables, _small, lambda table, name: [_small(name), _short_type(table.columns[name])])
    joins, values = [], []
    for table in tables:
        for other, pairs in table.foreign_keys:
            joins += [(table.name, own, f"{_small(other)}.{_small(theirs)}") for own, theirs in pairs.items() if theirs]
        values += [(table.name, name, value) for name in table.columns for value in table.values[name]]
    for heading, found in (("Joins:", joins), ("Values:", values)):
        below = [f"{_small(table)}.{_small(column)} = {other}" for table, column, other in found]
        lines += [heading, *dict.fromkeys(below)] if below else []
    return "\n".join(lines)


def _lines(tables: list[Table], write: Callable[[str], str], column: Callable[[Table, str], list[str]]) -> list[str]:
    columns = [", ".join(" ".join(filter(None, column(table, name))) for name in table.columns) for table in tables]
    return [HEADING, *(f"{write(table.name)}({of_table})" for table, of_table in zip(tables, columns, strict=True))]


def _short_type(declared: str) -> str:
    """Return a declared type as one short word, "" for text."""
    found = (short for part, short in _SHORT_TYPES.items() if part in declared.casefold())
    return next(found, "num" if declared else "")


def _small(name: str) -> str:
    """Return a name as queries write it, in lower case unless it needs quotes."""
    return name.lower() if written(name) == name else written(name)


@lru_cache(maxsize=100_000)
def written(name: str) -> str:
    """Return a name as queries write it, quoted if necessary, as for `order` and `Home Town`."""
    query = f"SELECT {name} FROM (SELECT 'a name' AS {quoted(name)})"  # noqa: S608  a word
    with closing(sqlite3.connect(":memory:")) as connection, suppress(sqlite3.Error):
        if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) and connection.execute(query).fetchall() == [("a name",)]:
            return name
    return quoted(name)
