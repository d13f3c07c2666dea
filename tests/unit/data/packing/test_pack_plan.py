"""Packs: whole documents, exactly once, as few packs as best-fit-decreasing gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from expert_cli.data.packing.pack_plan import PackingPlan, best_fit, concat
from expert_cli.data.packing.packed_dataset import PackedDataset
from expert_cli.pipeline.right_size import length_table, recommend
from expert_cli.utils.length_histogram import LengthHistogram
from tests.packs import Lengths, whole


def numbers(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def contents(packs: PackingPlan) -> list[list[tuple[int, int, int]]]:
    """List the (document, start, stop) of every pack."""
    return [list(zip(*map(np.ndarray.tolist, packs.pack(number)), strict=True)) for number in range(len(packs))]


def naive_best_fit(lengths: list[int], capacity: int) -> list[int]:
    """Best-fit-decreasing one document at a time: the tokens in every pack."""
    used: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [p for p, tokens in enumerate(used) if tokens + length <= capacity]
        if fitting:
            used[max(fitting, key=lambda p: used[p])] += length
        else:
            used.append(length)
    return used


@st.composite
def lengths_and_capacity(draw: st.DrawFn) -> tuple[list[int], int]:
    capacity = draw(st.integers(1, 60))
    return draw(st.lists(st.integers(1, capacity), max_size=120)), capacity


@given(lengths_and_capacity())
def test_packs_are_those_of_best_fit_decreasing(case: tuple[list[int], int]) -> None:
    lengths, capacity = case
    packs = best_fit(whole(np.array(lengths, np.int32)), capacity)
    tokens = [sum(stop - start for _, start, stop in pieces) for pieces in contents(packs)]
    assert sorted(tokens) == sorted(naive_best_fit(lengths, capacity))


@given(lengths_and_capacity())
def test_every_document_is_whole_in_exactly_one_pack(case: tuple[list[int], int]) -> None:
    lengths, capacity = case
    packs = contents(best_fit(whole(np.array(lengths, np.int64)), capacity))
    assert sorted(piece for pieces in packs for piece in pieces) == [(d, 0, n) for d, n in enumerate(lengths)]
    assert all(pieces == sorted(pieces) for pieces in packs)
    assert [pieces[0] for pieces in packs] == sorted(pieces[0] for pieces in packs)


def test_a_document_goes_where_the_least_room_is_left() -> None:
    packs = best_fit(whole(numbers(9, 2, 1, 6, 4, 6)), 10)
    assert contents(packs) == [[(0, 0, 9), (2, 0, 1)], [(1, 0, 2), (5, 0, 6)], [(3, 0, 6), (4, 0, 4)]]


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 20))
def test_concat_keeps_every_token_in_order(lengths: list[int], capacity: int) -> None:
    packs = contents(concat(whole(numbers(*lengths)), capacity))
    flat = [(d, token) for pieces in packs for d, start, stop in pieces for token in range(start, stop)]
    assert flat == [(d, token) for d, length in enumerate(lengths) for token in range(length)]
    assert {sum(stop - start for _, start, stop in pieces) for pieces in packs[:-1]} <= {capacity}


PARTED = {
    "as it is": (2, [[(0, 0, 9)], [(1, 0, 4), (2, 0, 1), (3, 0, 5)]]),
    "the fullest of several": (3, [[(0, 0, 9)], [(1, 0, 4), (2, 0, 1)], [(3, 0, 5)]]),
    "again and again": (4, [[(0, 0, 9)], [(1, 0, 4)], [(2, 0, 1)], [(3, 0, 5)]]),
}


@pytest.mark.parametrize(("packs", "parted"), PARTED.values(), ids=PARTED.keys())
def test_the_fullest_packs_are_cut_between_documents(packs: int, parted: list[list[tuple[int, int, int]]]) -> None:
    plan = best_fit(whole(numbers(9, 4, 1, 5)), 10)
    assert contents(plan.parted(packs)) == parted


@given(lengths_and_capacity(), st.floats(0, 1))
def test_parted_packs_hold_the_same_documents_in_the_same_order(case: tuple[list[int], int], share: float) -> None:
    lengths, capacity = case
    plan = best_fit(whole(np.array(lengths, np.int64)), capacity)
    wanted = len(plan) + int(share * (len(lengths) - len(plan)))
    parted = plan.parted(wanted)
    assert len(parted) == wanted
    assert parted.lengths.min(initial=1) > 0
    assert [piece for pieces in contents(parted) for piece in pieces] == [piece for p in contents(plan) for piece in p]


def test_right_size_counts_the_packs_that_packing_makes() -> None:
    lengths = np.random.default_rng(1).lognormal(6, 1, 5000).astype(int).clip(0, 4999) + 1
    rows = length_table(LengthHistogram.of(lengths), 600)
    assert [row.max_seq_length for row in rows] == [512, 600, 768, 1024, 1536, 2048, 4096]
    for row in rows:
        packs = PackedDataset(Lengths(lengths), row.max_seq_length, "best_fit", "truncate")
        assert (row.sequences, row.fill) == (len(packs), packs.fill())
        assert (row.truncated_rows, row.truncated_tokens) == packs.left_out


RECOMMENDED = {
    "fits 512": ((512, 100), 512),
    "one token too long of 613": ((513, 100), 768),
    "one token of 5513": ((513, *[500] * 10), 512),
    "fits 4096": ((4096, 9), 4096),
    "beyond the table": ((5000, 9), 8192),
}


@pytest.mark.parametrize(("lengths", "size"), RECOMMENDED.values(), ids=RECOMMENDED.keys())
def test_recommended_size_cuts_next_to_nothing(lengths: tuple[int, ...], size: int) -> None:
    assert recommend(LengthHistogram.of(numbers(*lengths)), 1 << 24) == size


@pytest.mark.parametrize(
    ("longest", "present", "size"), [(300, 384, 384), (385, 384, 512), (600, 700, 700), (600, 800, 768)]
)
def test_the_present_length_is_recommended_where_it_is_the_smallest_that_cuts_nothing(
    longest: int, present: int, size: int
) -> None:
    assert recommend(LengthHistogram.of(numbers(longest, 9)), present) == size
