"""Whether two results are the same.

Rows are compared as a multiset, or in order where the expected query orders them; rows that it leaves tied may change
places. Columns count in their order, their names do not. NULL equals NULL. Two whole numbers are equal if they are the
same, other numbers if they are within 1e-6 of each other, relatively. true is not 1.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from expert_cli.evaluation.verdict import Grade, detail_line

TOLERANCE = 1e-6
MATCHED_ONE_BY_ONE = 300
MAX_LOOKS = 200_000
"""So many pairs of rows are looked at to say which row differs; that one does is known before."""
_ORDERED = "the same rows in another order"

Row = tuple[Any, ...]
Number = int | float
Flat = tuple[tuple[Any, ...], tuple[Number, ...]]
"""A row taken apart: everything but the numbers, to compare exactly, and the numbers."""


@dataclass(frozen=True)
class Ties:
    """All rows of an ordered query without its LIMIT, those of equal sort keys together; `skipped` of them come before
    those asked for.
    """

    groups: Sequence[Sequence[Row]]
    skipped: int = 0


@dataclass(frozen=True)
class Result:
    """What an accepted query returned. `ordered`: its rows; `ordered_lists`: the items of the lists in it.

    ties: asked only where the rows come in another order; None: only their own order is right. orders_within: whether
    ORDER BY stands anywhere in it.
    """

    rows: Sequence[Row]
    ordered: bool = False
    ordered_lists: bool = True
    ties: Callable[[], Ties | None] = lambda: None
    orders_within: bool = False


def judge_rows(rows: Sequence[Row], accepted: Sequence[Result]) -> Grade:
    """Return the verdict on an answer's rows: correct if they are those of any accepted result."""
    if any(same(rows, result) for result in accepted):
        return Grade("correct")
    if not rows:
        return Grade("empty", f"no rows, {_count(len(accepted[0].rows))} expected", reached="runs")
    as_wide = any(result.rows and len(rows[0]) == len(result.rows[0]) for result in accepted)
    return Grade("wrong", _difference(rows, accepted), reached="columns" if as_wide else "runs")


def same(rows: Sequence[Row], expected: Result) -> bool:
    """Whether `rows` are the expected ones."""
    if len(rows) != len(expected.rows):
        return False
    one = [flatten(row, expected.ordered_lists) for row in rows]
    other = [flatten(row, expected.ordered_lists) for row in expected.rows]
    if not expected.ordered:
        return _same_groups(one, other)
    if all(map(_alike, one, other)):
        return True
    ties = expected.ties() if len(rows[0]) == len(expected.rows[0]) else None
    return ties is not None and within(one, ties, expected.ordered_lists)


def within(rows: Sequence[Flat], ties: Ties, ordered_lists: bool) -> bool:
    """Whether the rows are those asked for in an order that the ties leave open, any of those tied where a LIMIT cuts."""
    start = -ties.skipped
    for group in ties.groups:
        part = rows[max(start, 0) : max(start + len(group), 0)]
        start += len(group)
        if part and not _are_among(part, [flatten(row, ordered_lists) for row in group]):
            return False
        if start >= len(rows):
            return True
    return False


def _are_among(part: Sequence[Flat], group: Sequence[Flat]) -> bool:
    """Whether the rows are some of the group's, each as often at most."""
    left, rest = Counter(group), []
    for row in part:
        if left[row]:
            left[row] -= 1
        else:
            rest.append(row)
    others = list(left.elements())
    if len(part) == len(group):
        return _same_groups(rest, others)
    if len(rest) * len(others) > MAX_LOOKS:
        return False
    for row in rest:
        match = next((index for index, other in enumerate(others) if _alike(row, other)), None)
        if match is None:
            return False
        others.pop(match)
    return True


def _alike(one: Flat, other: Flat) -> bool:
    return one[0] == other[0] and _close(one[1], other[1])


def _same_groups(one: list[Flat], other: list[Flat]) -> bool:
    """Compare as multisets: the shapes exactly, then the numbers of the rows of one shape."""
    groups: dict[tuple[Any, ...], tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((one, other)):
        for shape, numbers in rows:
            groups[shape][side].append(numbers)
    return all(len(a) == len(b) and _same_numbers(a, b) for a, b in groups.values())


def _same_numbers(one: list[tuple[Number, ...]], other: list[tuple[Number, ...]]) -> bool:
    """Compare rows of numbers: sorted, whole numbers first, so that noise in a float does not decide the order.

    Where that fails, a small group is matched row by row: noise can also change places between two floats.
    """
    whole = [all(isinstance(value, int) for value in column) for column in zip(*one, *other, strict=True)]
    places = sorted(range(len(whole)), key=lambda place: not whole[place])

    def order(row: tuple[Number, ...]) -> tuple[tuple[bool, Number], ...]:
        return tuple((_is_nan(row[place]), 0 if _is_nan(row[place]) else row[place]) for place in places)

    if all(_close(a, b) for a, b in zip(sorted(one, key=order), sorted(other, key=order), strict=True)):
        return True
    if len(one) > MATCHED_ONE_BY_ONE:
        return False
    left = list(other)
    for row in one:
        match = next((index for index, candidate in enumerate(left) if _close(row, candidate)), None)
        if match is None:
            return False
        left.pop(match)
    return True


def _close(one: Iterable[Number], other: Iterable[Number]) -> bool:
    return all(_close_numbers(a, b) for a, b in zip(one, other, strict=True))


def _close_numbers(one: Number, other: Number) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    try:
        return one == other or math.isclose(one, other, rel_tol=TOLERANCE) or (_is_nan(one) and _is_nan(other))
    except OverflowError:  # a whole number beyond the range of floats
        return False


def _is_nan(value: Number) -> bool:
    return isinstance(value, float) and math.isnan(value)


def flatten(row: Row, ordered_lists: bool) -> Flat:
    """Take a row apart; `ordered_lists`: the order of a list's items counts."""
    numbers: list[Number] = []
    shape = tuple([_take(value, numbers, ordered_lists) for value in row])
    return shape, tuple(numbers)


def _take(value: Any, numbers: list[Number], ordered_lists: bool) -> Any:
    """Return what stands for `value` in the shape; numbers are moved to `numbers`."""
    if value is None or isinstance(value, str | bytes):
        return value
    if isinstance(value, bool):
        return ("true",) if value else ("false",)
    if isinstance(value, int | float):
        numbers.append(value)
        return ("number",)
    if isinstance(value, dict):
        return ("map", *((key, _take(value[key], numbers, ordered_lists)) for key in sorted(value)))
    if isinstance(value, list | tuple):
        items = value if ordered_lists else sorted(value, key=_sort_key)
        return ("list", *(_take(item, numbers, ordered_lists) for item in items))
    return ("other", str(value))


def _sort_key(value: Any) -> tuple[str, float, str]:
    """Order the items of a list: by kind, numbers by size, all else by its text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return ("number", math.inf if _is_nan(value) else value, "")
    return (type(value).__name__, 0, str(value))


def _difference(rows: Sequence[Row], accepted: Sequence[Result]) -> str:
    """Say how the result differs from the first accepted one."""
    expected = accepted[0]
    if len(rows) != len(expected.rows):
        return f"{_count(len(rows))}, {_count(len(expected.rows))} expected"
    if len(rows[0]) != len(expected.rows[0]):
        return f"{len(rows[0])} column(s), {len(expected.rows[0])} expected"
    if any(result.ordered and same(rows, Result(result.rows, False, result.ordered_lists)) for result in accepted):
        return _ORDERED
    wanted = [flatten(row, expected.ordered_lists) for row in expected.rows]
    known = frozenset() if expected.ordered else frozenset(wanted)
    looked = 0
    for index, row in enumerate(rows):
        flat = flatten(row, expected.ordered_lists)
        if flat in known:
            continue
        candidates = wanted[index : index + 1] if expected.ordered or len(rows) == 1 else wanted
        looked += len(candidates)
        if looked > MAX_LOOKS:
            break
        if not any(_alike(flat, other) for other in candidates):
            if expected.ordered or len(rows) == 1:
                return f"row {index + 1} is {_show(row)}, {_show(expected.rows[index])} expected"
            return f"row {index + 1}, {_show(row)}, is not expected"
    return "other rows" if looked > MAX_LOOKS else "rows that are expected once come several times"


def _show(row: Row) -> str:
    return detail_line("(" + ", ".join("NULL" if value is None else repr(value)[:80] for value in row[:8]) + ")", 80)


def _count(rows: int) -> str:
    return f"{rows:,} row{'' if rows == 1 else 's'}"
