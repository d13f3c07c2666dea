"""By which rule an answer's rows are compared: ours, or as the judges of Spider and of defog do (docs/JUDGING.md)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby, permutations, product
from typing import Any, Literal

from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers.compare_rows import Result, Row, flatten, judge_rows, same

Rule = Literal["strict", "spider", "defog"]

RELATIVELY_CLOSE, CLOSE = 1e-5, 1e-8
"""What pandas takes for equal."""
MAX_LOOKS = 1_000_000
"""So many rows are looked at to find an order of columns; what needs more is taken for wrong."""
_DIGITS = 9
"""Sums in another order differ beyond these."""
Column = tuple[Any, ...]


def judge_by(rule: Rule, rows: Sequence[Row], accepted: Sequence[Result], *, order_asked: bool) -> Grade:
    """Return the verdict by a rule. order_asked: whether the question asks for an order, which defog's judge goes by."""
    if rule == "strict":
        return judge_rows(rows, accepted)
    if rule == "defog" and not order_asked:
        accepted = [replace(result, ordered=False) for result in accepted]
    if any(_SAME[rule](rows, result) for result in accepted):
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


def same_by_defog(rows: Sequence[Row], expected: Result) -> bool:
    """Whether the expected columns are among the answer's, in any order, as sets of rows; floats are close as in pandas.

    Where the numbers of rows differ, all columns must agree, in their order. Each expected column takes the first of the
    answer's that holds the same values.
    """
    if not rows or not expected.rows:
        return len(rows) == len(expected.rows)
    rows = _snapped(rows, expected.rows)
    if len(rows[0]) == len(expected.rows[0]) and _same_sets(rows, expected):
        return True
    places = _places(rows, expected)
    return len(places) == len(expected.rows[0]) and _same_sets(
        [tuple(row[n] for n in places) for row in rows], expected
    )


def _snapped(rows: Sequence[Row], expected: Sequence[Row]) -> list[Row]:
    """Return the rows with the nearest expected number in place of every float that is close to it."""
    known = sorted({cell for row in expected for cell in row if _is_number(cell) and math.isfinite(cell)})

    def snap(cell: Any) -> Any:
        if not isinstance(cell, float) or not known or not math.isfinite(cell):
            return cell
        place = bisect_left(known, cell)
        nearest = min(known[max(place - 1, 0) : place + 1], key=lambda number: abs(number - cell))
        return nearest if abs(nearest - cell) <= CLOSE + RELATIVELY_CLOSE * abs(nearest) else cell

    return [tuple(map(snap, row)) for row in rows]


def _is_number(cell: Any) -> bool:
    return isinstance(cell, float) or (isinstance(cell, int) and not isinstance(cell, bool) and abs(cell) < 1 << 53)


def _same_sets(rows: Sequence[Row], expected: Result) -> bool:
    if expected.ordered:
        return same(rows, expected)
    one, other = ({flatten(row, expected.ordered_lists) for row in side} for side in (rows, expected.rows))
    return one == other


def _places(rows: Sequence[Row], expected: Result) -> list[int]:
    """Return for each expected column the place of the answer's that it takes, as far as there are any."""
    given = [_values(column) for column in zip(*rows, strict=True)]
    places: list[int] = []
    for column in zip(*expected.rows, strict=True):
        wanted = _values(column)
        place = next((n for n, values in enumerate(given) if values == wanted and n not in places), None)
        if place is None:
            break
        places.append(place)
    return places


def _values(column: Column) -> frozenset[tuple[Any, int]]:
    """Return what a column holds and how often, whatever the order of the rows."""
    return frozenset(Counter(flatten((cell,), ordered_lists=True) for cell in column).items())


def rows_key(rule: Rule, rows: Sequence[Row], accepted: Sequence[Result], *, order_asked: bool) -> Hashable:
    """Return what is the same for two results that a rule takes for equal. accepted: tells whether an order was asked for.

    Where a rule's equality is none between two answers, the nearest that is: floats count by `_DIGITS` digits, but by "spider"
    exactly; where an order was asked for rows count as they came, tied or not; by "defog" a column more is another result.
    """
    lists = all(result.ordered_lists for result in accepted)
    ordered = all(result.orders_within if rule == "spider" else result.ordered for result in accepted)
    if rule == "strict":
        keys = [_row_key(row, lists) for row in rows]
        return tuple(keys) if ordered else frozenset(Counter(keys).items())
    if not rows:
        return ()
    cells = [tuple(_cell_key(cell, lists, exact=rule == "spider") for cell in row) for row in rows]
    if rule == "defog":
        ordered = ordered and order_asked
        cells = cells if ordered else list(dict.fromkeys(cells))
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


def _cell_key(cell: Any, ordered_lists: bool, *, exact: bool) -> str:
    return _row_key((int(cell) if exact and isinstance(cell, bool) else cell,), ordered_lists, exact=exact)


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


_SAME: dict[Rule, Callable[[Sequence[Row], Result], bool]] = {"spider": same_by_spider, "defog": same_by_defog}
