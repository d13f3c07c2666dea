"""Portions: a large epoch in parts, of which only one is looked at; all documents once, in the same packs however asked for."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from expert_cli.data.packing.batches import Collator, PackedBatchSampler, once_in_turn, orders_of, schedule_of
from expert_cli.data.packing.dataset import FILLER, PackedDataset
from expert_cli.data.packing.epoch_packs import EpochPacks
from expert_cli.data.packing.portions import documents_of, portions_of
from expert_cli.manifest.keys.loader import Packing
from tests.packs import Lengths, packed

TWENTY = np.array([3, 9, 4, 4, 6, 1, 7, 2, 5, 8, 3, 3, 9, 2, 6, 7, 1, 1, 4, 5])
"""Documents of three portions: of 6, 7 and 7."""
PACKINGS: list[Packing] = ["random", "best_fit", "off", "concat"]


def twenty(packing: Packing = "random", portion: int = 7) -> EpochPacks:
    return EpochPacks(Lengths(TWENTY), 10, packing, "truncate", 42, portion=portion)


def a_run(*, group_by_length: bool = False, batch_size: int = 2) -> Any:
    """The settings that decide an order of packs and its steps."""
    optim = SimpleNamespace(batch_size=batch_size, gradient_accumulation_steps=2, epochs=3.0, max_steps=-1)
    return SimpleNamespace(seed=42, optim=optim, loader=SimpleNamespace(group_by_length=group_by_length))


def trained(packs: EpochPacks, epoch: int, *, group_by_length: bool = False) -> list[int]:
    """The numbers of the packs of an epoch as they are trained."""
    data: Any = SimpleNamespace(packs=packs)
    order = orders_of(a_run(group_by_length=group_by_length), data)(epoch)
    return order[np.arange(packs.count(epoch))].tolist()


@pytest.mark.parametrize(
    ("documents", "largest", "portions"), [(0, 7, 1), (7, 7, 1), (8, 7, 2), (21, 7, 3), (22, 7, 4)]
)
@pytest.mark.parametrize("epoch", [0, 1])
def test_every_document_is_in_one_portion_of_like_size(documents: int, largest: int, portions: int, epoch: int) -> None:
    assert portions_of(documents, largest) == portions
    drawn = [documents_of(portion, portions, documents, 1, epoch).tolist() for portion in range(portions)]
    assert sorted(chain.from_iterable(drawn)) == list(range(documents))
    assert all(part == sorted(part) for part in drawn)
    assert max(map(len, drawn)) - min(map(len, drawn)) <= 1


def test_portions_are_the_same_everywhere_and_others_in_every_epoch() -> None:
    first = [documents_of(portion, 3, 20, 42, 0).tolist() for portion in range(3)]
    assert first == [[3, 9, 12, 14, 16, 17], [1, 2, 4, 7, 13, 15, 18], [0, 5, 6, 8, 10, 11, 19]]
    assert first[0] != documents_of(0, 3, 20, 42, 1).tolist() != documents_of(0, 3, 20, 43, 0).tolist() != first[0]


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("group_by_length", [False, True], ids=["shuffled", "grouped"])
def test_every_token_is_trained_once_an_epoch(packing: Packing, *, group_by_length: bool) -> None:
    packs = twenty(packing)
    for epoch in range(3):
        tokens = [
            (document, token)
            for number in trained(packs, epoch, group_by_length=group_by_length)
            for document, start, stop in zip(*map(np.ndarray.tolist, packs.pack(epoch, number)), strict=True)
            for token in range(start, stop)
        ]
        assert sorted(tokens) == [(d, token) for d, length in enumerate(TWENTY.tolist()) for token in range(length)]


@pytest.mark.parametrize("packing", PACKINGS)
def test_packs_are_the_same_whichever_is_asked_for_first(packing: Packing) -> None:
    packs = twenty(packing)
    there = {(epoch, number): packs.pack(epoch, number) for epoch in range(2) for number in trained(packs, epoch)}
    for place in reversed(there):
        assert [part.tolist() for part in twenty(packing).pack(*place)] == [part.tolist() for part in there[place]]
        assert [part.tolist() for part in packs.pack(*place)] == [part.tolist() for part in there[place]]


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("portion", [7, 20])
def test_portions_are_drawn_anew_for_every_epoch_whatever_their_packs(packing: Packing, portion: int) -> None:
    packs = twenty(packing, portion)
    first, second = (sorted(packs.pack(e, n).documents.tolist() for n in trained(packs, e)) for e in range(2))
    of_portion = [{*packs.plan(epoch, 0).documents.tolist()} for epoch in range(2)]
    assert (first == second) == (packing == "off" or (portion == 20 and packing != "random"))
    assert (of_portion[0] == of_portion[1]) == (portion == 20)


@pytest.mark.parametrize("packing", PACKINGS)
def test_what_is_told_of_all_packs_is_what_they_are(packing: Packing) -> None:
    packs = twenty(packing)
    pieces = {number: packs.pack(0, number) for number in trained(packs, 0)}
    lengths = {number: int(part.lengths.sum()) for number, part in pieces.items()}
    packs.count(1)  # of which nothing else is told
    assert packs.counts(0).tokens.sum() == packs.pack_lengths.tokens == TWENTY.sum()
    assert packs.counts(0).packs.sum() == packs.count(0) == len(lengths)
    assert packs.fill() == TWENTY.sum() / (len(lengths) * 10)
    assert (packs.pack_lengths.longest, packs.pack_lengths.mean) == (max(lengths.values()), TWENTY.sum() / len(lengths))
    assert (
        packs.document_lengths.counts.tolist()
        == np.bincount(np.concatenate([p.lengths for p in pieces.values()])).tolist()
    )
    for count in range(1, len(lengths) + 1):
        assert [lengths[number] for number in packs.longest(count)] == sorted(lengths.values(), reverse=True)[:count]


def test_one_portion_is_what_there_was_without_portions() -> None:
    """Recorded before: a run that goes on trains the same packs in the same order."""
    packs = twenty(portion=20)
    first, second = ([packs.pack(epoch, n).documents.tolist() for n in trained(packs, epoch)] for epoch in range(2))
    assert first == [[8, 19], [1, 5], [0, 3], [18], [2, 4], [10, 15], [12], [9, 16, 17], [6, 11], [7, 13, 14]]
    assert second == [
        *([11, 15], [1], [10, 16], [3, 19], [12], [0, 5]),
        *([4, 18], [6, 17], [2, 14], [7, 8, 13], [9]),
    ]


def test_as_many_packs_begin_a_batch_as_are_left_of_one_where_lengths_are_grouped() -> None:
    """Else all micro-batches of later portions would lie across two groups."""
    random = np.random.default_rng(0).integers(1, 500, 4004)
    packs = EpochPacks(Lengths(random), 512, "off", "truncate", 1, portion=1001)
    lengths = np.array([packs.pack(0, number).lengths.sum() for number in trained(packs, 0, group_by_length=True)])
    apart = np.abs(np.diff(lengths.reshape(-1, 2), axis=1)).ravel()
    assert (packs.portions, len(apart), apart[:500].max() <= 40, apart[501:1000].max() <= 40) == (4, 2002, True, True)


def test_the_first_places_of_an_order_are_whole_portions_and_a_part_of_one() -> None:
    packs = twenty()
    data: Any = SimpleNamespace(packs=packs)
    numbers, order = trained(packs, 0), orders_of(a_run(), data)(0)
    for count in range(len(numbers) + 1):
        whole, left = order.begun(count)
        assert packs.counts(0).packs[:whole].sum() + len(left) == count
        assert [index * 3 + whole for index in left.tolist()] == numbers[count - len(left) : count]


def test_no_more_documents_than_a_portion_are_looked_at_at_a_time() -> None:
    lengths = Lengths(np.random.default_rng(0).integers(1, 30, 1000))
    packs = EpochPacks(lengths, 20, "random", "split", 0, portion=64)
    for epoch in range(2):
        for number in trained(packs, epoch):
            packs.pack(epoch, number)
    packs.longest(100)
    assert (packs.portions, lengths.asked) == (16, 64)


def test_a_worker_process_is_sent_no_plan_and_looks_at_the_portion_of_its_pack_alone() -> None:
    lengths = Lengths(TWENTY)
    packs = EpochPacks(lengths, 10, "random", "truncate", 42, portion=7)
    number = trained(packs, 1)[-1]
    there = packs.pack(1, number)
    sent = pickle.loads(pickle.dumps(packs))  # noqa: S301  as a DataLoader does
    assert (sent._latest, sent._fitted) == (None, None)
    looked_at = sent._documents
    looked_at.asked = looked_at.times = 0
    assert [part.tolist() for part in sent.pack(1, number)] == [part.tolist() for part in there]
    assert (looked_at.times, looked_at.asked) == (1, 7)


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_from_any_step_on_are_those_of_the_unbroken_run(tmp_path: Path, processes: int, workers: int) -> None:
    """Twenty-one documents in three portions of 7, three epochs, by so many processes."""
    data = packed(tmp_path, *((n % 5, n % 3 + 1) for n in range(21)), capacity=12, packing="random", portion=7)
    run = a_run()
    schedule = schedule_of(run, data, processes, begun_with=1)

    def batches(first_step: int, rank: int) -> list[dict[str, Any]]:
        sampler = PackedBatchSampler(schedule, orders_of(run, data), rank=rank, first_step=first_step)
        loader = DataLoader(data, batch_sampler=sampler, collate_fn=Collator(0), num_workers=workers)
        assert len(loader) == len(list(sampler))
        return list(loader)

    assert data.packs.portions == 3
    for rank in range(processes):
        whole = batches(0, rank)
        for first in (1, 2, schedule.steps_of(0), schedule.steps - 1):
            skipped = sum(schedule.micro_steps(step) for step in range(first))
            rest = batches(first, rank)
            assert len(rest) == len(whole) - skipped
            for one, other in zip(rest, whole[skipped:], strict=True):
                assert torch.equal(one["input_ids"], other["input_ids"])


def test_any_number_of_processes_trains_the_same_packs_a_step(tmp_path: Path) -> None:
    data = packed(tmp_path, *((n % 5, n % 3 + 1) for n in range(21)), capacity=12, packing="random", portion=7)
    one = schedule_of(a_run(), data, 1)
    order = orders_of(a_run(), data)
    for processes in (2, 3, 5):
        many = replace(one, processes=processes)
        shares = [iter(PackedBatchSampler(many, order, rank=rank)) for rank in range(processes)]
        for step in range(one.steps):
            taken = [place for share in shares for _ in range(many.micro_steps(step)) for place in next(share)]
            epoch, numbers = PackedBatchSampler(one, order).packs_of(step)
            assert sorted(p for p in taken if p != FILLER) == sorted((epoch, number) for number in numbers.tolist())


def test_evaluation_goes_through_all_portions_once() -> None:
    packs = twenty()
    schedule = schedule_of(a_run(), SimpleNamespace(packs=packs), 2)  # type: ignore[arg-type]
    shares = [chain.from_iterable(once_in_turn(schedule, packs, rank)) for rank in range(2)]
    taken = [place for place in chain.from_iterable(shares) if place != FILLER]
    assert sorted(taken) == sorted((0, number) for number in trained(packs, 0))


def test_documents_of_a_pack_are_no_more_alike_than_any_and_as_full() -> None:
    """6,000 documents in order of their kind, of 20 kinds, in six portions."""
    random = np.random.default_rng(0)
    kinds = np.sort(random.integers(0, 20, 6000))
    lengths = np.clip((40 + 20 * kinds) * random.uniform(0.9, 1.1, 6000), 8, 1024).astype(np.int64)
    packs = EpochPacks(Lengths(lengths), 2048, "random", "truncate", 0, portion=1000)
    rows = [packs.pack(0, number).documents for number in trained(packs, 0)]
    pairs = [kinds[a] == kinds[b] for row in rows for a, b in combinations(row.tolist(), 2)]
    counts = np.bincount(kinds)
    assert np.mean(pairs) <= 1.2 * (counts * (counts - 1)).sum() / (6000 * 5999)
    assert packs.fill() >= EpochPacks(Lengths(lengths), 2048, "random", "truncate", 0).fill() - 0.01


def test_a_portion_of_some_rows_has_the_numbers_of_the_store(tmp_path: Path) -> None:
    documents = packed(tmp_path, *((n % 5, n % 3 + 1) for n in range(21)), capacity=12).documents
    data = PackedDataset(documents, 12, "random", "truncate", 1, range(5, 19), portion=5)
    rows = [data.packs.pack(0, number).documents.tolist() for number in trained(data.packs, 0)]
    assert sorted(chain.from_iterable(rows)) == list(range(5, 19))
    lengths = documents.lengths_of(np.arange(21))
    assert [len(data[0, n]["input_ids"]) for n in trained(data.packs, 0)] == [int(lengths[row].sum()) for row in rows]
