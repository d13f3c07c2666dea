"""Whether an answer's rows are the expected ones, by the rule `strict` or `spider`.

strict: rows are compared as a multiset, or in order where the expected query orders them; rows that it leaves tied may change
places. Columns count in their order, their names do not. NULL equals NULL. Two whole numbers are equal if they are the same,
other numbers if they are within 1e-6 of each other, relatively. true is not 1.

spider: as the judge of Spider does. The columns may come in any one order, cells are equal or not; a multiset, or one order
where ORDER BY stands anywhere in the expected query. No rows equal no rows of any width.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, permutations, product
from typing import Any, Literal

from expert_cli.evaluation.verdict import Grade, detail_line

Rule = Literal["strict", "spider"]
TOLERANCE = 1e-6
DIGITS = 9
"""Sums in another order differ beyond these."""
MATCHED_ONE_BY_ONE = 300
MAX_LOOKS = 200_000
"""So many pairs of rows are looked at to say which row differs; that one does is known before."""
MAX_ORDER_LOOKS = 1_000_000
"""So many rows are looked at to find an order of columns; what needs more is taken for wrong."""

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

    ties: None = only their own order is right. orders_within: whether ORDER BY stands anywhere in it.
    """

    rows: Sequence[Row]
    ordered: bool = False
    ordered_lists: bool = True
    ties: Ties | None = None
    orders_within: bool = False


def judge_rows(rule: Rule, rows: Sequence[Row], accepted: Sequence[Result]) -> Grade:
    """Return the verdict on an answer's rows: correct if they are those of any accepted result."""
    if any((same if rule == "strict" else same_by_spider)(rows, result) for result in accepted):
        return Grade("correct")
    if not rows:
        return Grade("empty", f"no rows, {_count(len(accepted[0].rows))} expected", reached="runs")
    as_wide = any(result.rows and len(rows[0]) == len(result.rows[0]) for result in accepted)
    if rule == "spider" and any(same(rows, result) for result in accepted):
        return Grade("wrong", 'not the expected rows by the rule "spider"', reached="columns")
    return Grade("wrong", _difference(rows, accepted), reached="columns" if as_wide else "runs")


def same(rows: Sequence[Row], expected: Result) -> bool:
    """Whether `rows` are the expected ones by the rule `strict`."""
    if len(rows) != len(expected.rows):
        return False
    one = [flatten(row, expected.ordered_lists) for row in rows]
    other = [flatten(row, expected.ordered_lists) for row in expected.rows]
    if not expected.ordered:
        return _same_groups(one, other)
    if all(map(_alike, one, other)):
        return True
    is_as_wide = len(rows[0]) == len(expected.rows[0])
    return is_as_wide and expected.ties is not None and within(one, expected.ties, expected.ordered_lists)


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
    return len(rest) * len(others) <= MAX_LOOKS and _matched(rest, others, _alike)


def _matched(some: Iterable[Any], others: list[Any], equal: Callable[[Any, Any], bool]) -> bool:
    """Whether each has one of the others to itself that is equal."""
    for one in some:
        match = next((index for index, other in enumerate(others) if equal(one, other)), None)
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

    if all(map(_close, sorted(one, key=order), sorted(other, key=order))):
        return True
    return len(one) <= MATCHED_ONE_BY_ONE and _matched(one, list(other), _close)


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
    items = value if ordered_lists else sorted(value, key=_sort_key)
    return ("list", *(_take(item, numbers, ordered_lists) for item in items))


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
        return "the same rows in another order"
    wanted = [flatten(row, expected.ordered_lists) for row in expected.rows]
    in_place = expected.ordered or len(rows) == 1
    known = frozenset() if in_place else frozenset(wanted)
    looked = 0
    for index, row in enumerate(rows):
        flat = flatten(row, expected.ordered_lists)
        if flat in known:
            continue
        candidates = wanted[index : index + 1] if in_place else wanted
        looked += len(candidates)
        if looked > MAX_LOOKS:
            return "other rows"
        if not any(_alike(flat, other) for other in candidates):
            if in_place:
                return f"row {index + 1} is {_show(row)}, {_show(expected.rows[index])} expected"
            return f"row {index + 1}, {_show(row)}, is not expected"
    return "rows that are expected once come several times"


def _show(row: Row) -> str:
    return detail_line("(" + ", ".join("NULL" if value is None else repr(value)[:80] for value in row[:8]) + ")", 80)


def _count(rows: int) -> str:
    return f"{rows:,} row{'' if rows == 1 else 's'}"


Column = tuple[Any, ...]


def same_by_spider(rows: Sequence[Row], expected: Result) -> bool:
    """Whether the rows are the expected ones by the rule `spider`."""
    if not rows or not expected.rows:
        return len(rows) == len(expected.rows)
    if len(rows) != len(expected.rows) or len(rows[0]) != len(expected.rows[0]):
        return False
    one, other = (_columns(side, expected.ordered_lists) for side in (rows, expected.rows))
    given, wanted = ([(frozenset(Counter(column).items()), column) for column in side] for side in (one, other))
    if Counter(values for values, _ in given) != Counter(values for values, _ in wanted):
        return False
    if expected.orders_within:
        return Counter(one) == Counter(other)
    return _can_be_ordered(given, sorted(wanted, key=lambda pair: -len(pair[0])))


def _columns(rows: Sequence[Row], ordered_lists: bool) -> list[Column]:
    """Return the columns of rows; lists and maps, which no judge of Spider meets, as what can be compared."""

    def plain(cell: Any) -> Any:
        return flatten((cell,), ordered_lists) if isinstance(cell, list | dict) else cell

    return [tuple(map(plain, column)) for column in zip(*rows, strict=True)]


def _can_be_ordered(given: Sequence[tuple[Any, Column]], wanted: Sequence[tuple[Any, Column]]) -> bool:
    """Whether an order of columns makes two multisets of rows equal: column by column, within `MAX_ORDER_LOOKS`."""
    looks = 0

    def rest(place: int, left: frozenset[int], one: list[int], other: list[int]) -> bool:
        nonlocal looks
        if place == len(wanted):
            return True
        tried: set[Column] = set()
        for number in sorted(left):
            values, column = given[number]
            if values != wanted[place][0] or column in tried:
                continue
            tried.add(column)
            looks += len(column)
            if looks > MAX_ORDER_LOOKS:
                return False
            names: dict[tuple[int, Any], int] = {}
            ours = [names.setdefault(pair, len(names)) for pair in zip(one, column, strict=True)]
            theirs = [names.setdefault(pair, len(names)) for pair in zip(other, wanted[place][1], strict=True)]
            if sorted(ours) == sorted(theirs) and rest(place + 1, left - {number}, ours, theirs):
                return True
        return False

    start = [0] * len(wanted[0][1])
    return rest(0, frozenset(range(len(given))), start, start)


def rows_key(rule: Rule, rows: Sequence[Row], accepted: Sequence[Result]) -> list[Any]:
    """Return what is the same for two results that a rule takes for equal. accepted: tells whether an order was asked for.

    Where a rule's equality is none between two answers, the nearest that is: floats count by `DIGITS` digits, but by "spider"
    exactly; where an order was asked for rows count as they came, tied or not.
    """
    lists = all(result.ordered_lists for result in accepted)
    ordered = all(result.orders_within if rule == "spider" else result.ordered for result in accepted)
    if rule == "strict":
        keys = [_row_key(row, lists) for row in rows]
        return keys if ordered else sorted(keys)
    cells = [tuple(_cell_key(cell, lists) for cell in row) for row in rows]
    columns = sorted(zip(*cells, strict=True))
    if ordered or not rows:
        return columns
    return min((sorted(zip(*order, strict=True)) for order in _orders(columns)), default=[])


def _orders(columns: list[Column]) -> Iterator[list[Column]]:
    """Yield the columns in each order that their values alone leave open, where those are few enough to be tried."""
    groups = [list(group) for _, group in groupby(sorted(columns, key=sorted), key=sorted)]
    if math.prod(math.factorial(len(group)) for group in groups) * len(columns[0]) > MAX_ORDER_LOOKS:
        yield list(chain(*groups))
        return
    for orders in product(*map(permutations, groups)):
        yield list(chain(*orders))


def _cell_key(cell: Any, ordered_lists: bool) -> str:
    return _row_key((int(cell) if isinstance(cell, bool) else cell,), ordered_lists, exact=True)


def _row_key(row: Row, ordered_lists: bool, *, exact: bool = False) -> str:
    """Return a text of a row: 1, 1.0 and, where floats are not `exact`, what is a rounding beside them are one."""
    shape, numbers = flatten(row, ordered_lists)
    return repr((shape, [_number_key(number, exact) for number in numbers]))


def _number_key(number: Number, exact: bool) -> Number:
    if not math.isfinite(number):
        return number
    whole = round(number)
    if whole == number or (not exact and abs(number - whole) <= abs(number) * 10.0**-DIGITS):
        return whole
    return number if exact else rounded(number)


def rounded(number: Number) -> Number:
    """Return a number without the noise that another order of adding makes."""
    return float(f"{number:.{DIGITS}g}") if isinstance(number, float) else number
