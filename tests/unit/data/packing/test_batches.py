"""Batches: the same packs for any number of processes, from any step on; borders and targets counted on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from expert_cli.data.packing.batches import Batch, Collator, PackedBatchSampler, once_in_turn
from expert_cli.data.packing.dataset import FILLER, PackedDataset
from expert_cli.data.packing.epoch_packs import EpochPacks
from expert_cli.data.packing.order import epoch_order, grouped_order
from expert_cli.data.packing.step_schedule import Schedule
from tests.packs import END, Lengths, packed


def batches(schedule: Schedule, *, rank: int = 0, first_step: int = 0) -> PackedBatchSampler:
    return PackedBatchSampler(
        schedule, lambda epoch: epoch_order(schedule.packs(epoch), 7, epoch), rank=rank, first_step=first_step
    )


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


def test_a_fixed_shape_is_filled_with_one_more_document(tmp_path: Path) -> None:
    dataset = packed(tmp_path, (2, 2))
    batch = Collator(pad_id=END, fixed_tokens=7)([dataset[0, 0]])
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 0, 1, 2]]
    assert batch["cu_seqlens"].tolist() == [0, 4, 7]
    assert batch["targets"].tolist() == [200, END]
    assert batch["real_tokens"] == 4


@pytest.mark.parametrize("longest", [4, 6])
@pytest.mark.parametrize("tokens", [4, 5, 8, 9, 12, 64])
def test_no_document_of_a_fixed_shape_is_longer_than_is_told(tmp_path: Path, tokens: int, longest: int) -> None:
    """And the same is told of every batch, however long its documents are: another number would be compiled anew."""
    dataset = packed(tmp_path, (2, 2))
    for place in (dataset[0, 0], dataset[FILLER]):
        batch = Collator(pad_id=END, fixed_tokens=tokens, longest=longest)([place])
        assert batch["input_ids"].shape == (1, tokens)
        assert batch["max_seqlen"] == longest
        assert 0 < int(batch["cu_seqlens"].diff().min()) <= int(batch["cu_seqlens"].diff().max()) <= longest
        assert batch["cu_seqlens"][-1] == tokens


@pytest.mark.parametrize(("longest", "places"), [(0, 4), (8, 24)], ids=["any shape", "one shape"])
def test_a_fixed_shape_has_room_for_every_pack_of_a_micro_batch(tmp_path: Path, longest: int, places: int) -> None:
    dataset = packed(tmp_path, (2, 2))
    batch = Collator(pad_id=END, longest=longest).for_batches(3)([dataset[0, 0]])
    assert batch["input_ids"].numel() == places
    assert batch["max_seqlen"] == (longest or 4)


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_a_batch_of_nothing_is_one_place_of_padding(tmp_path: Path, layout: str) -> None:
    batch = Collator(pad_id=END, layout=layout)([packed(tmp_path, (2, 2))[FILLER]])  # type: ignore[arg-type]
    assert batch["input_ids"].tolist() == [[END]]
    assert (len(batch["targets"]), batch["real_tokens"]) == (0, 0)


def always(packs: int) -> Callable[[int], int]:
    return lambda _: packs


SCHEDULES = {
    "even": Schedule(packs=always(12), packs_per_step=4, batch_size=2, processes=1, epochs=2.0, max_steps=-1),
    "uneven": Schedule(packs=always(13), packs_per_step=4, batch_size=2, processes=1, epochs=2.0, max_steps=-1),
    "fewer packs than a step": Schedule(
        packs=always(3), packs_per_step=8, batch_size=4, processes=1, epochs=3.0, max_steps=-1
    ),
    "part of an epoch": Schedule(
        packs=always(20), packs_per_step=2, batch_size=2, processes=1, epochs=1.5, max_steps=-1
    ),
    "other packs in every epoch": Schedule([9, 8, 13, 8, 8].__getitem__, 4, 2, 1, 2.5, -1),
    "by steps": Schedule(packs=always(5), packs_per_step=2, batch_size=2, processes=1, epochs=1.0, max_steps=7),
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_every_step_takes_the_next_packs_of_its_epoch(schedule: Schedule) -> None:
    micro = iter(batches(schedule))
    for step in range(schedule.steps):
        taken = [pack for _ in range(schedule.micro_steps(step)) for pack in next(micro)]
        epoch = sum(step >= end for end in accumulate(map(schedule.steps_of, range(4))))
        order = [(epoch, pack) for pack in epoch_order(schedule.packs(epoch), 7, epoch).tolist()]
        first = (step - sum(map(schedule.steps_of, range(epoch)))) * schedule.packs_per_step
        assert taken == order[first : first + schedule.packs_per_step]
    assert next(micro, None) is None


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_going_on_at_a_step_gives_the_rest_of_the_batches(schedule: Schedule) -> None:
    everything = list(batches(schedule))
    for first in range(schedule.steps):
        skipped = sum(schedule.micro_steps(step) for step in range(first))
        assert list(batches(schedule, first_step=first)) == everything[skipped:]


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("packs", [1, 5, 8, 9, 16])
def test_any_number_of_processes_shares_out_the_packs_of_the_same_steps(packs: int, processes: int) -> None:
    one = Schedule(packs=always(packs), packs_per_step=4, batch_size=2, processes=1, epochs=1.0, max_steps=-1)
    many = replace(one, processes=processes)
    assert one.steps == many.steps
    shares = [iter(batches(many, rank=rank)) for rank in range(processes)]
    for step in range(one.steps):
        taken = [pack for share in shares for _ in range(many.micro_steps(step)) for pack in next(share)]
        epoch, packs_of_step = PackedBatchSampler(one, lambda epoch: epoch_order(packs, 7, epoch)).packs_of(step)
        assert sorted(pack for pack in taken if pack != FILLER) == sorted((epoch, int(pack)) for pack in packs_of_step)
    assert [next(share, None) for share in shares] == [None] * processes


def test_evaluation_sees_every_pack_once() -> None:
    training = Schedule(packs=always(9), packs_per_step=6, batch_size=2, processes=1, epochs=2.5, max_steps=7)
    five = EpochPacks(Lengths(np.ones(5, np.int64)), 1, "off", "truncate", 0)
    assert list(once_in_turn(training, five, 0)) == [[(0, 0), (0, 1)], [(0, 2), (0, 3)], [(0, 4)]]
    assert len(once_in_turn(training, five, 0)) == 3
    shares = [list(once_in_turn(replace(training, processes=2), five, rank)) for rank in range(2)]
    assert shares == [[[(0, 0), (0, 1)], [(0, 4)]], [[(0, 2), (0, 3)], [FILLER]]]


def loaded(dataset: PackedDataset, schedule: Schedule, **settings: object) -> list[Batch]:
    return list(
        DataLoader(dataset, batch_sampler=batches(schedule), collate_fn=Collator(0), **settings)  # type: ignore[arg-type]
    )


def test_a_spawned_worker_gives_the_same_batches(tmp_path: Path) -> None:
    dataset = packed(tmp_path, *((n % 5, n % 3 + 1) for n in range(24)), capacity=12)
    schedule = Schedule(dataset.packs.count, packs_per_step=2, batch_size=2, processes=1, epochs=2.0, max_steps=-1)
    alone = loaded(dataset, schedule)
    spawned = loaded(dataset, schedule, num_workers=1, multiprocessing_context="spawn")
    assert len(alone) > 1
    for mine, theirs in zip(alone, spawned, strict=True):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            assert torch.equal(value, theirs[name]) if isinstance(value, torch.Tensor) else value == theirs[name]


def lengths(count: int) -> np.ndarray:
    return np.random.default_rng(1).integers(1, 500, count)


def test_a_grouped_order_depends_on_seed_and_epoch_alone() -> None:
    def order(seed: int, epoch: int) -> tuple[int, ...]:
        return tuple(grouped_order(lengths(100), 8, seed, epoch).tolist())

    assert order(1, 2) == order(1, 2)
    assert len({order(seed, epoch) for seed in range(3) for epoch in range(3)}) == 9


def test_neighbors_in_a_grouped_order_have_similar_lengths() -> None:
    sizes = lengths(4000)

    def padding_share(order: np.ndarray) -> float:
        rows = sizes[order].reshape(-1, 8)
        return float(1 - rows.sum() / (rows.max(axis=1).sum() * 8))

    assert padding_share(np.arange(4000)) > 0.4
    assert padding_share(grouped_order(sizes, 8, 0, 0)) < 0.03
