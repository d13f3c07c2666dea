"""An ORDER BY leaves open what its keys tie, and no more."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from expert_cli.evaluation.verifiers.query_text import Dialect
from expert_cli.evaluation.verifiers.rows import Result, Ties, find_ties, same
from expert_cli.evaluation.verifiers.sandbox.graphqlite import GraphQLiteEngine
from expert_cli.evaluation.verifiers.sandbox.isolation import Stopped
from expert_cli.evaluation.verifiers.sandbox.sqlite import SqliteEngine

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
        database = SqliteEngine(connection.serialize())
    graph = GraphQLiteEngine(GRAPH.encode())
    return {"sqlite": partial(database.run, timeout_s=10), "cypher": partial(graph.run, timeout_s=10)}


@pytest.mark.parametrize(
    ("letter", "query", "groups", "skipped"),
    [
        pytest.param("s", "SELECT n FROM t WHERE a > 0 ORDER BY a", "xy zq", 0, id="a key that is no column"),
        pytest.param("s", "SELECT n FROM t WHERE a > 0 ORDER BY a DESC LIMIT 3", "zq xy", 0, id="LIMIT"),
        pytest.param("s", "SELECT n FROM t ORDER BY a NULLS FIRST", "vw xy zq", 0, id="NULL ties with NULL"),
        pytest.param("s", "SELECT n FROM t ORDER BY a NULLS FIRST -- x\nLIMIT 2 OFFSET 1", "vw xy zq", 1, id="OFFSET"),
        pytest.param("s", "SELECT n FROM t ORDER BY a LIMIT 3, 2", "vw xy zq", 3, id="LIMIT with a comma"),
        pytest.param("s", "SELECT DISTINCT n FROM t WHERE a = 1 ORDER BY n", "x y", 0, id="DISTINCT"),
        pytest.param("s", "SELECT n FROM t WHERE a = 1 UNION SELECT 'k' ORDER BY 1", "k x y", 0, id="UNION"),
        pytest.param("s", "SELECT max(n) FROM t WHERE a > 0 GROUP BY a ORDER BY count(*)", "yz", 0, id="an aggregate"),
        pytest.param("s", "SELECT n FROM t ORDER BY no_such_column", None, 0, id="fails"),
        pytest.param(
            "s", "SELECT n FROM t WHERE n > 'v' ORDER BY n = 'x', (SELECT 1 LIMIT 1)", "wyz x", 0, id="subquery"
        ),
        pytest.param(
            "s", "SELECT n FROM t ORDER BY b < 0, n = 'x', a IS NULL LIMIT 3 OFFSET 1 + 1", None, 0, id="computed"
        ),
        pytest.param("s", "SELECT g FROM noise GROUP BY g ORDER BY round(sum(v), 3)", "ab c", 0, id="floats"),
        pytest.param("s", "SELECT n FROM t WHERE n = 'none' ORDER BY a", None, 0, id="no rows"),
        pytest.param("c", "MATCH (p:P) WHERE p.a > 0 RETURN p.n ORDER BY p.a", "xy zb", 0, id="Cypher"),
        pytest.param(
            "c", "MATCH (p:P) WHERE p.a > 0 RETURN p.n AS m ORDER BY p.a DESC SKIP 1 LIMIT 2", "zb xy", 1, id="SKIP"
        ),
        pytest.param("c", "MATCH (p:P) RETURN DISTINCT p.n ORDER BY p.n", "b w x y z", 0, id="Cypher's DISTINCT"),
        pytest.param(
            "c", "MATCH (p:P) RETURN p.n UNION MATCH (q:P) RETURN q.n ORDER BY q.n", None, 0, id="Cypher's UNION"
        ),
    ],
)
def test_ties(engines: dict[Dialect, Run], letter: str, query: str, groups: str | None, skipped: int) -> None:
    dialect: Dialect = "cypher" if letter == "c" else "sqlite"
    try:
        rows = engines[dialect](query)
    except Stopped:
        rows = [("x",)]  # an engine that does not take the query: nor does it take the longer one
    ties = find_ties(query, dialect, rows, engines[dialect])
    if groups is None:
        assert ties is None
    else:
        assert ties is not None
        assert [sorted(name or "-" for (name,) in group) for group in ties.groups] == [*map(sorted, groups.split())]
        assert ties.skipped == skipped


def test_what_two_runs_disagree_on_has_no_ties() -> None:
    """Rows of the one that the other lacks, and an engine that stops."""
    runs: list[list[tuple[Any, ...]]] = [[(1,), (2,)], [(2,), (3,)]]
    assert find_ties("SELECT a FROM t ORDER BY a", "sqlite", [(1,), (2,)], lambda _: runs.pop(0)) is None
    runs = [[(1,)], [(1,), (2,)]]
    assert find_ties("SELECT a FROM t ORDER BY a", "sqlite", [(1,)], lambda _: runs.pop(0)) is None
    runs = [[(2,), (1,)], [(2,), (1,)]]  # an engine that sorts otherwise when asked for more
    assert find_ties("SELECT a FROM t ORDER BY a", "sqlite", [(1,), (2,)], lambda _: runs.pop(0)) is None

    def stop(_: str) -> list[tuple[Any, ...]]:
        raise Stopped("timeout", "")

    assert find_ties("SELECT a FROM t ORDER BY a", "sqlite", [(1,), (2,)], stop) is None


def test_sums_that_differ_in_their_last_digits_are_one_row() -> None:
    runs: list[list[tuple[Any, ...]]] = [[(0.1 + 0.2,), (1.0,)], [(0.3,), (1.0,)]]
    ties = find_ties("SELECT a FROM t ORDER BY a", "sqlite", [(0.3,), (1.0,)], lambda _: runs.pop(0))
    assert ties == Ties((((0.1 + 0.2,),), ((1.0,),)))


def test_no_query_is_made_where_an_order_is_not_plainly_the_whole_results() -> None:
    for dialect, query in (
        ("cypher", "RETURN 1 AS a UNION RETURN 2 AS a ORDER BY a"),
        ("sqlite", "SELECT a FROM t ORDER BY"),
        ("sqlite", "SELECT a FROM t ORDER BY a LIMIT 1 OFFSET :x"),
    ):
        assert find_ties(query, dialect, [(1,), (2,)], pytest.fail) is None  # type: ignore[arg-type]


GROUPS = (((1.0, "a"), (1.0, "b")), ((2.0, "c"), (2.0, "d"), (2.0, "d")))


@pytest.mark.parametrize(
    ("answer", "gold", "skipped", "right"),
    [
        pytest.param("bacdd", "abcdd", 0, True, id="tied rows change places"),
        pytest.param("abdcd", "abcdd", 0, True, id="in the second group"),
        pytest.param("acbdd", "abcdd", 0, False, id="across groups"),
        pytest.param("abccd", "abcdd", 0, False, id="a tied row twice"),
        pytest.param("b", "a", 0, True, id="another of those tied at a LIMIT"),
        pytest.param("c", "a", 0, False, id="one that is not tied"),
        pytest.param("abd", "abc", 0, True, id="a LIMIT within a group"),
        pytest.param("bad", "abc", 0, True, id="both"),
        pytest.param("cc", "dd", 2, False, id="one row twice at a LIMIT"),
        pytest.param("dd", "cd", 2, True, id="two equal rows"),
        pytest.param("ac", "bc", 1, True, id="an OFFSET within a group"),
        pytest.param("cb", "bc", 1, False, id="an OFFSET, across groups"),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_rows_are_right_in_any_order_that_is_left_open(
    answer: str, gold: str, skipped: int, right: bool, noise: float
) -> None:
    ties = Ties(GROUPS, skipped)
    number = {"a": 1.0, "b": 1.0, "c": 2.0, "d": 2.0}
    rows = [(number[name] * (1 + noise), name) for name in answer]
    assert same(rows, Result([(number[name], name) for name in gold], True, ties=ties)) is right


def test_many_tied_rows_take_little_time() -> None:
    shuffled = [(1.0 + number / 1000, f"{number % 7}") for number in range(5_000)]
    random.Random(0).shuffle(shuffled)
    rows = [(number * (1 + 1e-9), name) for number, name in shuffled]
    ties = Ties((tuple(shuffled),))
    start = time.perf_counter()
    assert same(rows[::-1], Result(shuffled, True, ties=ties))
    assert not same([*rows[:-1], (0.5, "x")], Result(shuffled, True, ties=ties))
    assert not same(rows[2_500:], Result(shuffled[:2_500], True, ties=ties))  # too many pairs: given up
    assert time.perf_counter() - start < 10  # alone 0.3 s
