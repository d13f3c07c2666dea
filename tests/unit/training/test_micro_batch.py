"""How the packs of a step are split into micro-steps."""

from __future__ import annotations

from expert_cli.data.packing.step_schedule import Schedule
from expert_cli.training.micro_batch import merged, smaller


def test_merged_micro_steps_are_split_into_multiples_of_what_was_asked_for() -> None:
    whole = merged(Schedule(24, 30, 3, 1, 1.0, -1), 10)
    sizes = [whole]
    while sizes[-1].batch_size > 3:
        sizes.append(smaller(sizes[-1], 3))
    assert [(one.batch_size, one.accumulation) for one in sizes] == [(30, 1), (15, 2), (3, 10)]
