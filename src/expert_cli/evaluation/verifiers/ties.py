"""Which orders of the expected rows an ORDER BY leaves open: rows that are equal in all sort keys may change places.

The engine finds them. The query is run twice more, without its LIMIT, and with all columns of the result as further keys:
once upwards, once downwards. Wherever both runs have passed the same rows, a group of ties ends: within one, the least
rows are not the greatest. So keys need not be among the columns, and no query is rewritten but at its end.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from expert_cli.evaluation.verifiers.query_text import Dialect, Token, tokens
from expert_cli.evaluation.verifiers.rows import Row, Ties, flatten, rounded, within
from expert_cli.evaluation.verifiers.sandbox.limits import Stopped

_CUTS = frozenset(("LIMIT", "OFFSET", "FETCH", "SKIP", "FOR"))
_SKIPS = re.compile(
    r"LIMIT (?P<comma>\d+) , \d+|(?:LIMIT \w+ )?(?:OFFSET|SKIP) (?P<word>\d+)(?: ROWS?)?(?: (?:LIMIT \w+|FETCH .*))?"
)


class _Order(NamedTuple):
    """A query up to its last sort key, the columns as sort keys, and how many rows are passed over."""

    head: str
    columns: Sequence[str]
    skipped: int


def find_ties(
    query: str, dialect: Dialect, rows: Sequence[Row], run: Callable[[str], list[Row]], *, ordered_lists: bool = True
) -> Ties | None:
    """Return the ties of a query that orders its rows; None where they cannot be known, and only its own order is right.

    rows: what the query returns.
    """
    order = _read(query, dialect, len(rows[0])) if rows else None
    if order is None:
        return None
    first, last = ("", "") if dialect == "cypher" else (" NULLS FIRST", " NULLS LAST")
    try:
        up, down = (
            run(f"{order.head}, {', '.join(f'{column} {way}' for column in order.columns)}")
            for way in (f"ASC{first}", f"DESC{last}")
        )
    except Stopped:
        return None
    groups = _groups(up, down, ordered_lists)
    ties = Ties(groups, order.skipped) if groups else None
    return ties if ties and within([flatten(row, ordered_lists) for row in rows], ties, ordered_lists) else None


def _read(query: str, dialect: Dialect, width: int) -> _Order | None:
    outer = [token for token in tokens(query, dialect) if token.depth == 0]
    words = ["" if token.quoted else token.text.upper() for token in outer]
    keys = next(
        (place for place in reversed(range(1, len(words))) if words[place - 1 : place + 1] == ["ORDER", "BY"]), 0
    )
    cut = next((place for place in range(keys + 1, len(words)) if words[place] in _CUTS), len(words))
    if not keys or cut == keys + 1:
        return None
    skipped = _skipped([token.text.upper() for token in outer[cut:]])
    columns = _returned(query, outer[: keys - 1], words) if dialect == "cypher" else [str(n + 1) for n in range(width)]
    if skipped is None or len(columns) != width:
        return None
    return _Order(query[: outer[cut - 1].end], columns, skipped)


def _skipped(cut: Sequence[str]) -> int | None:
    """Return how many rows come before those asked for; None where that is not plainly written."""
    if not {"OFFSET", "SKIP", ","} & set(cut):
        return 0
    match = _SKIPS.fullmatch(" ".join(cut))
    return int(match["comma"] or match["word"]) if match else None


def _returned(query: str, outer: Sequence[Token], words: Sequence[str]) -> list[str]:
    """Return the names or expressions of the columns after the last RETURN of Cypher; none where UNION joins several."""
    if "UNION" in words or "RETURN" not in words[: len(outer)]:
        return []
    place = max(place for place in range(len(outer)) if words[place] == "RETURN") + 1
    return list(_columns(query, outer[place + (words[place] == "DISTINCT") :]))


def _columns(query: str, outer: Sequence[Token]) -> Iterator[str]:
    start = 0
    for place in range(len(outer) + 1):
        if place == len(outer) or outer[place].text == ",":
            item = outer[start:place]
            named = [number for number, token in enumerate(item) if token.text.upper() == "AS"]
            item = item[named[-1] + 1 :] if named else item
            if item:
                yield query[item[0].start : item[-1].end]
            start = place + 1


def _groups(up: Sequence[Row], down: Sequence[Row], ordered_lists: bool) -> tuple[tuple[Row, ...], ...]:
    """Cut the rows where both runs have passed the same ones; nothing where they never agree."""
    ahead: dict[object, int] = defaultdict(int)
    groups: list[tuple[Row, ...]] = []
    start = unequal = 0
    for place, pair in enumerate(zip(up, down, strict=False), start=1):
        for row, step in zip(pair, (1, -1), strict=True):
            key = _rounded(row, ordered_lists)
            before = ahead[key]
            ahead[key] = before + step
            unequal += (before + step != 0) - (before != 0)
        if not unequal:
            groups.append(tuple(up[start:place]))
            start = place
    return tuple(groups) if start == len(up) == len(down) else ()


def _rounded(row: Row, ordered_lists: bool) -> object:
    shape, numbers = flatten(row, ordered_lists)
    return shape, tuple(map(rounded, numbers))
