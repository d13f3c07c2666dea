"""When two results are the same, by each rule: a row of the table in docs/JUDGING.md is a line here; what a query orders."""

from __future__ import annotations

import random
import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expert_cli.evaluation.verifiers.case import Stopped
from expert_cli.evaluation.verifiers.query_rows import (
    Dialect,
    Result,
    Rule,
    find_ties,
    is_right,
    orders_lists,
    orders_rows,
    same,
    split,
)
from expert_cli.evaluation.verifiers.sandbox.graphqlite import CypherJudge
from expert_cli.evaluation.verifiers.sandbox.sqlite import SqliteJudge
from tests import graders

NAN = float("nan")
RULES: tuple[Rule, ...] = ("strict", "spider")


RIGHT_BY: dict[str, tuple[list[tuple[Any, ...]], Result, str]] = {
    "the same": ([(1, "a")], Result([(1, "a")]), "strict spider"),
    "columns in another order": ([("a", 1), ("b", 2)], Result([(1, "a"), (2, "b")]), "spider"),
    "columns that fit one by one, rows that do not": ([(1, 2), (2, 1)], Result([(1, 1), (2, 2)]), ""),
    "a column more": ([(1, "a", 7), (2, "b", 7)], Result([(1, "a"), (2, "b")]), ""),
    "rows in another order": ([(2,), (1,)], Result([(1,), (2,)]), "strict spider"),
    "rows in another order, ORDER BY": ([(2,), (1,)], Result([(1,), (2,)], ordered=True), ""),
    "tied rows in another order": (
        [("a", 1), ("b", 1)],
        Result([("b", 1), ("a", 1)], ordered=True, ties=[[("a", 1), ("b", 1)]]),
        "strict",
    ),
    "columns, ORDER BY": ([(1, "a"), (2, "b")], Result([("a", 1), ("b", 2)], ordered=True), "spider"),
    "a row twice": ([(1,), (1,)], Result([(1,)]), ""),
    "NULL": ([(None,)], Result([(None,)]), "strict spider"),
    "NULL is no text": ([("",)], Result([(None,)]), ""),
    "a whole float": ([(1.0,)], Result([(1,)]), "strict spider"),
    "noise in a float": ([(0.1 + 0.2,)], Result([(0.3,)]), "strict"),
    "five millionths": ([(1.000005,)], Result([(1.0,)]), ""),
    "whole numbers": ([(10_000_000,)], Result([(10_000_001,)]), ""),
    "infinite": ([(float("inf"), 1.5)], Result([(float("inf"), 1.5)]), "strict spider"),
    "true and 1": ([(True,)], Result([(1,)]), "spider"),
    "a blank behind a text": ([("Ada ",)], Result([("Ada",)]), ""),
    "nothing": ([], Result([]), "strict spider"),
    "lists": ([([2, 1],)], Result([([1, 2],)]), ""),
    "lists as multisets": ([([2, 1], 5)], Result([(5, [1, 2])], ordered_lists=False), ""),
    "not a number is not 0": ([(NAN,)], Result([(0.0,)]), ""),
    "noise before text": ([(1.0000001, "b"), (1.0, "a")], Result([(1.0, "b"), (1.0, "a")]), "strict"),
    "lists with NULL": ([([2, 1, None],)], Result([([None, 1, 2],)], ordered_lists=False), "strict"),
    "maps without order": ([({"a": 1, "b": 2.0},)], Result([({"b": 2, "a": 1},)]), "strict"),
    "keys of maps": ([({"a": 1},)], Result([({"b": 1},)]), ""),
}


@pytest.mark.parametrize(("rows", "expected", "right_by"), RIGHT_BY.values(), ids=RIGHT_BY)
def test_what_is_right_by_each_rule(rows: list[tuple[Any, ...]], expected: Result, right_by: str) -> None:
    assert " ".join(rule for rule in RULES if is_right(rule, rows, expected)) == right_by


def test_any_order_of_columns_is_found() -> None:
    chosen = random.Random(0)
    for _ in range(20):
        width, values = chosen.randint(1, 8), chosen.randint(1, 3)
        rows = [tuple(chosen.randint(0, values) for _ in range(width)) for _ in range(chosen.randint(1, 12))]
        order = chosen.sample(range(width), width)
        moved = [tuple(row[place] for place in order) for row in chosen.sample(rows, len(rows))]
        assert is_right("spider", moved, Result(rows))
        changed = [(*moved[0][:-1], 9), *moved[1:]]
        assert not is_right("spider", changed, Result(rows))


def test_wide_and_long_results_take_little_time() -> None:
    """Twelve equal columns have 479,001,600 orders; so have twelve that hold the same values in other rows."""
    start = time.perf_counter()
    equal = [(number % 50,) * 12 for number in range(20_000)]
    assert is_right("spider", equal[::-1], Result(equal))
    columns = [random.Random(seed).sample(range(500), 500) for seed in range(12)]
    moved = [column[1:] + column[:1] if place == 5 else column for place, column in enumerate(columns)]
    assert not is_right("spider", list(zip(*moved, strict=True)), Result(list(zip(*columns, strict=True))))
    assert time.perf_counter() - start < 10  # alone 0.4 s


@pytest.mark.parametrize("rule", RULES)
def test_ties_are_those_of_each_content(tmp_path: Path, rule: Rule) -> None:
    """On the first content nothing is tied; on the second two rows are, and on those made of one."""
    files = []
    for name, age in (("first", 2), ("second", 1)):
        table = f"CREATE TABLE people (name, age); INSERT INTO people VALUES ('a', 1), ('b', {age}), ('c', 3)"
        files.append(graders.database(tmp_path / f"{name}.sqlite", table))
    row = {"expected": "SELECT name FROM people ORDER BY age", "rule": rule}
    for named in ({"database": [*map(str, files)]}, {"database": str(files[0]), "perturb": 6}):
        for order, right in (("age, name DESC", rule != "spider"), ("age DESC", False)):
            found = graders.graded("sql", f"SELECT name FROM people ORDER BY {order}", files[0], 10, row | named)
            assert found.passed is right


CELLS = st.one_of(st.none(), st.integers(-5, 5), st.floats(-3, 3, width=16), st.sampled_from(["", "a", "1"]))
ROWS = st.lists(st.tuples(CELLS, CELLS), max_size=8)


@given(ROWS, st.randoms(use_true_random=False))
def test_a_shuffled_result_with_noise_is_the_same(rows: list[tuple[Any, ...]], random: Any) -> None:
    noisy = [tuple(cell * (1 + 1e-8) if isinstance(cell, float) else cell for cell in row) for row in rows]
    random.shuffle(noisy)
    assert same(noisy, Result(rows))


TABLE = """
CREATE TABLE t (n TEXT, a INTEGER, b REAL);
INSERT INTO t VALUES ('x', 1, 1.5), ('y', 1, 2.5), ('z', 2, NULL), ('w', NULL, 3), ('v', NULL, 3), ('q', 2, -0.0);
CREATE TABLE noise (g TEXT, v REAL);
INSERT INTO noise VALUES ('a', 0.1), ('a', 0.2), ('a', 0.3), ('b', 0.3), ('b', 0.2), ('b', 0.1), ('c', 1);
"""
GRAPH = "CREATE (:P {n:'x',a:1}), (:P {n:'y',a:1}), (:P {n:'z',a:2}), (:P {n:'w'}), (:P {n:'b',a:2});"
Run = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def engines() -> dict[Dialect, Run]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLE)
        files = {"sqlite": (SqliteJudge(), connection.serialize()), "cypher": (CypherJudge(), GRAPH.encode())}
    return {of: partial(judge.run, judge.content_of(file)[0], timeout_s=10) for of, (judge, file) in files.items()}


TIES: dict[str, tuple[Dialect, str, str | None]] = {
    "a key that is no column": ("sqlite", "SELECT n FROM t WHERE a > 0 ORDER BY a", "xy zq"),
    "LIMIT": ("sqlite", "SELECT n FROM t WHERE a > 0 ORDER BY a DESC LIMIT 3", "zq xy"),
    "NULL ties with NULL": ("sqlite", "SELECT n FROM t ORDER BY a NULLS FIRST", "vw xy zq"),
    "OFFSET": ("sqlite", "SELECT n FROM t ORDER BY a NULLS FIRST -- x\nLIMIT 2 OFFSET 1", None),
    "OFFSET within the first group": ("sqlite", "SELECT a FROM t WHERE a > 0 ORDER BY a LIMIT 1 OFFSET 1", None),
    "OFFSET before a comma": ("sqlite", "SELECT a FROM t WHERE a > 0 ORDER BY a LIMIT 1, 1", None),
    "a comma in the LIMIT": ("sqlite", "SELECT n FROM t WHERE a > 0 ORDER BY a LIMIT min(1, 2)", "xy zq"),
    "DISTINCT": ("sqlite", "SELECT DISTINCT n FROM t WHERE a = 1 ORDER BY n", "x y"),
    "fails": ("sqlite", "SELECT n FROM t ORDER BY no_such_column", None),
    "computed": ("sqlite", "SELECT n FROM t ORDER BY b < 0, n = 'x', a IS NULL LIMIT 3 OFFSET 1 + 1", None),
    "floats": ("sqlite", "SELECT g FROM noise GROUP BY g ORDER BY round(sum(v), 3)", "ab c"),
    "Cypher": ("cypher", "MATCH (p:P) WHERE p.a > 0 RETURN p.n ORDER BY p.a", "xy zb"),
    "SKIP within the first group": ("cypher", "MATCH (p:P {a: 1}) RETURN p.a AS m ORDER BY p.a SKIP 1", None),
    "SKIP": ("cypher", "MATCH (p:P) WHERE p.a > 0 RETURN p.n AS m ORDER BY p.a DESC SKIP 1 LIMIT 2", None),
    "Cypher's UNION": ("cypher", "MATCH (p:P) RETURN p.n UNION MATCH (q:P) RETURN q.n ORDER BY q.n", None),
}


@pytest.mark.parametrize(("dialect", "query", "groups"), TIES.values(), ids=TIES.keys())
def test_ties(engines: dict[Dialect, Run], dialect: Dialect, query: str, groups: str | None) -> None:
    try:
        rows = engines[dialect](query)
    except Stopped:
        rows = [("x",)]  # an engine that does not take the query: nor does it take the longer one
    columns = re.findall(r"(?<=RETURN )p\.n(?= )", query) or ["m"] if dialect == "cypher" else ["1"]
    ties = find_ties(query, dialect, Result(rows), engines[dialect], columns)
    if groups is None:
        assert ties is None
    else:
        assert ties is not None
        assert [sorted(name or "-" for (name,) in group) for group in ties] == [*map(sorted, groups.split())]


def test_numbers_of_one_hash_are_told_apart(engines: dict[Dialect, Run]) -> None:
    query, rows = "SELECT a FROM (SELECT -1 AS a UNION SELECT -2) ORDER BY a IS NULL", [(-1,), (-2,)]
    assert find_ties(query, "sqlite", Result(rows), engines["sqlite"], ["1"]) == [[(-2,), (-1,)]]


GROUPS = (((1.0, "a"), (1.0, "b")), ((2.0, "c"), (2.0, "d"), (2.0, "d")))


ORDERS = {
    "tied rows change places": ("bacdd", "abcdd", True),
    "across groups": ("acbdd", "abcdd", False),
    "a tied row twice": ("abccd", "abcdd", False),
    "another of those tied at a LIMIT": ("b", "a", True),
    "one that is not tied": ("c", "a", False),
    "one row twice at a LIMIT": ("cc", "dd", False),
    "one of two at a LIMIT": ("abdd", "abcd", True),
}


@pytest.mark.parametrize(("answer", "gold", "right"), ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("noise", [0.0, 1e-9, 9e-7, -9e-7])
def test_rows_are_right_in_any_order_that_is_left_open(answer: str, gold: str, right: bool, noise: float) -> None:
    number = {"a": 1.0, "b": 1.0, "c": 2.0, "d": 2.0}
    rows = [(number[name] * (1 + noise), name) for name in answer]
    assert same(rows, Result([(number[name], name) for name in gold], True, ties=GROUPS)) is right


def test_numbers_beyond_the_tolerance_are_wrong_also_where_a_limit_cuts_a_tie() -> None:
    cut = Result([(3.5, 1)], True, ties=[[(1.5, 1), (2.5, 1), (3.5, 1)]])
    assert [same([(2.5 + away, 1)], cut) for away in (2e-6, -2e-6, 3e-6, -3e-6)] == [True, True, False, False]
    cut = Result([(1.0,), (1.5,)], True, ties=[[(1.0,), (1.0 + 1e-6,), (1.5,), (2.5,)]])
    assert [same([(1.0,), (second,)], cut) for second in (1.0, 1.0 + 1e-6, 2.5, 2.0)] == [True, True, True, False]


def test_many_tied_rows_take_little_time() -> None:
    shuffled = [(1.0 + number / 1000, f"{number % 7}") for number in range(5_000)]
    random.Random(0).shuffle(shuffled)
    rows = [(number * (1 + 1e-9), name) for number, name in shuffled]
    ties = (tuple(shuffled),)
    start = time.perf_counter()
    assert same(rows[::-1], Result(shuffled, True, ties=ties))
    assert not same([*rows[:-1], (0.5, "x")], Result(shuffled, True, ties=ties))
    assert time.perf_counter() - start < 10  # alone 0.3 s


@pytest.mark.parametrize(
    ("dialect", "text", "statements"),
    [
        pytest.param("sqlite", " ;; -- x\n/* ; */ ;", [], id="no code"),
        pytest.param("sqlite", "SELECT 1;SELECT 2 ; ", ["SELECT 1", "SELECT 2"], id="two"),
        pytest.param("sqlite", "SELECT ';' ; SELECT 'it''s;'", ["SELECT ';'", "SELECT 'it''s;'"], id="texts"),
        pytest.param("sqlite", "SELECT 1 -- a; b\n, 2", ["SELECT 1 -- a; b\n, 2"], id="line comment"),
        pytest.param("cypher", r"RETURN 'it\'s;' ; RETURN 2", [r"RETURN 'it\'s;'", "RETURN 2"], id="escapes"),
    ],
)
def test_split(dialect: Dialect, text: str, statements: list[str]) -> None:
    assert split(text, dialect) == statements


@pytest.mark.parametrize(
    ("dialect", "query", "ordered"),
    [
        pytest.param("sqlite", "SELECT a FROM t ORDER BY a", True, id="outer"),
        pytest.param("sqlite", "SELECT a FROM t order\nby a LIMIT 1", True, id="lower case"),
        pytest.param("sqlite", "SELECT a FROM (SELECT a FROM t ORDER BY a)", False, id="subquery"),
        pytest.param("sqlite", "SELECT row_number() OVER (ORDER BY a) FROM t", False, id="window"),
        pytest.param("sqlite", "SELECT 'ORDER BY' FROM t -- ORDER BY", False, id="text and comment"),
        pytest.param("cypher", "MATCH (n) RETURN n ORDER BY n.x", True, id="Cypher"),
        pytest.param("cypher", "MATCH (n) WITH n ORDER BY n.x RETURN n", False, id="Cypher, before RETURN"),
        pytest.param("cypher", "CALL { MATCH (n) RETURN n ORDER BY n.x } RETURN n", False, id="Cypher, subquery"),
    ],
)
def test_orders_rows(dialect: Dialect, query: str, ordered: bool) -> None:
    assert orders_rows(query, dialect) is ordered


@pytest.mark.parametrize(
    ("query", "ordered"),
    [
        pytest.param("MATCH (n) RETURN collect(n.x) ORDER BY n.y", False, id="collected"),
        pytest.param("MATCH p = (n)-->(m) RETURN nodes(p), [x IN nodes(p) | x.y]", True, id="a path's nodes"),
        pytest.param("MATCH (n) RETURN [n.keys, 'collect(x)'] AS labels", True, id="names and texts"),
    ],
)
def test_orders_lists(query: str, ordered: bool) -> None:
    assert orders_lists(query) is ordered
