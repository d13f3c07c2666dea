"""Whether an answer's rows are the expected ones, by the rule `strict` or `spider`, as docs/JUDGING.md says them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, permutations, product
from typing import Any, Literal, NamedTuple

from expert_cli.evaluation.verifiers.case import Grade
from expert_cli.evaluation.verifiers.query_text import Dialect, outer, words
from expert_cli.evaluation.verifiers.sandbox.child_process import Stopped
from expert_cli.utils.text import plural

Rule = Literal["strict", "spider"]
TOLERANCE, NOISE = 1e-6, 1e-9
"""Of floats, relatively: what counts as equal, and what sums in another order may differ by."""
MAX_ORDER_LOOKS = 1_000_000
"""So many rows are looked at to find an order of columns; where that takes more, columns of the same values stay in theirs."""

Row = tuple[Any, ...]
Flat = tuple[str, tuple[int | float, ...]]
"""A row taken apart: all but its numbers as text, to compare exactly, and the numbers."""


class Ties(NamedTuple):
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


def wrong(rows: Sequence[Row], expected: Sequence[Row]) -> Grade:
    """Return the verdict on an answer's rows that are not the expected ones."""
    if not rows:
        return Grade("empty", f"no rows, {plural(len(expected), 'row')} expected")
    known = {*map(repr, expected)}
    other = next((f": {row} is not expected" for row in rows if repr(row) not in known), "")
    return Grade("wrong", f"{plural(len(rows), 'row')}, {len(expected)} expected{other}")


def is_right(rule: Rule, rows: Sequence[Row], expected: Result) -> bool:
    """Whether `rows` are the expected ones by a rule; told at once where they are those very rows, as most right ones are."""
    return repr(rows) == repr(expected.rows) or (same if rule == "strict" else same_by_spider)(rows, expected)


def same(rows: Sequence[Row], expected: Result) -> bool:
    """Whether `rows` are the expected ones by the rule `strict`."""
    if len(rows) != len(expected.rows):
        return False
    in_order = Ties([[row] for row in expected.rows] if expected.ordered else [expected.rows])
    return _within(rows, expected.ties or in_order, expected.ordered_lists)


def _within(rows: Sequence[Row], ties: Ties, ordered_lists: bool) -> bool:
    """Whether the rows are those asked for in an order that the ties leave open, any of those tied where a LIMIT cuts."""
    flat, start = _flattened(rows, ordered_lists), -ties.skipped
    for group in ties.groups:
        part = flat[max(start, 0) : max(start + len(group), 0)]
        start += len(group)
        if part and not _are_among(part, _flattened(group, ordered_lists)):
            return False
    return start >= len(rows)


def _are_among(part: Sequence[Flat], group: Sequence[Flat]) -> bool:
    """Whether the rows are some of the group's, each as often at most."""
    if len(part) == len(group):
        return all(map(_alike, sorted(part, key=_rounded), sorted(group, key=_rounded)))
    return not Counter(map(_rounded, part)) - Counter(map(_rounded, group))


def _alike(one: Flat, other: Flat) -> bool:
    return one[0] == other[0] and all(
        a == b or (isinstance(a + b, float) and math.isclose(a, b, rel_tol=TOLERANCE))
        for a, b in zip(one[1], other[1], strict=True)
    )


def _flattened(rows: Sequence[Row], ordered_lists: bool) -> list[Flat]:
    """Take rows apart; `ordered_lists`: the order of a list's items counts."""

    def shape(value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            numbers.append(value)
            return 0
        if isinstance(value, list):
            return [shape(one) for one in (value if ordered_lists else sorted(value, key=repr))]
        return {key: shape(value[key]) for key in sorted(value)} if isinstance(value, dict) else value

    found = []
    for row in rows:
        numbers: list[int | float] = []
        found.append((repr([shape(value) for value in row]), tuple(numbers)))
    return found


def _rounded(row: Flat) -> Flat:
    """Return a row without the noise that another order of adding makes."""
    both = ((round(number), number) for number in row[1])
    return row[0], tuple(
        whole if math.isclose(whole, number, rel_tol=NOISE) else float(f"{number:.9g}") for whole, number in both
    )


def same_by_spider(rows: Sequence[Row], expected: Result) -> bool:
    """Whether the rows are the expected ones by the rule `spider`; no rows equal no rows of any width."""
    if not rows or not expected.rows:
        return len(rows) == len(expected.rows)
    given, wanted = ([tuple(map(_hashable, one)) for one in zip(*side, strict=True)] for side in (rows, expected.rows))
    if expected.ordered:
        return Counter(given) == Counter(wanted)
    alike = defaultdict[Hashable, tuple[list[Row], list[Row]]](lambda: ([], []))  # columns of the same values
    for side, columns in enumerate((given, wanted)):
        for column in columns:
            alike[frozenset(Counter(column).items())][side].append(column)
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
    keys = [*map(_rounded, _flattened(rows, accepted[0].ordered_lists))]
    return tuple(keys if all(result.ordered for result in accepted) else sorted(keys))


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
    keys = max(place for place, word in enumerate(said, 1) if word == "ORDER BY")
    cut = next((n for n in range(keys, len(said)) if said[n] in ("LIMIT", "OFFSET", "FETCH", "SKIP", "FOR")), len(said))
    tail, ways = said[cut:], ("ASC", "DESC") if dialect == "cypher" else ("ASC NULLS FIRST", "DESC NULLS LAST")
    skips = [after for word, after in pairwise(tail) if word in ("OFFSET", "SKIP")]
    skipped = (skips or (tail[1:2] if "," in tail else ["0"]))[0]
    head = query[: code[cut - 1].end + 1]
    try:
        up, down = (run(f"{head}, {', '.join(f'{one} {way}' for one in columns)}") for way in ways)
    except Stopped:
        return None
    ahead, groups, start = dict[Flat, int](), list[Sequence[Row]](), 0
    both = (map(_rounded, _flattened(some, lists)) for some in (up, down))
    for place, pair in enumerate(zip(*both, strict=False), start=1):
        for row, count in zip(pair, (1, -1), strict=True):
            ahead[row] = ahead.get(row, 0) + count
            if not ahead[row]:
                del ahead[row]
        if not ahead:
            groups.append(up[start:place])
            start = place
    ties = Ties(groups, int(skipped) if skipped.isdigit() else 0)
    return ties if start == len(up) == len(down) and _within(rows, ties, lists) else None
