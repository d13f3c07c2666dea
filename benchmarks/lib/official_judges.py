"""What the official judges of Spider, BIRD and defog do with two results, stated anew from their sources.

Each function says where its facts come from; no code of theirs is in it. benchmarks/judge_rules.py runs them beside our rules.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

Row = tuple[Any, ...]
MAX_ORDERS = 50_000
"""So many orders of columns are tried; the official judge tries all."""


@dataclass(frozen=True)
class Table:
    """What a query returned: the names of its columns, as the engine gives them, and its rows."""

    names: Sequence[str]
    rows: Sequence[Row]


class Failed(Exception):
    """A query that does not run, or not in time."""


def run(database: Path, query: str, timeout_s: float = 20.0) -> Table:
    """Run a query in SQLite; bytes that are no UTF-8 are left out, as test-suite-sql-eval does. Raises `Failed`."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    connection.text_factory = lambda content: content.decode(errors="ignore")
    deadline = time.monotonic() + timeout_s
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
    try:
        cursor = connection.execute(query)
        return Table([column[0] for column in cursor.description or ()], cursor.fetchall())
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise Failed(str(error)) from error
    finally:
        connection.close()


def without_distinct(query: str) -> str:
    """Return a query without the word DISTINCT, which Spider's judge drops unless --keep_distinct is given.

    `remove_distinct` of taoyds/test-suite-sql-eval: by sqlparse's tokens, so texts in quotes keep theirs.
    """
    parts = re.split(r"('(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`)", query)
    return "".join(part if place % 2 else re.sub(r"(?i)\bdistinct\b", "", part) for place, part in enumerate(parts))


def spider(gold: Table, answer: Table, gold_query: str) -> bool:
    """Spider's execution match: `eval_exec_match` and `result_eq` of taoyds/test-suite-sql-eval at 14784c35.

    Equal as multisets of rows under one order of the columns; row by row where the letters "order by" stand anywhere in
    the expected query. Cells are equal as Python takes them. Two empty results are equal whatever their columns. Before,
    the cells of each row, sorted by their text and type, must be the same: a float that equals a whole number can fail here.
    """
    if not gold.rows or not answer.rows:
        return not gold.rows and not answer.rows
    if len(gold.rows) != len(answer.rows) or len(gold.rows[0]) != len(answer.rows[0]):
        return False
    in_order = "order by" in gold_query.lower()
    sorted_cells = [[tuple(sorted(row, key=_text_and_type)) for row in side.rows] for side in (gold, answer)]
    if sorted_cells[0] != sorted_cells[1] if in_order else set(sorted_cells[0]) != set(sorted_cells[1]):
        return False
    wanted = list(gold.rows) if in_order else Counter(gold.rows)
    for order in _column_orders(gold.rows, answer.rows):
        moved = [tuple(row[place] for place in order) for row in answer.rows]
        if (moved if in_order else Counter(moved)) == wanted:
            return True
    return False


def _text_and_type(cell: Any) -> str:
    return f"{cell}{type(cell)}"


def _column_orders(gold: Sequence[Row], answer: Sequence[Row]) -> Iterator[tuple[int, ...]]:
    """Yield orders of the answer's columns; where there are more than three, those whose values are among the expected ones."""
    width = len(gold[0])
    if width <= 3:
        yield from permutations(range(width))
        return
    known = [set(column) for column in zip(*gold, strict=True)]
    given = [set(column) for column in zip(*answer, strict=True)]
    choices = [[place for place in range(width) if given[place] <= values] for values in known]
    tried = 0
    stack: list[tuple[int, ...]] = [()]
    while stack and tried < MAX_ORDERS:
        order = stack.pop()
        if len(order) == width:
            tried += 1
            yield order
        else:
            stack.extend((*order, place) for place in reversed(choices[len(order)]) if place not in order)


def bird(gold: Table, answer: Table) -> bool:
    """BIRD's execution accuracy, `calculate_ex` of bird-bench/mini_dev at 47f116d8: equal sets of rows."""
    return set(gold.rows) == set(answer.rows)


def defog(
    gold_text: str, golds: Iterable[Table], answer_query: str, answer: Table, *, question: str, category: str = ""
) -> bool:
    """Whether an answer is "correct" by `compare_query_results` of defog-ai/sql-eval at 96c36dec.

    golds: the results of the accepted queries in `gold_text`. Raises `Failed` for what stops the official judge, which
    counts it as wrong: two columns of one name, cells that cannot be sorted.
    """
    asked = category == "order_by" or re.search(r"\b(order|sort|arrange)\b", question.lower()) is not None
    given = _frame(answer)
    found = False
    for table in golds:
        wanted = _frame(table)
        try:
            if _equal_values(wanted, given):
                return True
            one, other = _normalized(wanted, asked, gold_text), _normalized(given, asked, answer_query)
            if one.shape == other.shape and _equal_values(one, other):
                return True
            found = _is_part(wanted, given, asked) or found
        except (ValueError, TypeError, AttributeError) as error:
            raise Failed(str(error)) from error
    return found


def _frame(table: Table) -> Any:
    import pandas as pd

    return pd.DataFrame(list(table.rows), columns=list(table.names))


def _equal_values(one: Any, other: Any) -> bool:
    """Whether numpy finds the values equal: it repeats a single row or column to fit, and a NULL among numbers equals none."""
    try:
        return bool((one.values == other.values).all())
    except (AttributeError, ValueError):
        return False


def _normalized(frame: Any, asked: bool, query: str = "") -> Any:
    """Return the rows once each, columns by name; rows sorted where the question asks for no order.

    Where it asks, rows are sorted by the keys that a regular expression finds behind ORDER BY, then by all else, and the
    keys come last: the order in which rows came is lost; by what the query sorts, and which way, is not.
    """
    frame = frame.drop_duplicates()
    frame = frame.reindex(sorted(frame.columns), axis=1)
    if not asked:
        return frame.sort_values(by=list(frame.columns)).reset_index(drop=True)
    clause = re.search(r"ORDER BY[\s\S]*", query, re.IGNORECASE)
    if clause:
        found = re.findall(r"(?<=ORDER BY)(.*?)(?=;|,|\)|$)", clause.group(0), re.IGNORECASE)
        words = [word.strip().rsplit(".", 1)[-1] for word in (found[0].split() if found else [])]
        upper = {word.upper() for word in words}
        upwards = "ASC" in upper and "DESC" not in upper
        keys = [word.replace(",", "").replace("(", "") for word in words]
        keys = [key for key in keys if key.lower() not in ("desc", "asc", "nulls", "last", "first", "limit")]
        others = [name for name in frame.columns if name not in keys]
        keys = [key for key in keys if key in frame.columns]
        frame = frame.sort_values(by=keys + others, ascending=upwards)[others + keys]
    return frame.reset_index(drop=True)


def _is_part(wanted: Any, given: Any, asked: bool) -> bool:
    """Whether each expected column is among the answer's: the first that holds the same values, floats within 1e-5."""
    from pandas.testing import assert_frame_equal, assert_series_equal

    if wanted.empty:
        return False
    free, places = list(given.columns), []
    for name in wanted.columns:
        column = wanted[name].sort_values().reset_index(drop=True)
        for other in free:
            held = given[other].sort_values().reset_index(drop=True)
            if _agree(partial(assert_series_equal, column, held, check_dtype=False, check_names=False)):
                places.append(other)
                free.remove(other)
                break
        else:
            return False
    taken = given[places].set_axis(list(wanted.columns), axis=1)
    one, other = _normalized(wanted, asked), _normalized(taken, asked)
    return _agree(partial(assert_frame_equal, one, other, check_dtype=False))


def _agree(check: Callable[[], None]) -> bool:
    try:
        check()
    except AssertionError:
        return False
    return True
