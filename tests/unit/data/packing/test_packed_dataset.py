"""Packs: positions restart, labels are masked by position, long documents keep their end; every token once an epoch."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expert_cli.data.packing.batches import orders_of, schedule_of
from expert_cli.data.packing.overflow import truncate_middle
from expert_cli.data.packing.packed_dataset import IGNORE_INDEX, PackedDataset
from expert_cli.data.packing.random_fit import random_fit
from expert_cli.errors import InputError
from expert_cli.manifest.keys.loader import Overflow, Packing
from tests.packs import END, Lengths, encoded, packed, whole
from tests.unit.data.packing.test_pack_plan import contents, numbers


def test_a_pack_restarts_its_positions_and_masks_by_position_not_by_id(tmp_path: Path) -> None:
    dataset = packed(tmp_path, (2, 2), (1, 1), capacity=6)
    assert len(dataset) == 1
    pack = dataset[0, 0]
    assert pack["input_ids"].tolist() == [100, 101, 200, END, 100, END]
    assert pack["position_ids"].tolist() == [0, 1, 2, 3, 0, 1]
    assert pack["labels"].tolist() == [IGNORE_INDEX, IGNORE_INDEX, 200, END, IGNORE_INDEX, END]
    assert dataset.document_lengths.counts.tolist() == [0, 0, 1, 0, 1]


def test_the_first_token_of_a_document_is_never_a_target(tmp_path: Path) -> None:
    dataset = packed(tmp_path, (0, 3), (0, 2), capacity=5)
    first = dataset[0, 0]["position_ids"] == 0
    assert first.sum() == 2
    assert (dataset[0, 0]["labels"][first] == IGNORE_INDEX).all()


def test_concat_loses_no_token_and_cuts_documents(tmp_path: Path) -> None:
    dataset = packed(tmp_path, (5, 4), (3, 3), capacity=6, packing="concat")
    rows = [dataset[0, i] for i in range(len(dataset))]
    ids = [token for row in rows for token in row["input_ids"].tolist()]
    assert ids == [100, 101, 102, 103, 104, 200, 201, 202, END, 100, 101, 102, 200, 201, END]
    assert [len(row["input_ids"]) for row in rows] == [6, 6, 3]
    assert rows[1]["position_ids"].tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    ("document", "limit", "ids", "labels"),
    [
        ((4, 2), 6, [100, 101, 102, 103, 200, END], [200, END]),
        ((6, 2), 6, [100, 101, 104, 105, 200, END], [200, END]),
        ((7, 3), 6, [100, 101, 106, 200, 201, END], [200, 201, END]),
        ((4, 8), 8, [100, 103, 200, 201, 202, 205, 206, END], [200, 201, 202, 206, END]),
        ((1, 8), 4, [100, 200, 206, END], [200, END]),
        ((0, 8), 4, [200, 201, 206, END], [200, 201, END]),
        ((5, 5), 2, [200, END], [200, END]),
        ((5, 5), 1, [END], [END]),
    ],
    ids=["fits", "prompt", "odd prompt", "both", "short prompt", "no prompt", "two", "one"],
)
def test_a_long_document_loses_its_middle(
    document: tuple[int, int], limit: int, ids: list[int], labels: list[int]
) -> None:
    data = encoded(document)
    got, trained = truncate_middle(data.ids, data.trained, limit)
    assert got.tolist() == ids
    assert got[trained].tolist() == labels
    assert data.trained.sum() == document[1]


LONG = Lengths(numbers(5, 25, 8, 9), numbers(2, 10, 3, 5))

OVERFLOWS: list[tuple[Overflow, list[tuple[int, int, int]], tuple[int, int]]] = [
    # The prompt of document 1 keeps a quarter, of its answer 6 of 15 tokens stay and the one after the seam is lost too.
    ("truncate", [(0, 0, 5), (1, 0, 8), (2, 0, 8), (3, 0, 8)], (2, 17 + 1)),
    ("drop", [(0, 0, 5), (2, 0, 8)], (2, 25 + 9)),
    # Document 1: the first piece is all prompt, later ones begin in the answer. Its last token takes the one before along,
    # as in document 3: alone it would not train.
    ("split", [(0, 0, 5), (1, 8, 16), (1, 16, 23), (1, 23, 25), (2, 0, 8), (3, 0, 7), (3, 7, 9)], (2, 8)),
]


@pytest.mark.parametrize(("overflow", "pieces", "counts"), OVERFLOWS, ids=[case[0] for case in OVERFLOWS])
def test_long_documents_are_handled_and_counted(
    overflow: Overflow, pieces: list[tuple[int, int, int]], counts: tuple[int, int]
) -> None:
    data = PackedDataset(LONG, 8, "off", overflow)
    assert [piece for held in contents(data.plan(0)) for piece in held] == pieces
    assert data.left_out == counts


def test_dropping_every_document_is_an_error() -> None:
    with pytest.raises(InputError, match="none of the 2 documents fits max_seq_length 8; the shortest has 9"):
        PackedDataset(Lengths(numbers(9, 30)), 8, "off", "drop")


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60)), min_size=1, max_size=20), st.integers(8, 30))
def test_split_leaves_out_only_what_cannot_train(documents: list[tuple[int, int]], capacity: int) -> None:
    prompts = np.array([prompt for _, prompt in documents])
    lengths = prompts + np.array([answer for answer, _ in documents])
    data = PackedDataset(Lengths(np.append(lengths, 8), np.append(prompts, 0)), capacity, "off", "split")
    pieces = [piece for held in contents(data.plan(0)) for piece in held]
    kept = {(d, token) for d, start, stop in pieces for token in range(start, stop)}
    for d, (length, prompt) in enumerate(zip(lengths.tolist(), prompts.tolist(), strict=True)):
        assert all((d, token) in kept for token in range(prompt, length))
        last = max((start, stop) for n, start, stop in pieces if n == d)
        assert last[1] == length, "the end token stays"
        assert last[0] < length - 1 or length == 1, "and is trained"
    assert data.pack_lengths.longest <= capacity
    assert data.left_out == ((lengths > capacity).sum(), lengths.sum() + 8 - len(kept))


TWENTY = np.array([3, 9, 4, 4, 6, 1, 7, 2, 5, 8, 3, 3, 9, 2, 6, 7, 1, 1, 4, 5])
PACKINGS: list[Packing] = ["random", "best_fit", "off", "concat"]


def twenty(packing: Packing = "random") -> PackedDataset:
    packs = PackedDataset(Lengths(TWENTY), 10, packing, "truncate", 42)
    packs.even_out(lambda _: 3)
    return packs


def trained(packs: PackedDataset, epoch: int, *, group_by_length: bool = False) -> list[int]:
    """The numbers of the packs of an epoch as they are trained."""
    loader = SimpleNamespace(group_by_length=group_by_length)
    run: Any = SimpleNamespace(seed=42, optim=SimpleNamespace(batch_size=2), loader=loader)
    order: list[int] = orders_of(run, packs)(epoch).tolist()
    return order


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("group_by_length", [False, True], ids=["shuffled", "grouped"])
def test_every_token_is_trained_once_an_epoch(packing: Packing, *, group_by_length: bool) -> None:
    packs = twenty(packing)
    for epoch in range(3):
        tokens = [
            (document, token)
            for number in trained(packs, epoch, group_by_length=group_by_length)
            for document, start, stop in contents(packs.plan(epoch))[number]
            for token in range(start, stop)
        ]
        assert sorted(tokens) == [(d, token) for d, length in enumerate(TWENTY.tolist()) for token in range(length)]


def test_packs_and_their_order_are_the_same_in_every_version() -> None:
    """A run that goes on trains the same packs in the same order."""
    packs = twenty()
    first, second = (
        [packs.plan(epoch).pack(n).documents.tolist() for n in trained(packs, epoch)] for epoch in range(2)
    )
    assert first == [
        *([8, 19], [18], [6, 11], [5], [2, 4], [7, 13, 14]),
        *([12], [9, 16, 17], [10, 15], [0, 3], [1]),  # 1 and 5 were one pack before they were evened out
    ]
    assert second == [*([3, 19], [1], [4, 18], [11, 15], [9], [0, 5]), *([12], [7, 8, 13], [6, 17], [10, 16], [2, 14])]


def run_of(epochs: float, max_steps: int = -1) -> Any:
    """A run with 8 packs a step."""
    asked = {"batch_size": 2, "gradient_accumulation_steps": 4, "epochs": epochs, "max_steps": max_steps}
    return SimpleNamespace(optim=SimpleNamespace(**asked))


NINE_HUNDRED = np.random.default_rng(3).lognormal(np.log(110), 0.6, 900).astype(int).clip(8, 512)
COUNTS = [len(random_fit(whole(NINE_HUNDRED), 512, 42, epoch)) for epoch in range(5)]
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
    packs = PackedDataset(Lengths(NINE_HUNDRED), 512, "random", "truncate", 42)
    made = schedule_of(run, packs, 1)
    assert (made.packs, made.epochs_begun) == (max(COUNTS[:epochs]), epochs)
    for epoch in range(epochs):
        plan = packs.plan(epoch)
        assert len(plan) == made.packs
        assert plan.lengths.min() > 0
        assert plan.lengths.max() <= 512
        assert sorted(piece for pieces in contents(plan) for piece in pieces) == [
            (number, 0, length) for number, length in enumerate(NINE_HUNDRED.tolist())
        ]
    sent = pickle.loads(pickle.dumps(packs))  # noqa: S301
    assert len(sent.plan(epochs - 1)) == made.packs


def test_packs_that_hold_prompts_alone_are_left_out_and_counted() -> None:
    """Ten tokens a pack: documents 0 and 1 are prompt but for their last token, document 2 trains nothing."""
    packs = PackedDataset(Lengths(np.array([25, 25, 10]), np.array([24, 24, 10])), 10, "concat", "truncate", 42)
    assert contents(packs.plan(0)) == [[(0, 20, 25), (1, 0, 5)], [(1, 15, 25)]]
    assert (len(packs), packs.untrained) == (2, 4)
