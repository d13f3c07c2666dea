"""Whether an answer's rows are the expected ones, by the rule `strict` or `spider`.

strict: rows are compared as a multiset, or in order where the expected query orders them; rows that it leaves tied may change
places. Columns count in their order, their names do not. NULL equals NULL. Two whole numbers are equal if they are the same,
other numbers if they are within 1e-6 of each other, relatively. true is not 1.

spider: as the judge of Spider does. The columns may come in any one order, cells are equal or not; a multiset, or one order
where ORDER BY stands anywhere in the expected query. No rows equal no rows of any width.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import chain, permutations, product
from typing import Any, Literal

from expert_cli.evaluation.verifiers.case import Grade
from expert_cli.evaluation.verifiers.query_text import Dialect, outer, words
from expert_cli.evaluation.verifiers.sandbox.child_process import Stopped
from expert_cli.utils.text import plural

Rule = Literal["strict", "spider"]
TOLERANCE, DIGITS = 1e-6, 9
"""Of floats; sums in another order differ beyond these digits."""
MAX_ORDER_LOOKS = 1_000_000
"""So many rows are looked at to find an order of columns; where that takes more, columns of the same values stay in theirs."""

Row = tuple[Any, ...]
Flat = tuple[tuple[Any, ...], tuple[int | float, ...]]
"""A row taken apart: everything but the numbers, to compare exactly, and the numbers."""


@dataclass(frozen=True)
class Ties:
    """All rows of an ordered query without its LIMIT, by equal sort keys; `skipped` come before those asked for."""

    groups: Sequence[Sequence[Row]]
    skipped: int = 0


@dataclass(frozen=True)
class Result:
    """What an accepted query returned. ordered: its rows; ordered_lists: the items of the lists in it; ties: None for none."""

    rows: Sequence[Row]
    ordered: bool = False
    ordered_lists: bool = True
    ties: Ties | None = None


def wrong(rows: Sequence[Row], expected: Result) -> Grade:
    """Return the verdict on an answer's rows that are not the expected ones: how they differ."""
    if not rows:
        return Grade("empty", f"no rows, {plural(len(expected.rows), 'row')} expected")
    for of, one, other in (("row", rows, expected.rows), ("column", rows[0], (expected.rows or rows)[0])):
        if len(one) != len(other):
            return Grade("wrong", f"{plural(len(one), of)}, {plural(len(other), of)} expected")
    known = {*map(repr, expected.rows)}
    unknown = next(
        (f"row {place}, {row}, is not expected" for place, row in enumerate(rows, 1) if repr(row) not in known), ""
    )
    return Grade("wrong", unknown or "the expected rows, in another order or not each as often")


def is_right(rule: Rule, rows: Sequence[Row], expected: Result) -> bool:
    """Whether `rows` are the expected ones by a rule; told at once where they are those very rows, as most right ones are."""
    return repr(rows) == repr(expected.rows) or (same if rule == "strict" else same_by_spider)(rows, expected)


def same(rows: Sequence[Row], expected: Result) -> bool:
    """Whether `rows` are the expected ones by the rule `strict`."""
    if len(rows) != len(expected.rows):
        return False
    one, other = (_flattened(side, expected.ordered_lists) for side in (rows, expected.rows))
    if not expected.ordered:
        return _are_among(one, other)
    tied = expected.ties is not None and _within(one, expected.ties, expected.ordered_lists)
    return tied or all(map(_alike, one, other))


def _within(rows: Sequence[Flat], ties: Ties, ordered_lists: bool) -> bool:
    """Whether the rows are those asked for in an order that the ties leave open, any of those tied where a LIMIT cuts."""
    start = -ties.skipped
    for group in ties.groups:
        part = rows[max(start, 0) : max(start + len(group), 0)]
        start += len(group)
        if part and not _are_among(part, _flattened(group, ordered_lists)):
            return False
    return start >= len(rows)


def _are_among(part: Sequence[Flat], group: Sequence[Flat]) -> bool:
    """Whether the rows are some of the group's, each as often at most."""
    both = (part, group), (group, part)
    rest, others = (sorted((Counter(one) - Counter(other)).elements(), key=_rounded) for one, other in both)
    if len(rest) == len(others) and all(map(_alike, rest, others)):
        return True
    return not Counter(map(_rounded, rest)) - Counter(map(_rounded, others))


def _alike(one: Flat, other: Flat) -> bool:
    try:
        return one[0] == other[0] and all(
            a == b or (isinstance(a + b, float) and math.isclose(a, b, rel_tol=TOLERANCE))
            for a, b in zip(one[1], other[1], strict=True)
        )
    except OverflowError:  # a whole number beyond the range of floats
        return False


def _flattened(rows: Sequence[Row], ordered_lists: bool) -> list[Flat]:
    """Take rows apart; `ordered_lists`: the order of a list's items counts."""

    def shape(value: Any, numbers: list[int | float]) -> Any:
        if value is None or isinstance(value, str | bytes):
            return value
        if isinstance(value, bool) or (isinstance(value, float) and math.isnan(value)):
            return (str(value),)
        if isinstance(value, int | float):
            numbers.append(value)
            return ("number",)
        if isinstance(value, dict):
            return ("map", *((key, shape(value[key], numbers)) for key in sorted(value)))
        return ("list", *(shape(one, numbers) for one in (value if ordered_lists else sorted(value, key=repr))))

    found = []
    for row in rows:
        numbers: list[int | float] = []
        found.append((tuple([shape(value, numbers) for value in row]), tuple(numbers)))
    return found


def _rounded(row: Flat) -> tuple[str, tuple[int | float, ...]]:
    """Return a row without the noise that another order of adding makes."""

    def plain(number: int | float) -> int | float:
        if isinstance(number, int) or math.isinf(number):
            return number
        whole = round(number)
        return whole if abs(number - whole) <= abs(number) * 10.0**-DIGITS else float(f"{number:.{DIGITS}g}")

    return repr(row[0]), tuple(map(plain, row[1]))


def same_by_spider(rows: Sequence[Row], expected: Result) -> bool:
    """Whether the rows are the expected ones by the rule `spider`."""
    if not rows or not expected.rows:
        return len(rows) == len(expected.rows)
    if len(rows) != len(expected.rows) or len(rows[0]) != len(expected.rows[0]):
        return False
    given, wanted = ([tuple(map(_hashable, one)) for one in zip(*side, strict=True)] for side in (rows, expected.rows))
    if expected.ordered:
        return Counter(given) == Counter(wanted)
    alike: dict[Hashable, tuple[list[Row], list[Row]]] = {}  # columns of the same values, here and there
    for side, columns in enumerate((given, wanted)):
        for column in columns:
            alike.setdefault(frozenset(Counter(column).items()), ([], []))[side].append(column)
    if any(len(here) != len(there) for here, there in alike.values()):
        return False
    here, there = zip(*alike.values(), strict=True)
    goal, are_few = Counter(zip(*chain(*there), strict=True)), math.prod(math.factorial(len(one)) for one in here)
    orders = product(*map(permutations, here)) if are_few * len(rows) <= MAX_ORDER_LOOKS else [here]
    return any(Counter(zip(*chain(*order), strict=True)) == goal for order in orders)


def _hashable(cell: Any) -> Hashable:
    return repr(cell) if isinstance(cell, list | dict) else cell


def rows_key(rows: Sequence[Row], accepted: Sequence[Result]) -> Hashable:
    """Return what is the same for results that `same` takes for equal, in order where all of `accepted` have one."""
    keys = [repr(_rounded(row)) for row in _flattened(rows, accepted[0].ordered_lists)]
    return tuple(keys if all(result.ordered for result in accepted) else sorted(keys))


_CUTS = frozenset(("LIMIT", "OFFSET", "FETCH", "SKIP", "FOR"))
_SKIPS = re.compile(
    r"LIMIT (?P<comma>\d+) , \d+|(?:LIMIT \w+ )?(?:OFFSET|SKIP) (?P<word>\d+)(?: ROWS?)?(?: (?:LIMIT \w+|FETCH .*))?"
)


def find_ties(
    query: str,
    dialect: Dialect,
    rows: Sequence[Row],
    run: Callable[[str], list[Row]],
    columns: Sequence[str],
    lists: bool,
) -> Ties | None:
    """Return the ties of a query that orders its rows; None where they cannot be known, and only its own order is right.

    The query is run twice more, without its LIMIT, and with all columns of the result as further keys: once upwards, once
    downwards. Wherever both runs have passed the same rows, a group of ties ends. So keys need not be among the columns.

    columns: what the query can order by each column of its result; lists: the order of a list's items counts.
    """
    code = [*outer(query, dialect)]
    said = words(code)
    keys = max((place for place, word in enumerate(said, 1) if word == "ORDER BY"), default=0)
    cut = next((place for place in range(keys, len(said)) if said[place] in _CUTS), len(said))
    after = " ".join(said[cut:])
    skips = _SKIPS.fullmatch(after)
    is_unread = not skips and re.search(r"\b(?:OFFSET|SKIP)\b|,", after)
    if is_unread or not 0 < keys < cut or len({*columns}) != len(rows[0] if rows else ()):
        return None
    ways = ("ASC", "DESC") if dialect == "cypher" else ("ASC NULLS FIRST", "DESC NULLS LAST")
    head = query[: code[cut - 1].end + 1]
    try:
        up, down = (run(f"{head}, {', '.join(f'{one} {way}' for one in columns)}") for way in ways)
    except Stopped:
        return None
    ahead, groups, start, differ = Counter[Hashable](), list[Sequence[Row]](), 0, 0
    both = (map(_rounded, _flattened(some, lists)) for some in (up, down))
    for place, pair in enumerate(zip(*both, strict=False), start=1):
        for row, count in zip(pair, (1, -1), strict=True):
            differ -= bool(ahead[row])
            ahead[row] += count
            differ += bool(ahead[row])
        if not differ:
            groups.append(up[start:place])
            start = place
    ties = Ties(groups, int(skips["comma"] or skips["word"]) if skips else 0)
    agree = start == len(up) == len(down) and _within(_flattened(rows, lists), ties, lists)
    return ties if agree else None
