"""Random packs: whole documents, exactly once; as full as best fit; no more alike than chance, in a pack and over epochs."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from expert_cli.data.packing.pack_plan import PackingPlan, best_fit
from expert_cli.data.packing.random_fit import epoch_order, random_fit
from tests.packs import whole
from tests.unit.data.packing.test_pack_plan import contents, lengths_and_capacity


def documents_of(packs: PackingPlan) -> list[list[int]]:
    return [packs.pieces.documents[a:b].tolist() for a, b in pairwise(packs.offsets.tolist())]


@given(lengths_and_capacity(), st.integers(0, 3))
def test_every_document_is_whole_in_exactly_one_pack(case: tuple[list[int], int], epoch: int) -> None:
    lengths, capacity = case
    packs = random_fit(whole(np.array(lengths, np.int32)), capacity, 7, epoch)
    assert sorted(piece for pieces in contents(packs) for piece in pieces) == [(d, 0, n) for d, n in enumerate(lengths)]
    assert packs.lengths.max(initial=0) <= capacity
    assert packs.lengths.min(initial=1) > 0


def test_packs_are_the_same_everywhere() -> None:
    lengths = np.array([3, 9, 4, 4, 6, 1, 7, 2, 5, 8])
    assert documents_of(random_fit(whole(lengths), 10, 42, 0)) == [[0], [1, 5], [2, 4], [3, 8], [6, 7], [9]]
    assert documents_of(random_fit(whole(lengths), 10, 42, 1)) == [[0, 3, 5], [1], [2, 8], [4], [6, 7], [9]]


def drawn(seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """4,000 documents of 50 kinds (lengths, kinds): those of one kind have like lengths, as rows of one database do."""
    random = np.random.default_rng(seed)
    kinds = random.integers(0, 50, 4000)
    lengths = random.lognormal(np.log(120), 0.5, 50)[kinds] * random.uniform(0.9, 1.1, 4000)
    return np.clip(lengths.astype(np.int64), 8, 1024), kinds


def likeness(packs: PackingPlan, kinds: NDArray[np.int64]) -> float:
    """How much more often two documents of a pack are of one kind than two of any."""
    pairs = [(kinds[a] == kinds[b]) for documents in documents_of(packs) for a, b in combinations(documents, 2)]
    counts = np.bincount(kinds)
    by_chance = (counts * (counts - 1)).sum() / (len(kinds) * (len(kinds) - 1))
    return float(np.mean(pairs) / by_chance)


@pytest.mark.parametrize("seed", range(3))
def test_documents_of_a_pack_are_no_more_alike_than_any(seed: int) -> None:
    lengths, kinds = drawn(seed)
    assert likeness(random_fit(whole(lengths), 1024, seed, 0), kinds) <= 1.2
    assert likeness(best_fit(whole(lengths), 1024), kinds) > 2, "the lengths do not tell the kinds: nothing is tested"


@pytest.mark.parametrize("capacity", [1024, 2048])
@pytest.mark.parametrize("seed", range(3))
def test_packs_are_as_full_as_those_of_best_fit_to_one_per_cent(seed: int, capacity: int) -> None:
    documents = whole(drawn(seed)[0])
    assert 0.99 * len(random_fit(documents, capacity, seed, 0)) <= len(best_fit(documents, capacity))


# The order of an epoch


def test_the_order_is_frozen() -> None:
    """A run resumed by a later version goes on in the same order."""
    assert epoch_order(10, 42, 0).tolist() == [6, 4, 2, 3, 5, 9, 7, 8, 0, 1]
    assert epoch_order(1_000_000, 42, 0)[[0, 123_456, 999_999]].tolist() == [247_782, 774_974, 635_095]


@pytest.mark.parametrize(("seed", "epoch"), [(1, 3), (2, 2), (12, 1), (-1, 2)])
def test_another_seed_or_epoch_is_another_order(seed: int, epoch: int) -> None:
    same = epoch_order(10_000, 1, 2) == epoch_order(10_000, seed, epoch)
    assert same.sum() < 10


def test_neighbors_and_places_are_unrelated() -> None:
    packs = 100_000
    order = epoch_order(packs, 42, 0)
    spread = 5 / packs**0.5
    assert abs(np.corrcoef(np.arange(packs), order)[0, 1]) < spread
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < spread
    assert abs(np.corrcoef(order, epoch_order(packs, 42, 1))[0, 1]) < spread
    steps = Counter(np.diff(order).tolist())
    assert max(steps.values()) < 15
