"""Corrects a query that its database does not compile, because it names a missing table or column.

The query is cut at the end of its FROM clause and continued with a JOIN of a table that has the column, or else cut at the name
and continued with another name. A column that two tables have gets the name of one of them and a dot before it.

    SELECT name FROM sales WHERE price > 3     no such column: name
    SELECT name FROM sales JOIN shops ON ...   kept up to "sales", continued with " JOIN shops ON"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain

from expert_cli.data.database_prompt import quoted
from expert_cli.inference.sql_grammar import NAME, PLAIN, Rest, unquoted

Fault = Callable[[str], str]
_FAULTS = {
    "column": re.compile(r'no such column: (.+)|column "?([^ "]+)"? does not exist'),
    "table": re.compile(r'no such table: (.+)|relation "(.+)" does not exist'),
    "unjoined": re.compile(r'(?:missing|invalid reference to) FROM-clause entry for table "(.+)"'),
    "ambiguous": re.compile(r'ambiguous column name: (.+)|column reference "(.+)" is ambiguous'),
}
"""The errors of SQLite and PostgreSQL about a name, by kind."""
_TWICE = re.compile(rf"\b(?:from|join)\s+({NAME})\s+(?=join\b|on\b).*?\bjoin\s+(\1)\s+on\b", re.IGNORECASE | re.DOTALL)
"""Matches a table that is joined with itself without an alias."""
_WORDS = "on|join|from|where|group|order|having|limit|left|right|full|inner|cross|natural|using|union|intersect|except"
_READ = re.compile(rf"(?:\b(?:from|join)\s|,)\s*({NAME})(?:\s+as)?(?:\s+(?!(?:{_WORDS})\b)({NAME}))?", re.IGNORECASE)
"""Matches a table and its alias in the query."""
_QUOTED, _CLOSED = re.compile(r"'[^']*'?|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]"), re.compile(r"\([^()]*\)")
_FROM, _SET = re.compile(r"\bfrom\b"), re.compile(r"\b(?:union|intersect|except)\b")
_JOIN = re.compile(r"\s(?:(?:left|right|full|inner|outer|cross|natural)\s+)*join\b")
_BEHIND_FROM = re.compile(r"\s*(?:\b(?:where|group|order|having|limit)\b|;|\Z)")


def corrected(query: str, fault: Fault, tables: Mapping[str, Collection[str]]) -> Rest | None:
    """Return the corrected continuation of a query with a missing or ambiguous name; None if there is none."""
    kind, told = _misnamed(fault(query))
    used = re.search(rf"(?i)\b{re.escape(told)}\.{NAME}", query) if kind == "unjoined" else None
    name = used[0] if used else told
    places = _places(name, query, is_table=kind == "table") if kind else []
    wrong = (one for one in places if kind == "table" or _misnamed(fault(_alone(query, one, places))) == (kind, told))
    start, stop = next(wrong, (0, 0))
    if not stop:
        return None
    owner, _, column = name.lower().rpartition(".")
    if kind == "ambiguous" and (twice := _TWICE.search(query)):
        return _rest(query[: twice.start(2)], [_spelled(table, fault) for table in tables if not _has(twice[0], table)])
    if kind == "ambiguous":
        known = [one for one, table in _read(query, tables) if not owner and column in map(str.lower, tables[table])]
        return _rest(query[:start], [f"{one}.{query[start:]}" for one in known], is_whole=True)
    if clause := _from(query, start, owner) if kind != "table" else None:
        joined = {table for _, table in _read(query[slice(*clause)], tables)}
        having = (table for table in tables if column in map(str.lower, tables[table]) and table not in joined)
        others = [_spelled(table, fault) for table in having if owner in ("", table.lower())]
        if others:
            word = "AS" if _has(query[slice(*clause)], "as") else "ON"
            return _rest(query[: clause[1]], [f" JOIN {table} {word}" for table in others])
    names = [_spelled(table, fault) for table in tables] if kind == "table" else _columns(query, fault, tables)
    faults = ((one, fault(query[:start] + one + query[stop:])) for one in names)
    named = ((one, _misnamed(found)[1]) for one, found in faults if "syntax error" not in found)
    return _rest(query[:start], [one for one, of in named if of not in (one.replace('"', ""), one.partition(".")[0])])


def _read(query: str, tables: Mapping[str, Collection[str]]) -> list[tuple[str, str]]:
    """Return the tables that a query reads, as pairs of the name in the query (alias) and the table's own name."""
    shown = {table.lower(): table for table in tables}
    found = ((known or table, shown.get(unquoted(table).lower())) for table, known in _READ.findall(query))
    return [(known, table) for known, table in found if table]


def _columns(query: str, fault: Fault, tables: Mapping[str, Collection[str]]) -> list[str]:
    """Return the columns that a query might name, alone and after the names of the tables that it reads."""
    spelled = {table: [_spelled(column, fault) for column in columns] for table, columns in tables.items()}
    alone = filter(PLAIN.fullmatch, chain(*spelled.values()))  # SQLite treats missing quoted names as texts
    return sorted({*alone, *(f"{known}.{one}" for known, table in _read(query, tables) for one in spelled[table])})


def _rest(kept: str, ways: Sequence[str], *, is_whole: bool = False) -> Rest | None:
    return Rest(kept, tuple(ways), 0 if is_whole else _shape(kept).count("(")) if ways else None


def _misnamed(fault: str) -> tuple[str, str]:
    """Return the kind of a fault about a name, and the name without quotes; two empty texts for another fault."""
    found = ((kind, pattern.search(fault)) for kind, pattern in _FAULTS.items())
    return next(((kind, match[match.lastindex or 0]) for kind, match in found if match), ("", ""))


def _places(name: str, query: str, *, is_table: bool) -> list[tuple[int, int]]:
    """Return the places (start, stop) where a query names a column, or a table in FROM, in quotes or not."""
    parts = "[.]".join(rf'["`\[]?{re.escape(part)}["`\]]?' for part in name.split("."))
    behind = r"(?<=from\s|join\s)" if is_table else r"(?<!from\s)(?<!join\s)(?<![\w.\"`\[])"
    return [found.span() for found in re.finditer(rf"(?i){behind}{parts}(?![\w.])", query)]


def _has(text: str, name: str) -> bool:
    return re.search(rf"(?i)\b{re.escape(name)}\b", text) is not None


def _alone(query: str, place: tuple[int, int], places: Sequence[tuple[int, int]]) -> str:
    """Return a query with a number at all places except one."""
    for start, stop in {*places} - {place}:
        query = f"{query[:start]}{'1':<{stop - start}}{query[stop:]}"
    return query


def _from(query: str, place: int, owner: str) -> tuple[int, int] | None:
    """Return start and end of the FROM clause to which the name at a place belongs; None if there is none.

    If a condition in the clause uses the name or its table, the end is before that JOIN, because the table must come first.
    """
    opened = [0, *(bracket.end() for bracket in re.finditer(r"\(", _shape(query[:place])))]
    for begin in reversed(opened):
        shape = _shape(query[begin:]).partition(")")[0]
        sets = [0, *(found.start() for found in _SET.finditer(shape)), len(shape)]
        first = max(at for at in sets if begin + at <= place)
        last = min(at for at in sets if at > first)
        clause = _FROM.search(shape, first, last)
        end = _BEHIND_FROM.search(shape[:last], clause.end()) if clause else None
        if clause and end:
            used = shape.find(f"{owner}.", clause.end(), end.start()) if owner else -1
            inside = used if used >= 0 else place - begin
            if not clause.start() < inside < end.start():
                return begin + clause.start(), begin + end.start()
            join = max((one.start() for one in _JOIN.finditer(shape, clause.end(), inside)), default=0)
            return (begin + clause.start(), begin + join) if owner and join else None
    return None


def _shape(query: str) -> str:
    """Return a query in lower case, with "?" for all that is in quotes or closed brackets; its length does not change."""
    shape = _QUOTED.sub(lambda found: "?" * len(found[0]), query).lower()  # lower() may lengthen what is quoted
    count = 1
    while count:
        shape, count = _CLOSED.subn(lambda found: "?" * len(found[0]), shape)
    return shape


def _spelled(name: str, fault: Fault) -> str:
    """Return a name, in quotes if it is not a plain word or is a keyword of SQL."""
    is_word = PLAIN.fullmatch(name) and "syntax error" not in fault(f"SELECT 1 FROM {name}")  # noqa: S608  it is not run
    return name if is_word else quoted(name)
