"""Corrects a query that its database does not compile, because it names what is not there.

It is cut where its FROM clause ends, and goes on with a table that has the column; or else at the name, with another one.

    SELECT name FROM sales WHERE price > 3     no such column: name
    SELECT name FROM sales JOIN shops ON ...   kept up to "sales", " JOIN shops ON" comes next
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from expert_cli.data.database_prompt import quoted
from expert_cli.inference.sql_grammar import NAME, PLAIN, Rest

Fault = Callable[[str], str]
_FAULTS = {
    "column": re.compile(r'no such column: (.+)|column "?([^ "]+)"? does not exist'),
    "table": re.compile(r'no such table: (.+)|relation "(.+)" does not exist'),
    "unjoined": re.compile(r'(?:missing|invalid reference to) FROM-clause entry for table "(.+)"'),
    "ambiguous": re.compile(r'ambiguous column name: (.+)|column reference "(.+)" is ambiguous'),
}
"""What SQLite and PostgreSQL say of a name."""
_TWICE = re.compile(rf"\b(?:from|join)\s+({NAME})\s+(?=join\b|on\b).*?\bjoin\s+(\1)\s+on\b", re.IGNORECASE | re.DOTALL)
"""A table that is joined with itself, without another name for one of both."""
_TEXT, _CLOSED = re.compile(r"'(?:[^']|'')*'?"), re.compile(r"\([^()]*\)")
_FROM, _SET = re.compile(r"\bfrom\b"), re.compile(r"\b(?:union|intersect|except)\b")
_BEHIND_FROM = re.compile(r"\s*(?:\b(?:where|group|order|having|limit)\b|;|\Z)")


def corrected(query: str, fault: Fault, tables: Mapping[str, Collection[str]]) -> Rest | None:
    """Return how a query goes on where it names what is not there; None if that is not its fault."""
    kind, told = _misnamed(fault(query))
    used = re.search(rf"(?i)\b{re.escape(told)}\.{NAME}", query) if kind == "unjoined" else None
    name = used[0] if used else told
    places = _places(name, query, is_table=kind == "table") if kind else []
    wrong = (one for one in places if kind == "table" or _misnamed(fault(_alone(query, one, places))) == (kind, told))
    start, stop = next(wrong, (0, 0))
    if not stop:
        return None
    if twice := _TWICE.search(query) if kind == "ambiguous" else None:
        others = [_spelled(table) for table in tables if not _has(twice[0], table)]
        return _rest(query[: twice.start(2)], others)
    if clause := _from(query, start) if kind in ("column", "unjoined") else None:
        joined, (owner, _, column) = query[slice(*clause)], name.lower().rpartition(".")
        having = (table for table, columns in tables.items() if column in map(str.lower, columns))
        others = [_spelled(one) for one in having if owner in ("", one.lower()) and not _has(joined, one)]
        if others:
            word = "AS" if _has(joined, "as") else "ON"
            return _rest(query[: clause[1]], [f" JOIN {table} {word}" for table in others])
    names = [*map(_spelled, tables)]
    if kind != "table":
        columns = sorted({_spelled(column) for of_table in tables.values() for column in of_table})
        known = sorted({*re.findall(rf"(?i)\b(?:from|join|as)\s+({NAME})", query)})
        plain = filter(PLAIN.fullmatch, columns)  # SQLite takes others that are not there for texts
        names = [*plain, *(f"{table}.{column}" for table in known for column in columns)]
    faults = ((one, _misnamed(fault(query[:start] + one + query[stop:]))[1]) for one in names)
    fits = [one for one, other in faults if other not in (one.replace('"', ""), one.partition(".")[0])]
    return _rest(query[:start], fits)


def _rest(kept: str, ways: Sequence[str]) -> Rest | None:
    return Rest(kept, tuple(ways), _shape(kept).count("(")) if ways else None


def _misnamed(fault: str) -> tuple[str, str]:
    """Return what is wrong with a name, and the name without quotes; two empty texts for another fault."""
    found = ((kind, pattern.search(fault)) for kind, pattern in _FAULTS.items())
    return next(((kind, match[match.lastindex or 0]) for kind, match in found if match), ("", ""))


def _places(name: str, query: str, *, is_table: bool) -> list[tuple[int, int]]:
    """Return where a query names a column, or a table in FROM; in quotes or not."""
    parts = "[.]".join(rf'["`\[]?{re.escape(part)}["`\]]?' for part in name.split("."))
    behind = "(?<=from |join )" if is_table else r"(?<!from )(?<!join )(?<![\w.])"
    return [found.span() for found in re.finditer(rf"(?i){behind}{parts}(?![\w.])", query)]


def _has(text: str, name: str) -> bool:
    return re.search(rf"(?i)\b{re.escape(name)}\b", text) is not None


def _alone(query: str, place: tuple[int, int], places: Sequence[tuple[int, int]]) -> str:
    """Return a query with a number at all places but one."""
    for start, stop in {*places} - {place}:
        query = f"{query[:start]}{'1':<{stop - start}}{query[stop:]}"
    return query


def _from(query: str, place: int) -> tuple[int, int] | None:
    """Return where the FROM clause stands that the name at a place refers to; None if it stands in the clause itself."""
    opened = [0, *(bracket.end() for bracket in re.finditer(r"\(", _shape(query[:place])))]
    for begin in reversed(opened):
        shape = _shape(query[begin:]).partition(")")[0]
        sets = [0, *(found.start() for found in _SET.finditer(shape)), len(shape)]
        first = max(at for at in sets if begin + at <= place)
        last = min(at for at in sets if at > first)
        clause = _FROM.search(shape, first, last)
        end = _BEHIND_FROM.search(shape[:last], clause.end()) if clause else None
        if clause and end:
            found = begin + clause.end(), begin + end.start()
            return None if found[0] < place < found[1] else found
    return None


def _shape(query: str) -> str:
    """Return a query in small letters, of the same length, without what stands in quotes or closed brackets."""
    shape, count = _TEXT.sub(lambda found: "?" * len(found[0]), query.lower()), 1
    while count:
        shape, count = _CLOSED.subn(lambda found: "?" * len(found[0]), shape)
    return shape


def _spelled(name: str) -> str:
    return name if PLAIN.fullmatch(name) else quoted(name)
