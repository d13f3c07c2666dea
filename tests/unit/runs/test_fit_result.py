"""What a run's losses are summed up as."""

from __future__ import annotations

import pytest

from expert_cli.runs.fit_result import mean_span


@pytest.mark.parametrize(("steps", "span"), [(1, 1), (2, 1), (5, 2), (9, 4), (10, 5), (1000, 5)])
def test_no_loss_is_in_the_means_of_both_ends(steps: int, span: int) -> None:
    assert mean_span(steps) == span
    assert 2 * span <= max(2, steps)
