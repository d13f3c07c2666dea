"""Intervals and ratios, on numbers whose answers are known."""

from __future__ import annotations

import math
from itertools import combinations
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expert_cli.utils.length_histogram import LengthHistogram
from expert_cli.utils.statistics import Paired, mean_of, paired_ratio, pass_at, t_quantile, wilson


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    # the usual tables of Student's t
    [(1, 12.706), (1.9, 12.706), (2, 4.303), (4.7, 2.776), (10, 2.228), (30, 2.042), (31, 2.0395), (40, 2.0211),
     (60, 2.0003), (120, 1.9799), (1e9, 1.95996)],
)  # fmt: skip
def test_quantiles_of_t(degrees: float, quantile: float) -> None:
    assert t_quantile(degrees) == pytest.approx(quantile, abs=5e-4)


def test_a_mean_and_its_interval() -> None:
    found = mean_of([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.ci95 == pytest.approx((2 - 4.3027 / math.sqrt(3), 2 + 4.3027 / math.sqrt(3)))
    assert mean_of([5.0]).as_json() == {"mean": 5.0, "ci95": None}


def test_a_ratio_of_pairs() -> None:
    found = paired_ratio([math.e**3, math.e**2], [1.0, math.e])
    assert found.mean == pytest.approx(math.e**2)
    # logs 3 and 1: sd sqrt(2), standard error 1
    assert found.ci95 == pytest.approx((math.exp(2 - 12.7062), math.exp(2 + 12.7062)))
    assert paired_ratio([3.0], [2.0]).as_json() == {"mean": pytest.approx(1.5), "ci95": None}


@pytest.mark.parametrize(
    ("correct", "cases", "low", "high"),
    [
        pytest.param(0, 10, 0.0, 0.27753, id="none"),
        pytest.param(10, 10, 0.72247, 1.0, id="all"),
        pytest.param(5, 10, 0.23659, 0.76341, id="half"),
        pytest.param(57, 60, 0.86301, 0.98286, id="most"),
    ],
)
def test_wilson(correct: int, cases: int, low: float, high: float) -> None:
    assert wilson(correct, cases) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize(
    ("cases", "lost", "gained", "interval"),
    [
        # 3/22 ± 1.96 * sqrt((7/22 - (3/22)**2) / 22)
        pytest.param(20, 4, 1, (-0.0923532, 0.3650805), id="some differ"),
        # ± 1.96 * sqrt(2) / 152
        pytest.param(150, 0, 0, (-0.0182357, 0.0182357), id="none differs"),
        pytest.param(144, 0, 144, (-1.0, -0.9595447), id="all are gained"),
        pytest.param(144, 144, 0, (0.9595447, 1.0), id="all are lost"),
        pytest.param(1, 1, 0, (-0.7335359, 1.0), id="one pair"),
    ],
)
def test_the_interval_of_a_drop(cases: int, lost: int, gained: int, interval: tuple[float, float]) -> None:
    assert Paired(cases, lost, gained).ci95 == pytest.approx(interval, abs=1e-6)


def test_a_rise_is_the_drop_of_the_reversed_pairs() -> None:
    rise, pairs = Paired(20, 1, 4).rise(), Paired(20, 4, 1)
    assert rise == {"difference": pairs.drop, "ci95": list(pairs.ci95), "gained": 4, "lost": 1}
    assert f"{Paired(20, 2, 2).rise()['difference']:+.1%}" == "+0.0%"


@pytest.mark.parametrize("tries", range(1, 8))
def test_pass_at_k_is_the_share_of_all_choices_of_k_tries_that_hold_a_right_one(tries: int) -> None:
    for correct in range(tries + 1):
        passed = [number < correct for number in range(tries)]
        for k in range(1, tries + 1):
            assert pass_at(k, correct, tries) == pytest.approx(fmean(map(any, combinations(passed, k))))


LENGTHS = st.lists(st.integers(1, 50), max_size=30)


@given(LENGTHS, st.integers(0, 60))
def test_what_is_told_of_lengths_is_what_numpy_tells_of_the_list(lengths: list[int], border: int) -> None:
    as_list = np.array(lengths, np.int64)
    counted, ordered = LengthHistogram.of(as_list), sorted(lengths, reverse=True)
    assert (counted.tokens, counted.squares) == (sum(lengths), sum(length**2 for length in lengths))
    assert (counted.longest, counted.mean) == (max(lengths, default=0), sum(lengths) / max(1, len(lengths)))
    assert [counted.largest(count) for count in range(len(lengths) + 2)] == [
        ordered[:n] for n in range(len(lengths) + 2)
    ]
    assert len(counted) == len(lengths)
    assert counted.beyond(border) == ((as_list > border).sum(), np.maximum(as_list - border, 0).sum())
    if lengths:
        for percent in (0, 1, 50, 90, 95, 99, 100):
            assert counted.percentile(percent) == np.percentile(as_list, percent, method="higher")
