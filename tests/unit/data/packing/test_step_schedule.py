"""A run of very few optimizer steps is told of, with settings that make enough of them."""

from __future__ import annotations

import pytest

from expert_cli.data.packing.batches import FEW_STEPS, Schedule, few_steps


def schedule(packs: int, batch: int, accumulation: int, *, epochs: float = 2.0, max_steps: int = -1) -> Schedule:
    return Schedule(packs, batch * accumulation, batch, 1, epochs, max_steps)


FEW = {
    "less accumulation": (schedule(1600, 16, 4, epochs=1.5), "38 optimizer steps", (16, 3, 51)),
    "smaller micro-batches": (schedule(180, 16, 4), "6 optimizer steps", (7, 1, 52)),
    "as many as there are": (schedule(20, 4, 1), "10 optimizer steps", (1, 1, 40)),
}


@pytest.mark.parametrize(("made", "told", "better"), FEW.values(), ids=FEW.keys())
def test_what_makes_more_steps_is_named_and_really_does(
    made: Schedule, told: str, better: tuple[int, int, int]
) -> None:
    size, count, steps = better
    said = few_steps(made)
    assert told in said
    assert f"batch_size {size} and gradient_accumulation_steps {count} make {steps}" in said
    assert schedule(made.packs, size, count, epochs=made.epochs).steps == steps


def test_one_pack_a_step_leaves_epochs_and_rows() -> None:
    assert few_steps(schedule(20, 1, 1)).endswith("more epochs or more rows make more")


@pytest.mark.parametrize(
    "made", [schedule(FEW_STEPS, 2, 1), schedule(20, 4, 1, max_steps=6)], ids=["enough", "asked for"]
)
def test_enough_steps_and_steps_that_were_asked_for_are_not_told_of(made: Schedule) -> None:
    assert few_steps(made) == ""
