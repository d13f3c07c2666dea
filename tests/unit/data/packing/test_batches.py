"""Batches: the same packs for any number of processes, from any step of an epoch on; borders and targets counted on the CPU."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accelerate.data_loader import skip_first_batches
from torch.utils.data import DataLoader

from expert_cli.data.packing.batches import (
    Batch,
    Collator,
    PackedBatchSampler,
    Schedule,
    once_in_turn,
)
from expert_cli.data.packing.packed_dataset import FILLER
from expert_cli.data.packing.random_fit import epoch_order, grouped_order
from tests.packs import END, packed


def batches(schedule: Schedule, epoch: int = 0, *, rank: int = 0) -> PackedBatchSampler:
    made = PackedBatchSampler(schedule, lambda epoch: epoch_order(schedule.packs, 7, epoch), rank=rank)
    made.set_epoch(epoch)
    return made


def test_packed_batches_hold_no_padding(tmp_path: Path) -> None:
    dataset = packed(tmp_path, (2, 2), (1, 1), packing="off")
    batch = Collator(pad_id=END)([dataset[0, 0], dataset[0, 1]])
    assert batch["input_ids"].tolist() == [[100, 101, 200, END, 100, END]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 0, 1]]
    assert batch["cu_seqlens"].tolist() == [0, 4, 6]
    assert batch["max_seqlen"] == 4
    assert (batch["target_positions"].tolist(), batch["targets"].tolist()) == ([1, 2, 4], [200, END, END])
    assert batch["real_tokens"] == 6


def test_padding_is_a_document_that_trains_nothing(tmp_path: Path) -> None:
    dataset = packed(tmp_path, (2, 2), (1, 1), packing="off")
    batch = Collator(pad_id=END, layout="padded")([dataset[0, 0], dataset[0, 1]])
    assert batch["input_ids"].tolist() == [[100, 101, 200, END], [100, END, END, END]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3], [0, 1, 0, 1]]
    assert (batch["target_positions"].tolist(), batch["targets"].tolist()) == ([1, 2, 4], [200, END, END])
    assert batch["real_tokens"] == 6


@pytest.mark.parametrize("layout", ["packed", "padded", "rows"])
def test_a_batch_of_nothing_is_one_place_of_padding(tmp_path: Path, layout: str) -> None:
    batch = Collator(pad_id=END, layout=layout)([packed(tmp_path, (2, 2))[FILLER]])  # type: ignore[arg-type]
    assert batch["input_ids"].tolist() == [[END]]
    assert (len(batch["targets"]), batch["real_tokens"]) == (0, 0)


SCHEDULES = {
    "even": Schedule(packs=12, packs_per_step=4, batch_size=2, processes=1, epochs=2.0, max_steps=-1),
    "uneven": Schedule(packs=13, packs_per_step=4, batch_size=2, processes=1, epochs=2.0, max_steps=-1),
    "fewer packs than a step": Schedule(3, packs_per_step=8, batch_size=4, processes=1, epochs=3.0, max_steps=-1),
    "a step that is cut short": Schedule(20, packs_per_step=6, batch_size=4, processes=1, epochs=2.0, max_steps=-1),
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_every_step_takes_the_next_packs_of_its_epoch(schedule: Schedule) -> None:
    for epoch in range(3):
        sampler = batches(schedule, epoch)
        micro, order = iter(sampler), [(epoch, pack) for pack in epoch_order(schedule.packs, 7, epoch).tolist()]
        for within in range(schedule.steps_per_epoch):
            step = epoch * schedule.steps_per_epoch + within
            taken = [pack for batch in islice(micro, schedule.accumulation) for pack in batch]
            assert taken == order[within * schedule.packs_per_step :][: schedule.packs_per_step]
            assert sampler.packs_of(step)[1].tolist() == [pack for _, pack in taken]
        assert next(micro, None) is None
        assert len(sampler) == len(list(sampler))
        # all steps but the last have as many, as the Trainer counts on
        full = (schedule.steps_per_epoch - 1) * schedule.accumulation
        assert full < len(sampler) <= full + schedule.accumulation


@pytest.mark.parametrize(
    ("epochs", "max_steps", "steps", "begun"),
    [(2.0, -1, 10, 2), (1.5, -1, 8, 2), (0.1, -1, 1, 1), (1.2, -1, 6, 2), (1.0, 11, 11, 3), (9.0, 5, 5, 1)],
)
def test_epochs_and_steps_that_are_asked_for(epochs: float, max_steps: int, steps: int, begun: int) -> None:
    made = Schedule(packs=20, packs_per_step=4, batch_size=2, processes=1, epochs=epochs, max_steps=max_steps)
    assert (made.steps, made.epochs_begun) == (steps, begun)


@pytest.mark.parametrize("processes", range(1, 8))
@pytest.mark.parametrize("packs", [1, 5, 8, 9, 16])
def test_any_number_of_processes_shares_out_the_packs_of_the_same_steps(packs: int, processes: int) -> None:
    one = Schedule(packs=packs, packs_per_step=4, batch_size=2, processes=1, epochs=1.0, max_steps=-1)
    many = replace(one, processes=processes)
    assert one.steps == many.steps
    shares = [iter(batches(many, rank=rank)) for rank in range(processes)]
    for step in range(one.steps):
        taken = [pack for share in shares for batch in islice(share, many.accumulation) for pack in batch]
        epoch, packs_of_step = batches(one).packs_of(step)
        assert sorted(pack for pack in taken if pack != FILLER) == sorted((epoch, int(pack)) for pack in packs_of_step)
    assert [next(share, None) for share in shares] == [None] * processes


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_what_transformers_skips_leaves_the_rest_of_the_epoch(tmp_path: Path, schedule: Schedule) -> None:
    data = packed(tmp_path, *((n + 1, 1) for n in range(schedule.packs)), packing="off")
    sampler, wanted = batches(schedule), list(batches(schedule, 1))
    loader: DataLoader[Batch] = DataLoader(data, batch_sampler=sampler, collate_fn=Collator(0))
    for steps in range(schedule.steps_per_epoch):
        skipped: Any = skip_first_batches(loader, steps * schedule.accumulation)
        skipped.batch_sampler.batch_sampler.set_epoch(1)  # as the Trainer reaches it
        rest = [Collator(0)([data[place] for place in places]) for places in wanted[steps * schedule.accumulation :]]
        assert [batch["cu_seqlens"].tolist() for batch in skipped] == [batch["cu_seqlens"].tolist() for batch in rest]
    sampler.set_epoch(0)
    assert list(sampler) == list(batches(schedule, 0))


def test_evaluation_sees_every_pack_once() -> None:
    training = Schedule(packs=9, packs_per_step=6, batch_size=2, processes=1, epochs=2.5, max_steps=7)
    assert list(once_in_turn(training, 5, 0)) == [[(0, 0), (0, 1)], [(0, 2), (0, 3)], [(0, 4)]]
    assert len(once_in_turn(training, 5, 0)) == 3
    shares = [list(once_in_turn(replace(training, processes=2), 5, rank)) for rank in range(2)]
    assert shares == [[[(0, 0), (0, 1)], [(0, 4)]], [[(0, 2), (0, 3)], [FILLER]]]


def lengths(count: int) -> np.ndarray:
    return np.random.default_rng(1).integers(1, 500, count)


def test_neighbors_in_a_grouped_order_have_similar_lengths() -> None:
    sizes = lengths(4000)

    def padding_share(order: np.ndarray) -> float:
        rows = sizes[order].reshape(-1, 8)
        return float(1 - rows.sum() / (rows.max(axis=1).sum() * 8))

    assert padding_share(np.arange(4000)) > 0.4
    assert padding_share(grouped_order(sizes, 8, 0, 0)) < 0.03
