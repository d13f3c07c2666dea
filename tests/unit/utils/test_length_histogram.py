"""What is told of many lengths is what a list of them would tell."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from expert_cli.utils.length_histogram import LengthHistogram

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
