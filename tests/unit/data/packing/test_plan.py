"""Packs: whole documents, exactly once, as few packs as best-fit-decreasing gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from expert_cli.data.packing.plan import PackingPlan, Pieces, best_fit, concat, no_packing
from tests.packs import whole


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


@pytest.mark.parametrize(
    ("median", "spread", "capacity"),
    [(100, 0.3, 512), (100, 1.5, 512), (50_000, 1.0, 200_000)],
    ids=["narrow", "wide", "lengths beyond 16 bits"],
)
def test_packs_of_many_documents_are_those_of_best_fit_decreasing(median: int, spread: float, capacity: int) -> None:
    lengths = np.random.default_rng(3).lognormal(np.log(median), spread, 2000).astype(int).clip(1, capacity)
    packs = best_fit(whole(lengths), capacity)
    tokens = np.add.reduceat(packs.pieces.lengths, packs.offsets[:-1])
    assert sorted(tokens.tolist()) == sorted(naive_best_fit(lengths.tolist(), capacity))


def test_a_document_goes_where_the_least_room_is_left() -> None:
    packs = best_fit(whole(numbers(9, 2, 1, 6, 4, 6)), 10)
    assert contents(packs) == [[(0, 0, 9), (2, 0, 1)], [(1, 0, 2), (5, 0, 6)], [(3, 0, 6), (4, 0, 4)]]


def test_no_documents_make_no_packs() -> None:
    nothing = whole(numbers())
    for packs in (best_fit(nothing, 8), no_packing(nothing), concat(nothing, 8)):
        assert (len(packs), packs.offsets.tolist()) == (0, [0])


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 20))
def test_concat_keeps_every_token_in_order(lengths: list[int], capacity: int) -> None:
    packs = contents(concat(whole(np.array(lengths)), capacity))
    flat = [(d, token) for pieces in packs for d, start, stop in pieces for token in range(start, stop)]
    assert flat == [(d, token) for d, length in enumerate(lengths) for token in range(length)]
    assert {sum(stop - start for _, start, stop in pieces) for pieces in packs[:-1]} <= {capacity}


def test_single_gives_every_document_its_own_pack() -> None:
    assert contents(no_packing(whole(numbers(3, 1)))) == [[(0, 0, 3)], [(1, 0, 1)]]


def test_packs_of_pieces_name_the_documents() -> None:
    pieces = Pieces(numbers(0, 1, 1, 1, 2), numbers(0, 0, 8, 16, 0), numbers(3, 8, 16, 20, 5))
    assert contents(best_fit(pieces, 8)) == [[(0, 0, 3), (2, 0, 5)], [(1, 0, 8)], [(1, 8, 16)], [(1, 16, 20)]]


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
