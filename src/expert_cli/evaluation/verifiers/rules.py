"""By which rule an answer's rows are compared: ours, or as the judge of Spider does (docs/JUDGING.md)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain, groupby, permutations, product
from typing import Any, Literal

from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers.compare_rows import Result, Row, flatten, judge_rows

Rule = Literal["strict", "spider"]

MAX_LOOKS = 1_000_000
"""So many rows are looked at to find an order of columns; what needs more is taken for wrong."""
_DIGITS = 9
"""Sums in another order differ beyond these."""
Column = tuple[Any, ...]


def judge_by(rule: Rule, rows: Sequence[Row], accepted: Sequence[Result]) -> Grade:
    """Return the verdict by a rule."""
    if rule == "strict":
        return judge_rows(rows, accepted)
    if any(same_by_spider(rows, result) for result in accepted):
        return Grade("correct")
    verdict = judge_rows(rows, accepted)
    if not verdict.passed:
        return verdict
    return Grade("wrong", f'not the expected rows by the rule "{rule}"', reached="columns")


def same_by_spider(rows: Sequence[Row], expected: Result) -> bool:
    """Whether the rows are the expected ones with the columns in any one order; cells are equal or not.

    A multiset, or one order where ORDER BY stands anywhere in the expected query. No rows equal no rows of any width.
    """
    if not rows or not expected.rows:
        return len(rows) == len(expected.rows)
    if len(rows) != len(expected.rows) or len(rows[0]) != len(expected.rows[0]):
        return False
    one, other = (_columns(side, expected.ordered_lists) for side in (rows, expected.rows))
    if expected.orders_within:
        return Counter(one) == Counter(other)
    return _Permutation(one, other).exists()


def _columns(rows: Sequence[Row], ordered_lists: bool) -> list[Column]:
    """Return the columns of rows; lists and maps, which no judge of Spider meets, as what can be compared."""

    def plain(cell: Any) -> Any:
        return flatten((cell,), ordered_lists) if isinstance(cell, list | dict) else cell

    return [tuple(map(plain, column)) for column in zip(*rows, strict=True)]


class _Permutation:
    """Searches an order of columns that makes two multisets of rows equal, column by column, those of most values first."""

    def __init__(self, one: list[Column], other: list[Column]) -> None:
        values = [(frozenset(Counter(column).items()), column) for column in other]
        self._wanted = sorted(values, key=lambda pair: -len(pair[0]))
        self._given = [(frozenset(Counter(column).items()), column) for column in one]
        self._looks = 0

    def exists(self) -> bool:
        """Whether there is one, found within `MAX_LOOKS`."""
        if Counter(values for values, _ in self._given) != Counter(values for values, _ in self._wanted):
            return False
        start = [0] * len(self._wanted[0][1])
        return self._rest(0, frozenset(range(len(self._given))), start, start)

    def _rest(self, place: int, left: frozenset[int], one: list[int], other: list[int]) -> bool:
        if place == len(self._wanted):
            return True
        values, wanted = self._wanted[place]
        tried: set[Column] = set()
        for number in sorted(left):
            if self._given[number][0] != values or self._given[number][1] in tried:
                continue
            tried.add(self._given[number][1])
            self._looks += len(wanted)
            if self._looks > MAX_LOOKS:
                return False
            names: dict[tuple[int, Any], int] = {}
            ours = [names.setdefault(pair, len(names)) for pair in zip(one, self._given[number][1], strict=True)]
            theirs = [names.setdefault(pair, len(names)) for pair in zip(other, wanted, strict=True)]
            if sorted(ours) == sorted(theirs) and self._rest(place + 1, left - {number}, ours, theirs):
                return True
        return False


def rows_key(rule: Rule, rows: Sequence[Row], accepted: Sequence[Result]) -> Hashable:
    """Return what is the same for two results that a rule takes for equal. accepted: tells whether an order was asked for.

    Where a rule's equality is none between two answers, the nearest that is: floats count by `_DIGITS` digits, but by "spider"
    exactly; where an order was asked for rows count as they came, tied or not.
    """
    lists = all(result.ordered_lists for result in accepted)
    ordered = all(result.orders_within if rule == "spider" else result.ordered for result in accepted)
    if rule == "strict":
        keys = [_row_key(row, lists) for row in rows]
        return tuple(keys) if ordered else frozenset(Counter(keys).items())
    if not rows:
        return ()
    cells = [tuple(_cell_key(cell, lists) for cell in row) for row in rows]
    columns = sorted(zip(*cells, strict=True))
    if ordered:
        return tuple(columns)
    return min((tuple(sorted(zip(*order, strict=True))) for order in _orders(columns)), default=())


def _orders(columns: list[Column]) -> Iterator[list[Column]]:
    """Yield the columns in each order that their values alone leave open, where those are few enough to be tried."""
    groups = [list(group) for _, group in groupby(sorted(columns, key=sorted), key=sorted)]
    looks = math.prod(math.factorial(len(group)) for group in groups) * len(columns[0])
    if looks > MAX_LOOKS:
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


def _number_key(number: int | float, exact: bool) -> int | float:
    if not math.isfinite(number):
        return number
    whole = round(number)
    if whole == number or (not exact and abs(number - whole) <= abs(number) * 10.0**-_DIGITS):
        return whole
    return number if exact else float(f"{number:.{_DIGITS}g}")
