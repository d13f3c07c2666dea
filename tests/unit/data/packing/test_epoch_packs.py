"""The packs of every epoch: all tokens once, the same packs however they are asked for, and what is told of them."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from expert_cli.data.packing.batches import orders_of, schedule_of
from expert_cli.data.packing.epoch_packs import EpochPacks
from expert_cli.data.packing.random_fit import pack_randomly
from expert_cli.manifest.keys.loader import Packing
from tests.packs import Lengths

TWENTY = np.array([3, 9, 4, 4, 6, 1, 7, 2, 5, 8, 3, 3, 9, 2, 6, 7, 1, 1, 4, 5])
PACKINGS: list[Packing] = ["random", "best_fit", "off", "concat"]


def twenty(packing: Packing = "random") -> EpochPacks:
    packs = EpochPacks(Lengths(TWENTY), 10, packing, "truncate", 42)
    packs.even_out(lambda _: 3)
    return packs


def trained(packs: EpochPacks, epoch: int, *, group_by_length: bool = False) -> list[int]:
    """The numbers of the packs of an epoch as they are trained."""
    loader = SimpleNamespace(group_by_length=group_by_length)
    run: Any = SimpleNamespace(seed=42, optim=SimpleNamespace(batch_size=2), loader=loader)
    data: Any = SimpleNamespace(packs=packs)
    return orders_of(run, data)(epoch).tolist()


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
def test_what_is_told_of_all_packs_is_what_they_are(packing: Packing) -> None:
    packs = twenty(packing)
    pieces = {number: packs.pack(0, number) for number in trained(packs, 0)}
    lengths = {number: int(part.lengths.sum()) for number, part in pieces.items()}
    packs.plan(1)  # of which nothing is told
    assert packs.pack_lengths.tokens == TWENTY.sum()
    assert packs.count() == len(lengths)
    assert packs.fill() == TWENTY.sum() / (len(lengths) * 10)
    assert (packs.pack_lengths.longest, packs.pack_lengths.mean) == (max(lengths.values()), TWENTY.sum() / len(lengths))
    assert (
        packs.document_lengths.counts.tolist()
        == np.bincount(np.concatenate([p.lengths for p in pieces.values()])).tolist()
    )
    for count in range(1, len(lengths) + 1):
        assert [lengths[number] for number in packs.longest(count)] == sorted(lengths.values(), reverse=True)[:count]


def test_packs_and_their_order_are_the_same_in_every_version() -> None:
    """A run that goes on trains the same packs in the same order."""
    packs = twenty()
    first, second = ([packs.pack(epoch, n).documents.tolist() for n in trained(packs, epoch)] for epoch in range(2))
    assert first == [
        *([8, 19], [18], [6, 11], [5], [2, 4], [7, 13, 14]),
        *([12], [9, 16, 17], [10, 15], [0, 3], [1]),  # 1 and 5 were one pack before they were evened out
    ]
    assert second == [
        *([3, 19], [1], [4, 18], [11, 15], [9], [0, 5]),
        *([12], [7, 8, 13], [6, 17], [10, 16], [2, 14]),
    ]


def run_of(epochs: float, max_steps: int = -1) -> Any:
    """A run with 8 packs a step."""
    asked = {"batch_size": 2, "gradient_accumulation_steps": 4, "epochs": epochs, "max_steps": max_steps}
    return SimpleNamespace(optim=SimpleNamespace(**asked))


NINE_HUNDRED = np.random.default_rng(3).lognormal(np.log(110), 0.6, 900).astype(int).clip(8, 512)
COUNTS = [len(pack_randomly(NINE_HUNDRED, 512, 42, epoch)) for epoch in range(5)]
"""Packs of each epoch as they are drawn."""
ASKED = {
    "three epochs": (run_of(3.0), 3),
    "a part of the third": (run_of(2.1), 3),
    "one": (run_of(1.0), 1),
    "steps of three": (run_of(1.0, 2 * -(-max(COUNTS[:3]) // 8) + 1), 3),
    "steps of two": (run_of(9.0, 2 * -(-max(COUNTS[:2]) // 8)), 2),
}


@pytest.mark.parametrize(("run", "epochs"), ASKED.values(), ids=ASKED.keys())
def test_every_epoch_of_a_run_has_as_many_packs_as_the_one_that_needs_most(run: Any, epochs: int) -> None:
    assert len(set(COUNTS[:3])) > 1, "they are as many by chance: nothing is tested"
    packs = EpochPacks(Lengths(NINE_HUNDRED), 512, "random", "truncate", 42)
    data: Any = SimpleNamespace(packs=packs)
    made = schedule_of(run, data, 1)
    assert (made.packs, made.epochs_begun) == (max(COUNTS[:epochs]), epochs)
    for epoch in range(epochs):
        plan = packs.plan(epoch)
        assert len(plan) == made.packs
        assert plan.lengths.min() > 0
        assert plan.lengths.max() <= 512
        pieces = sorted(zip(plan.documents.tolist(), plan.starts.tolist(), plan.stops.tolist(), strict=True))
        assert pieces == [(number, 0, length) for number, length in enumerate(NINE_HUNDRED.tolist())]
    sent = pickle.loads(pickle.dumps(packs))  # noqa: S301
    assert len(sent.plan(epochs - 1)) == made.packs


def test_a_worker_process_is_sent_no_plan_and_makes_the_same() -> None:
    packs = twenty()
    there = packs.pack(1, trained(packs, 1)[-1])
    sent = pickle.loads(pickle.dumps(packs))  # noqa: S301  as a DataLoader does
    assert sent._latest is None
    assert "_fitted" not in vars(sent)
    assert [part.tolist() for part in sent.pack(1, trained(packs, 1)[-1])] == [part.tolist() for part in there]


def test_packs_that_hold_prompts_alone_are_left_out_and_counted() -> None:
    """Ten tokens a pack: documents 0 and 1 are prompt but for their last token, document 2 trains nothing."""
    packs = EpochPacks(Lengths(np.array([25, 25, 10]), np.array([24, 24, 10])), 10, "concat", "truncate", 42)
    plan = packs.plan(0)
    held = [list(zip(*map(list, plan.pack(number)), strict=True)) for number in range(len(plan))]
    assert held == [[(0, 20, 25), (1, 0, 5)], [(1, 15, 25)]]
    assert (packs.count(), packs.untrained) == (2, 4)
