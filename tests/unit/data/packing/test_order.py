"""The order of an epoch: every index once, the same everywhere, another one each epoch, no pattern."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from expert_cli.data.packing.random_fit import epoch_order


@pytest.mark.parametrize("packs", [0, 1, 2, 1023, 99_991])
def test_every_index_comes_once(packs: int) -> None:
    order = epoch_order(packs, 42, 3)
    assert len(order) == packs
    assert np.sort(order).tolist() == list(range(packs))


def test_the_order_is_frozen() -> None:
    """A run resumed by a later version goes on in the same order."""
    assert epoch_order(10, 42, 0).tolist() == [6, 4, 2, 3, 5, 9, 7, 8, 0, 1]
    assert epoch_order(1_000_000, 42, 0)[[0, 123_456, 999_999]].tolist() == [247_782, 774_974, 635_095]


@pytest.mark.parametrize(("seed", "epoch"), [(1, 3), (2, 2), (12, 1), (-1, 2)])
def test_another_seed_or_epoch_is_another_order(seed: int, epoch: int) -> None:
    same = epoch_order(10_000, 1, 2) == epoch_order(10_000, seed, epoch)
    assert same.sum() < 10


@pytest.mark.parametrize("packs", [2, 3, 4, 5])
def test_all_orders_of_a_few_packs_are_equally_likely(packs: int) -> None:
    kinds = list(permutations(range(packs)))
    drawn = 60 * len(kinds)
    counts = Counter(tuple(epoch_order(packs, 5, epoch).tolist()) for epoch in range(drawn))
    chi_square = sum((counts[kind] - 60) ** 2 / 60 for kind in kinds)
    freedom = len(kinds) - 1
    assert chi_square < freedom + 5 * (2 * freedom) ** 0.5


def test_neighbors_and_places_are_unrelated() -> None:
    packs = 100_000
    order = epoch_order(packs, 42, 0)
    spread = 5 / packs**0.5
    assert abs(np.corrcoef(np.arange(packs), order)[0, 1]) < spread
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < spread
    assert abs(np.corrcoef(order, epoch_order(packs, 42, 1))[0, 1]) < spread
    steps = Counter(np.diff(order).tolist())
    assert max(steps.values()) < 15
