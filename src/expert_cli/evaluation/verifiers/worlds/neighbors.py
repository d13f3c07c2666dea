"""Queries that differ from an expected one in one word, sign or number: contents that tell these apart tell others, too.

After Zhong, Yu and Klein, 2020 (arXiv:2010.02840), who keep those contents of a database which do. The changes are made to the
text: one that does not parse is told apart by any content.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MOST = 40
_QUOTED = re.compile(r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_CHANGES: Sequence[tuple[re.Pattern[str], Sequence[str]]] = tuple(
    (re.compile(pattern, re.IGNORECASE), others)
    for pattern, others in (
        (r">=", (">",)),
        (r"<=", ("<",)),
        (r"(?<![<>=-])>(?!=)", (">=",)),
        (r"<(?![<>=-])", ("<=",)),
        (r"(?<![<>!=])=(?![=~])", (">=", "<=")),
        (r"<>|!=", ("=",)),
        (r"\bAND\b", ("OR",)),
        (r"\bOR\b", ("AND",)),
        (r"\bDISTINCT\b", ("",)),
        (r"\b(SELECT|RETURN)\b(?!\s+DISTINCT)", (r"\1 DISTINCT",)),
        (r"\b(COUNT|SUM|AVG)\s*\(\s*(?!DISTINCT|\*)", (r"\1(DISTINCT ",)),
        (r"\bMAX\s*\(", ("MIN(", "AVG(")),
        (r"\bMIN\s*\(", ("MAX(", "AVG(")),
        (r"\bSUM\s*\(", ("AVG(", "MAX(")),
        (r"\bAVG\s*\(", ("SUM(", "MIN(", "MAX(")),
        (r"\bDESC\b", ("ASC",)),
        (r"\bASC\b", ("DESC",)),
        (r"\bORDER BY\b.*?(?=\bLIMIT\b|\)|$)", ("",)),
        (r"(?<!LEFT )\bJOIN\b", ("LEFT JOIN",)),
        (r"\bLEFT JOIN\b", ("JOIN",)),
        (r"(?<!OPTIONAL )(?<!^)\bMATCH\b", ("OPTIONAL MATCH",)),
        (r"\bOPTIONAL MATCH\b", ("MATCH",)),
        (r"\bNOT\b", ("",)),
        (r"\bIS NULL\b", ("IS NOT NULL",)),
        (r"\bINTERSECT\b|\bEXCEPT\b", ("UNION", "INTERSECT")),
        (r"\bUNION\b", ("UNION ALL", "INTERSECT")),
        (r"\bGROUP BY\b.*?(?=\bORDER\b|\bHAVING\b|\bLIMIT\b|\)|$)", ("",)),
        (r"\bHAVING\b.*?(?=\bORDER\b|\bLIMIT\b|\bINTERSECT\b|\bEXCEPT\b|\bUNION\b|$)", ("",)),
        (r"\bWHERE\b.*?(?:\bAND\b|\bOR\b)", ("WHERE",)),
        (r"\b(?:AND|OR)\b(?:(?!\bAND\b|\bOR\b).)*?(?=\bGROUP\b|\bORDER\b|\bLIMIT\b|\bRETURN\b|\bWITH\b|$)", ("",)),
    )
)
_LIMIT = re.compile(
    r"(?<![\w.)])(?P<column>[A-Za-z_][\w.]*)\s*(?P<sign>[<>])=?\s*(?P<limit>-?\d+(?:\.\d+)?(?![\w.])|'(?:[^'\\]|'')*')"
)
BEYOND = 999
"""How far from a condition's one limit another is set. `values.py` draws some values that lie farther."""
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")


def neighbors(query: str) -> list[str]:
    """Return up to `MOST` changed queries, spread over the kinds of change."""
    found = list(dict.fromkeys(one for one in _changed(query) if one != query))
    return found if len(found) <= MOST else [found[place * len(found) // MOST] for place in range(MOST)]


def _changed(query: str) -> Iterator[str]:
    code = _QUOTED.sub(lambda text: " " * len(text[0]), query)
    for pattern, others in _CHANGES:
        for match in pattern.finditer(code):
            for other in others:
                yield f"{query[: match.start()]}{match.expand(other)}{query[match.end() :]}"
    for match in _LIMIT.finditer(query):
        if code[match.start()] == query[match.start()]:
            other = f"{match['column']} {_other_limit(match['limit'], above=match['sign'] == '>')}"
            yield f"{query[: match.start()]}({match[0]} AND {other}){query[match.end() :]}"
    for match in _NUMBER.finditer(code):
        for step in (-1, 1):
            number = float(match[0]) + step
            yield f"{query[: match.start()]}{number:.15g}{query[match.end() :]}"
    for match in _QUOTED.finditer(query):
        yield f"{query[: match.end() - 2]}{query[match.end() - 1 :]}"


def _other_limit(limit: str, *, above: bool) -> str:
    """Return a condition that few values break which are on the right side of a limit."""
    if not limit.startswith("'"):
        number = float(limit)
        return f"< {10 * abs(number) + BEYOND:.15g}" if above else f"> {number - BEYOND:.15g}"
    lowest, highest = ("1900", "2100") if limit[1].isdigit() else ("!", "~")
    return f"< '{highest}'" if above else f"> '{lowest}'"
