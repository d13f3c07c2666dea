"""Which shards lie on the local disk: as few are fetched as can be, and every step finds those that it reads."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from expert_cli.data.packing import shard_plan
from expert_cli.data.packing.batches import PackedBatchSampler, orders_of, schedule_of
from expert_cli.data.packing.epoch_packs import EpochPacks
from expert_cli.data.packing.shard_plan import Fetch, FetchEstimate, Needs, ShardPlan, estimate, needs_of
from tests.packs import Lengths

TWENTY = np.array([3, 9, 4, 4, 6, 1, 7, 2, 5, 8, 3, 3, 9, 2, 6, 7, 1, 1, 4, 5])
FIRST = np.array([0, 2, 3, 9, 16, 20])
"""Twenty documents in five shards."""


@pytest.mark.parametrize(("looked_ahead", "portion"), [(1, 7), (1 << 14, 7), (8, 20)])
def test_what_a_step_reads_are_the_shards_of_its_documents(
    monkeypatch: pytest.MonkeyPatch, looked_ahead: int, portion: int
) -> None:
    monkeypatch.setattr(shard_plan, "LOOKED_AHEAD", looked_ahead)
    optim = SimpleNamespace(batch_size=1, gradient_accumulation_steps=2, epochs=3.0, max_steps=-1)
    run: Any = SimpleNamespace(seed=42, optim=optim, loader=SimpleNamespace(group_by_length=False))
    packs = EpochPacks(Lengths(TWENTY), 10, "random", "truncate", 42, portion=portion)
    data: Any = SimpleNamespace(packs=packs)
    schedule = schedule_of(run, data, 1)
    batches = PackedBatchSampler(schedule, orders_of(run, data))
    found = list(needs_of(run, data, schedule, FIRST, 2))
    assert [one.step for one in found] == list(range(2, schedule.steps))
    for step, shards in found:
        epoch, numbers = batches.packs_of(step)
        read = {document for number in numbers.tolist() for document in packs.pack(epoch, number).documents.tolist()}
        assert shards == sorted({int(np.searchsorted(FIRST, document, "right")) - 1 for document in read})


def needs(*steps: str) -> list[Needs]:
    return [Needs(step, sorted("abcdef".index(shard) for shard in shards)) for step, shards in enumerate(steps)]


def told(plan: ShardPlan) -> list[tuple[int, int, str, str]]:
    return [
        (fetch.step, fetch.after, "".join("abcdef"[one] for one in fetch.evicted), "abcdef-"[fetch.shard])
        for fetch in plan.fetches()
    ]


def test_the_drawn_example() -> None:
    plan = ShardPlan(needs("ab", "bc", "ac", "d"), [1] * 4, 2)
    assert told(plan) == [(0, -1, "", "a"), (0, -1, "", "b"), (1, 0, "a", "c"), (2, 1, "b", "a"), (3, 2, "a", "d")]


def test_without_a_limit_each_shard_is_fetched_once_in_the_order_of_its_first_use_and_then_no_more_is_read() -> None:
    read: list[int] = []

    def steps() -> Iterator[Needs]:
        for one in needs("c", "ac", "b", *["abc"] * 100_000):
            read.append(one.step)
            yield one

    assert told(ShardPlan(steps(), [5, 6, 7], 0)) == [(0, -1, "", "c"), (1, -1, "", "a"), (2, -1, "", "b")]
    assert len(read) < 20_000
    assert told(ShardPlan(needs("a", "b"), [5, 6], 11)) == [(0, -1, "", "a"), (1, -1, "", "b")], "all fit"


def test_what_lies_there_is_not_fetched_and_goes_first_where_it_is_too_much() -> None:
    assert told(ShardPlan(needs("a", "b", "a"), [1, 1, 1], 2, held=[0, 2])) == [(1, -1, "c", "b")]
    shrunk = told(ShardPlan(needs("a", "a"), [1, 1, 1], 1, held=[0, 1, 2]))
    assert [(step, after, set(gone), letter) for step, after, gone, letter in shrunk] == [(0, -1, {"b", "c"}, "-")]


def test_a_step_that_needs_more_than_the_limit_keeps_what_it_reads() -> None:
    assert told(ShardPlan(needs("a", "bc"), [1, 1, 1], 1)) == [(0, -1, "", "a"), (1, 0, "a", "b"), (1, -1, "", "c")]


def fewest(steps: list[Needs], sizes: list[int], limit: int) -> int:
    """Fewest bytes that any choice fetches, by trying all."""
    states: dict[frozenset[int], int] = {frozenset(): 0}
    for one in steps:
        after: dict[frozenset[int], int] = {}
        for held, cost in states.items():
            missing = set(one.shards) - held
            rest = held - set(one.shards)
            for count in range(len(rest) + 1):
                for kept in itertools.combinations(rest, count):
                    now = frozenset({*kept, *one.shards})
                    if sum(sizes[shard] for shard in now) <= limit:
                        total = cost + sum(sizes[shard] for shard in missing)
                        after[now] = min(total, after.get(now, total))
        states = after
    return min(states.values())


def test_no_other_choice_fetches_less_and_the_limit_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_plan, "LOOKED_AHEAD", 1000)
    draw = random.Random(7)
    for _ in range(50):
        steps = [Needs(step, sorted(draw.sample(range(6), draw.randint(1, 2)))) for step in range(12)]
        plan = ShardPlan(steps, [1] * 6, 3)
        held: set[int] = set()
        fetched = 0
        for fetch in plan.fetches():
            assert held.issuperset(fetch.evicted)
            assert fetch.after < fetch.step
            uses = [one.step for one in steps[: fetch.step] if {*one.shards} & {*fetch.evicted}]
            assert fetch.after == max(uses, default=-1)
            held = (held - {*fetch.evicted}) | {fetch.shard}
            assert len(held) <= 3
            fetched += 1
        assert fetched == fewest(steps, [1] * 6, 3)


def test_a_short_look_ahead_still_has_every_step_find_its_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_plan, "LOOKED_AHEAD", 1)
    draw = random.Random(3)
    steps = [Needs(step, sorted(draw.sample(range(6), 2))) for step in range(200)]
    held: set[int] = set()
    fetches: dict[int, list[Fetch]] = {}
    for fetch in ShardPlan(steps, [1] * 6, 3).fetches():
        fetches.setdefault(fetch.step, []).append(fetch)
    for one in steps:
        for fetch in fetches.get(one.step, []):
            held = (held - {*fetch.evicted}) | {fetch.shard}
        assert held.issuperset(one.shards)
        assert len(held) <= 3


def test_an_estimate_counts_what_an_epoch_fetches() -> None:
    steps = needs(*["ab", "cd"] * 8)
    assert estimate(steps, [10, 10, 10, 10], 20, 16) == FetchEstimate(20, 16 * 20)
    assert estimate(steps[:8], [10, 10, 10, 10], 20, 16) == FetchEstimate(20, 16 * 20), "the rest is as the second half"
    assert estimate(steps, [10, 10, 10, 10], 40, 16) == FetchEstimate(20, 40)
