"""When two results are the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers.rows import Result, judge_rows, same

NAN = float("nan")


@pytest.mark.parametrize(
    ("rows", "expected", "equal"),
    [
        pytest.param([], Result([]), True, id="nothing"),
        pytest.param([(1,), (2,)], Result([(2,), (1,)]), True, id="a multiset"),
        pytest.param([(1,), (2,)], Result([(2,), (1,)], ordered=True), False, id="in order"),
        pytest.param([(1,), (1,)], Result([(1,), (2,)]), False, id="counts of rows"),
        pytest.param([(None,)], Result([(None,)]), True, id="NULL"),
        pytest.param([(None,)], Result([("",)]), False, id="NULL is no text"),
        pytest.param([(0,)], Result([(None,)]), False, id="NULL is not 0"),
        pytest.param([(1, "a")], Result([("a", 1)]), False, id="order of columns"),
        pytest.param([(1.0000001,)], Result([(1,)]), True, id="within the tolerance"),
        pytest.param([(1.00001,)], Result([(1,)]), False, id="beyond the tolerance"),
        pytest.param([(10**7,)], Result([(10**7 + 1,)]), False, id="whole numbers exactly"),
        pytest.param([(10**400,)], Result([(1.0,)]), False, id="beyond floats"),
        pytest.param([(NAN,)], Result([(NAN,)]), True, id="not a number"),
        pytest.param([(NAN,)], Result([(0.0,)]), False, id="not a number is not 0"),
        pytest.param([(True,)], Result([(1,)]), False, id="true is not 1"),
        pytest.param([(1.0000001, "b"), (1.0, "a")], Result([(1.0, "b"), (1.0, "a")]), True, id="noise before text"),
        pytest.param([(1.0000001, 5), (1.0, 9)], Result([(1.0, 5), (1.0, 9)]), True, id="noise before a number"),
        pytest.param([(1.0000001, 5.5), (1.0, 9.5)], Result([(1.0, 5.5), (1.0, 9.5)]), True, id="noise before a float"),
        pytest.param([([2, 1],)], Result([([1, 2],)]), False, id="lists in order"),
        pytest.param([([2, 1, None],)], Result([([None, 1, 2],)], ordered_lists=False), True, id="lists as multisets"),
        pytest.param([({"a": 1, "b": 2.0},)], Result([({"b": 2, "a": 1},)]), True, id="maps without order"),
        pytest.param([({"a": 1},)], Result([({"b": 1},)]), False, id="keys of maps"),
        pytest.param([("x61",)], Result([(b"a",)]), False, id="a text is no blob"),
    ],
)
def test_same(rows: list[tuple[Any, ...]], expected: Result, equal: bool) -> None:
    assert same(rows, expected) is equal


CELLS = st.one_of(st.none(), st.integers(-5, 5), st.floats(-3, 3, width=16), st.sampled_from(["", "a", "1"]))
ROWS = st.lists(st.tuples(CELLS, CELLS), max_size=8)


@given(ROWS, st.randoms(use_true_random=False))
def test_a_shuffled_result_with_noise_is_the_same(rows: list[tuple[Any, ...]], random: Any) -> None:
    noisy = [tuple(cell * (1 + 1e-8) if isinstance(cell, float) else cell for cell in row) for row in rows]
    random.shuffle(noisy)
    assert same(noisy, Result(rows))


@given(ROWS, ROWS)
def test_without_floats_the_same_is_an_equal_multiset(one: list[tuple[Any, ...]], other: list[tuple[Any, ...]]) -> None:
    one, other = ([tuple(str(c) if isinstance(c, float) else c for c in row) for row in rows] for rows in (one, other))
    assert same(one, Result(other)) is (sorted(one, key=repr) == sorted(other, key=repr))


@pytest.mark.parametrize(
    ("rows", "accepted", "kind", "detail"),
    [
        pytest.param([(2,)], [Result([(1,)]), Result([(2,)])], "correct", "", id="one of two"),
        pytest.param([], [Result([(1,)])], "empty", "no rows, 1 row expected", id="empty"),
        pytest.param([(1,)], [Result([])], "wrong", "1 row, 0 rows expected", id="too many"),
        pytest.param([(1, 2)], [Result([(1,)])], "wrong", "2 column(s), 1 expected", id="columns"),
        pytest.param([(2,)], [Result([(1,)])], "wrong", "row 1 is (2), (1) expected", id="one value"),
        pytest.param([(1,), (3,)], [Result([(1,), (2,)])], "wrong", "row 2, (3), is not expected", id="one row"),
        pytest.param(
            [(1,), (2,)], [Result([(2,), (1,)], ordered=True)], "wrong", "the same rows in another order", id="order"
        ),
        pytest.param([(1,), (1,)], [Result([(1,), (2,)])], "wrong", "rows that are expected once come", id="repeated"),
    ],
)
def test_the_difference_is_said(rows: Any, accepted: list[Result], kind: str, detail: str) -> None:
    verdict = judge_rows("strict", rows, accepted)
    assert verdict.kind == kind
    assert verdict.detail.startswith(detail)
    assert bool(verdict.detail) is bool(detail)


@pytest.mark.parametrize(
    ("noise", "detail"), [(0.0, "rows that are expected once come several times"), (1e-9, "other rows")]
)
def test_what_differs_in_many_rows_is_not_looked_for_for_ever(noise: float, detail: str) -> None:
    """By every pair of rows it was 400 million comparisons."""
    expected = [(float(number),) for number in range(1, 20_001)]
    rows = [(number * (1 + noise),) for (number,) in [*expected[:-1], expected[0]]]
    assert judge_rows("strict", rows, [Result(expected)]) == Grade("wrong", detail)
