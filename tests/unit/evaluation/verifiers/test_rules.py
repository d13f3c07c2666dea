"""What each rule takes for equal: a row of the table in docs/JUDGING.md is a line here."""

from __future__ import annotations

import random
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers.query import QueryCase
from expert_cli.evaluation.verifiers.registry import VERIFIERS
from expert_cli.evaluation.verifiers.rows import MAX_ORDER_LOOKS, Result, Rule, Ties, judge_rows

NAN = float("nan")
RULES: tuple[Rule, ...] = ("strict", "spider")
ORDERED = {"ordered": True, "orders_within": True}


def passed(rule: Rule, rows: list[tuple[Any, ...]], expected: Result) -> bool:
    return judge_rows(rule, rows, [expected]).passed


@pytest.mark.parametrize(
    ("rows", "expected", "right_by"),
    [
        pytest.param([(1, "a")], Result([(1, "a")]), "strict spider", id="the same"),
        pytest.param([("a", 1), ("b", 2)], Result([(1, "a"), (2, "b")]), "spider", id="columns in another order"),
        pytest.param(
            [(1, 2), (2, 1)], Result([(1, 1), (2, 2)]), "", id="columns that fit one by one, rows that do not"
        ),
        pytest.param([(1, "a", 7), (2, "b", 7)], Result([(1, "a"), (2, "b")]), "", id="a column more"),
        pytest.param([("x", "a", 1)], Result([(1, "a")]), "", id="a column more, in another order"),
        pytest.param([(1,)], Result([(1, "a")]), "", id="a column less"),
        pytest.param([(1, 1)], Result([(1,), (1,)]), "", id="a row as columns"),
        pytest.param([(2,), (1,)], Result([(1,), (2,)]), "strict spider", id="rows in another order"),
        pytest.param([(2,), (1,)], Result([(1,), (2,)], **ORDERED), "", id="rows in another order, ORDER BY"),
        pytest.param([(2,), (1,)], Result([(1,), (2,)], orders_within=True), "strict", id="an inner ORDER BY"),
        pytest.param([("b", 1), ("a", 1)], Result([("b", 1), ("a", 1)], **ORDERED), "strict spider", id="in order"),
        pytest.param(
            [("a", 1), ("b", 1)],
            Result([("b", 1), ("a", 1)], **ORDERED, ties=Ties([[("a", 1), ("b", 1)]])),
            "strict",
            id="tied rows in another order",
        ),
        pytest.param([(1, "a"), (2, "b")], Result([("a", 1), ("b", 2)], **ORDERED), "spider", id="columns, ORDER BY"),
        pytest.param([(1,), (1,)], Result([(1,)]), "", id="a row twice"),
        pytest.param([(1,), (1,), (2,)], Result([(1,), (2,), (2,)]), "", id="another row twice"),
        pytest.param([(1, 7), (1, 7)], Result([(1,)]), "", id="a row twice and a column more"),
        pytest.param([(None,)], Result([(None,)]), "strict spider", id="NULL"),
        pytest.param([(None, 1)], Result([(1, None)]), "spider", id="NULL in another column"),
        pytest.param([(0,)], Result([(None,)]), "", id="NULL is not 0"),
        pytest.param([("",)], Result([(None,)]), "", id="NULL is no text"),
        pytest.param([(1.0,)], Result([(1,)]), "strict spider", id="a whole float"),
        pytest.param([(0.1 + 0.2,)], Result([(0.3,)]), "strict", id="noise in a float"),
        pytest.param([(1.000005,)], Result([(1.0,)]), "", id="five millionths"),
        pytest.param([(1.00002,)], Result([(1.0,)]), "", id="twenty millionths"),
        pytest.param([(1e-9,)], Result([(0.0,)]), "", id="nearly 0"),
        pytest.param([(1e-7,)], Result([(0,)]), "", id="not so nearly 0"),
        pytest.param([(-0.0,)], Result([(0.0,)]), "strict spider", id="-0.0"),
        pytest.param([(10_000_000,)], Result([(10_000_001,)]), "", id="whole numbers"),
        pytest.param([(2**53 + 1,)], Result([(2**53 + 1,)]), "strict spider", id="beyond floats"),
        pytest.param([(float(2**53),)], Result([(2**53 + 1,)]), "strict", id="a float near a number beyond floats"),
        pytest.param([(float("inf"), 1.5)], Result([(float("inf"), 1.5)]), "strict spider", id="infinite"),
        pytest.param([(1e300,)], Result([(float("inf"),)]), "", id="large is not infinite"),
        pytest.param([(True,)], Result([(1,)]), "spider", id="true and 1"),
        pytest.param([("1",)], Result([(1,)]), "", id="a text and a number"),
        pytest.param([("ada",)], Result([("Ada",)]), "", id="case of a text"),
        pytest.param([("Ada ",)], Result([("Ada",)]), "", id="a blank behind a text"),
        pytest.param([("2020-01-02",)], Result([("2020-01-02",)]), "strict spider", id="a date"),
        pytest.param([("2020-01-02 00:00:00",)], Result([("2020-01-02",)]), "", id="a date and its midnight"),
        pytest.param([], Result([]), "strict spider", id="nothing"),
        pytest.param([], Result([(1,)]), "", id="nothing, something expected"),
        pytest.param([(1,)], Result([]), "", id="something, nothing expected"),
        pytest.param([([2, 1],)], Result([([1, 2],)]), "", id="lists"),
        pytest.param([([2, 1], 5)], Result([(5, [1, 2])], ordered_lists=False), "spider", id="lists as multisets"),
    ],
)
def test_what_is_right_by_each_rule(rows: list[tuple[Any, ...]], expected: Result, right_by: str) -> None:
    assert " ".join(rule for rule in RULES if passed(rule, rows, expected)) == right_by


def test_why_an_answer_is_wrong_is_said() -> None:
    assert judge_rows("spider", [(0.1 + 0.2,)], [Result([(0.3,)])]) == Grade(
        "wrong", 'not the expected rows by the rule "spider"'
    )
    assert judge_rows("spider", [], [Result([(1,)])]) == Grade("empty", "no rows, 1 row expected")


def test_any_order_of_columns_is_found() -> None:
    chosen = random.Random(0)
    for _ in range(50):
        width, values = chosen.randint(1, 8), chosen.randint(1, 3)
        rows = [tuple(chosen.randint(0, values) for _ in range(width)) for _ in range(chosen.randint(1, 12))]
        order = chosen.sample(range(width), width)
        moved = [tuple(row[place] for place in order) for row in chosen.sample(rows, len(rows))]
        assert passed("spider", moved, Result(rows))
        changed = [(*moved[0][:-1], 9), *moved[1:]]
        assert not passed("spider", changed, Result(rows))


def test_wide_and_long_results_take_little_time() -> None:
    """Twelve equal columns have 479,001,600 orders; so have twelve that hold the same values in other rows."""
    start = time.perf_counter()
    equal = [(number % 50,) * 12 for number in range(20_000)]
    assert passed("spider", equal[::-1], Result(equal))
    columns = [random.Random(seed).sample(range(500), 500) for seed in range(12)]
    moved = [column[1:] + column[:1] if place == 5 else column for place, column in enumerate(columns)]
    assert not passed("spider", list(zip(*moved, strict=True)), Result(list(zip(*columns, strict=True))))
    assert time.perf_counter() - start < 10  # alone 0.4 s


def test_a_search_looks_no_further_than_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at columns of other values, nor twice at equal ones; and it ends."""
    assert MAX_ORDER_LOOKS >= 20_000 * 12
    monkeypatch.setattr("expert_cli.evaluation.verifiers.rows.MAX_ORDER_LOOKS", 100)
    apart = [tuple(f"{row} {place}" for place in range(12)) for row in range(8)]
    assert passed("spider", [row[::-1] for row in apart], Result(apart))
    bits = [(0, 0, 0, 0, 0), (0, 0, 1, 1, 1), (1, 1, 1, 1, 1), (1, 1, 0, 0, 0)]
    assert passed("spider", [(1, 1, 1, 1, 1), (1, 1, 1, 0, 0), (0, 0, 0, 1, 1), (0, 0, 0, 0, 0)], Result(bits))
    every = [tuple((number >> place) % 2 for place in range(6)) for number in range(64)]
    assert not passed("spider", [row[::-1] for row in every], Result(every))
    monkeypatch.setattr("expert_cli.evaluation.verifiers.rows.MAX_ORDER_LOOKS", MAX_ORDER_LOOKS)
    assert passed("spider", [row[::-1] for row in every], Result(every))


ANSWERS = [
    ("SELECT city, name FROM people", "SELECT name, city FROM people", "spider"),
    ("SELECT city FROM people", "SELECT DISTINCT city FROM people", "spider"),
    ("SELECT count(DISTINCT city) FROM people", "SELECT count(city) FROM people", "spider"),
    ("SELECT DISTINCT city FROM people", "SELECT 'DISTINCT' FROM people", ""),
    ("SELECT name FROM people ORDER BY name", "SELECT name FROM people ORDER BY name DESC", ""),
    ("SELECT name FROM people ORDER BY age, name DESC", "SELECT name FROM people ORDER BY age, name", ""),
    ("SELECT name FROM people ORDER BY age, name DESC", "SELECT name FROM people ORDER BY age", "strict"),
    ("SELECT name FROM people WHERE age = 2", "SELECT name FROM people ORDER BY age LIMIT 1", ""),
    ("SELECT 'Cid'", "SELECT name FROM people ORDER BY age DESC LIMIT 1", "strict"),
]


def test_a_case_names_its_rule(tmp_path: Path) -> None:
    """Ada and Bob are tied; of Cid and Dee, tied too, any may be the first."""
    database = tmp_path / "people.sqlite"
    connection = sqlite3.connect(database)
    connection.executescript("CREATE TABLE people (name TEXT, city TEXT, age INTEGER);")
    rows = [("Ada", "Rome", 1), ("Bob", "Rome", 1), ("Dee", "Oslo", 2), ("Cid", "Oslo", 2)]
    connection.executemany("INSERT INTO people VALUES (?, ?, ?)", rows)
    connection.commit()
    connection.close()
    for answer, expected, right_by in ANSWERS:
        row = {"verifier": "sql", "database": database.name, "expected": expected}
        cases = {rule: VERIFIERS["sql"].model_validate(row | {"rule": rule}) for rule in RULES}
        assert " ".join(rule for rule, case in cases.items() if case.grade(answer, database, 5).passed) == right_by, (
            answer
        )
        default = VERIFIERS["sql"].model_validate(row)
        assert isinstance(default, QueryCase)
        assert default.rule == "strict"


@pytest.mark.parametrize("rule", RULES)
def test_ties_are_those_of_each_content(tmp_path: Path, rule: Rule) -> None:
    """On the first content nothing is tied; on the second two rows are, and on those made of one."""
    for name, ages in (("first", (1, 2, 3)), ("second", (1, 1, 3))):
        connection = sqlite3.connect(tmp_path / f"{name}.sqlite")
        connection.execute("CREATE TABLE people (name TEXT, age INTEGER)")
        connection.executemany("INSERT INTO people VALUES (?, ?)", zip("abc", ages, strict=True))
        connection.commit()
        connection.close()
    row = {"verifier": "sql", "expected": "SELECT name FROM people ORDER BY age", "rule": rule}
    files = [str(tmp_path / "first.sqlite"), str(tmp_path / "second.sqlite")]
    for named in ({"database": files}, {"database": files[0], "perturb": 6}):
        case = VERIFIERS["sql"].model_validate(row | named)
        tied = case.grade("SELECT name FROM people ORDER BY age, name DESC", tmp_path / "first.sqlite", 10)
        assert tied.passed is (rule != "spider")
        across = case.grade("SELECT name FROM people ORDER BY age DESC", tmp_path / "first.sqlite", 10)
        assert not across.passed
