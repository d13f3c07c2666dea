"""A run of very few optimizer steps is told of."""

from __future__ import annotations

import pytest

from expert_cli.data.packing.batches import FEW_STEPS, Schedule, few_steps


def schedule(packs: int, batch: int, accumulation: int, *, epochs: float = 2.0, max_steps: int = -1) -> Schedule:
    return Schedule(packs, batch * accumulation, batch, 1, epochs, max_steps)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (schedule(1600, 16, 4, epochs=1.5), "38 optimizer steps in all, of 64 packs each"),
        (schedule(20, 4, 1), "10 optimizer steps"),
        (schedule(FEW_STEPS, 2, 1), ""),
        (schedule(20, 4, 1, max_steps=6), ""),
    ],
)
def test_few_steps_are_told_of_where_nobody_asked_for_them(made: Schedule, told: str) -> None:
    assert bool(few_steps(made)) == bool(told)
    assert told in few_steps(made)
