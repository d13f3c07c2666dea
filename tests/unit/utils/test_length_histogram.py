"""What is told of many lengths is what a list of them would tell."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from expert_cli.utils.length_histogram import LengthHistogram

LENGTHS = st.lists(st.integers(1, 50), max_size=30)


@given(LENGTHS, LENGTHS)
def test_both_together_are_as_a_list_of_them(some: list[int], others: list[int]) -> None:
    both = LengthHistogram.of(np.array(some, np.int64)) + LengthHistogram.of(np.array(others, np.int64))
    lengths = sorted(some + others, reverse=True)
    assert (both.tokens, both.squares) == (sum(lengths), sum(length**2 for length in lengths))
    assert (both.longest, both.mean) == (max(lengths, default=0), sum(lengths) / max(1, len(lengths)))
    assert [both.largest(count) for count in range(len(lengths) + 2)] == [lengths[:n] for n in range(len(lengths) + 2)]


@given(LENGTHS.filter(bool), st.integers(0, 60))
def test_what_is_told_of_their_spread_is_what_numpy_tells_of_the_list(lengths: list[int], border: int) -> None:
    as_list = np.array(lengths, np.int64)
    counted = LengthHistogram.of_all(as_list[start : start + 7] for start in range(0, len(lengths), 7))
    assert len(counted) == len(lengths)
    for percent in (0, 1, 50, 90, 95, 99, 100):
        assert counted.percentile(percent) == np.percentile(as_list, percent, method="higher")
    for ours, numpys in zip(counted.binned(12), np.histogram(as_list, bins=12), strict=True):
        assert ours.tolist() == numpys.tolist()
    assert counted.beyond(border) == ((as_list > border).sum(), np.maximum(as_list - border, 0).sum())
