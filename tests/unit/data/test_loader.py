"""Batches: padded, masked by position, shortened without losing the end, the same in worker processes."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from torch.utils.data import DataLoader

from expert_cli.console import Silent
from expert_cli.data.documents import Documents
from expert_cli.data.encode import Encoded
from expert_cli.data.loader import (
    IGNORED,
    Collator,
    LengthGroupedSampler,
    PackedDataset,
    SeededSampler,
    plan_packs,
    shorten,
)
from expert_cli.data.store import StoreKey, build
from expert_cli.errors import InputError
from expert_cli.runconfig import Overflow, Packing

END = 9


def encoded(*documents: tuple[int, int]) -> Encoded:
    """Make documents of (prompt, answer) tokens: the prompt 100, 101, ..., the answer 200, 201, ... and END."""
    ids = [[*range(100, 100 + p), *range(200, 199 + a), END] for p, a in documents]
    trained = [[False] * p + [True] * a for p, a in documents]
    offsets = np.cumsum([0, *(p + a for p, a in documents)])
    return Encoded(
        np.array(list(chain.from_iterable(ids)), np.int32),
        offsets.astype(np.int64),
        np.array(list(chain.from_iterable(trained)), np.bool_),
        np.arange(len(documents)),
        0,
    )


def packed(
    folder: Path,
    *documents: tuple[int, int],
    capacity: int = 100,
    packing: Packing = "best_fit",
    overflow: Overflow = "truncate",
) -> PackedDataset:
    home = build(
        folder,
        StoreKey((("a", "b"),)),
        ("train",),
        lambda _, skip: [encoded(*documents)][skip:],
        lambda _: {},
        Silent(),
    )
    return plan_packs(Documents(home / "train"), capacity, packing, overflow)


def test_a_pack_restarts_its_positions_and_masks_by_position_not_by_id(tmp_path: Path) -> None:
    dataset = packed(tmp_path, (2, 2), (1, 1), capacity=6)
    assert len(dataset) == 1
    batch = Collator(pad_id=END)([dataset[0]])
    assert batch["input_ids"].tolist() == [[100, 101, 200, END, 100, END]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 0, 1]]
    assert batch["labels"].tolist() == [[IGNORED, IGNORED, 200, END, IGNORED, END]]


def test_padding_is_masked_and_every_place_of_it_a_document_of_its_own(tmp_path: Path) -> None:
    dataset = packed(tmp_path, (2, 2), (1, 1), packing="off")
    batch = Collator(pad_id=END)([dataset[0], dataset[1]])
    assert batch["input_ids"].tolist() == [[100, 101, 200, END], [100, END, END, END]]
    assert batch["labels"].tolist() == [[IGNORED, IGNORED, 200, END], [IGNORED, END, IGNORED, IGNORED]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3], [0, 1, 0, 0]]
    assert int(batch["real_tokens"]) == 6
    assert {t.dtype for t in batch.values()} == {torch.int64}


def test_the_first_token_of_a_document_is_never_a_target(tmp_path: Path) -> None:
    dataset = packed(tmp_path, (0, 3), (0, 2), capacity=5)
    first = dataset[0]["position_ids"] == 0
    assert first.sum() == 2
    assert (dataset[0]["labels"][first] == IGNORED).all()


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packed_documents_do_not_see_each_other(
    tmp_path: Path, architecture: tiny.Architecture, attention: str
) -> None:
    documents = ((5, 4), (3, 6), (7, 2), (1, 1), (4, 4))
    model = tiny.tiny_model(architecture)
    model.set_attn_implementation(attention)
    model.config.use_cache = False
    model.eval()
    together = Collator(pad_id=0)([p for p in [packed(tmp_path / "a", *documents, capacity=20)] for p in (p[0], p[1])])
    alone = packed(tmp_path / "b", *documents, packing="off")

    def loss_sum(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        inputs = {name: tensor for name, tensor in batch.items() if name in ("input_ids", "position_ids")}
        logits = model(**inputs).logits[:, :-1]
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), batch["labels"][:, 1:].flatten(), reduction="sum"
        )

    with torch.no_grad():
        one_by_one = sum(loss_sum(Collator(pad_id=0)([alone[i]])) for i in range(len(alone)))
        torch.testing.assert_close(loss_sum(together), one_by_one, rtol=1e-5, atol=1e-5)


FITS: dict[str, tuple[Overflow, list[list[int]]]] = {
    "truncate": ("truncate", [[100, 101, 104, 200, END], [100, END]]),
    "drop": ("drop", [[100, END]]),
    "split": ("split", [[200, END], [100, END]]),
}


@pytest.mark.parametrize(("overflow", "expected"), FITS.values(), ids=FITS.keys())
def test_what_becomes_of_a_document_that_is_too_long(
    tmp_path: Path, overflow: Overflow, expected: list[list[int]]
) -> None:
    dataset = packed(tmp_path, (5, 2), (1, 1), capacity=5, packing="off", overflow=overflow)
    assert [dataset[i]["input_ids"].tolist() for i in range(len(dataset))] == expected
    assert dataset.fitted is not None
    assert dataset.fitted.rows == 1


def test_too_long_can_be_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="7 tokens"):
        packed(tmp_path, (5, 2), (1, 1), capacity=5, overflow="error")


def test_concat_loses_no_token_and_cuts_documents(tmp_path: Path) -> None:
    dataset = packed(tmp_path, (5, 4), (3, 3), capacity=6, packing="concat")
    rows = [dataset[i] for i in range(len(dataset))]
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
    got, trained = shorten(data.ids, data.trained, limit)
    assert got.tolist() == ids
    assert got[trained].tolist() == labels
    assert data.trained.sum() == document[1]


def test_spawned_workers_give_the_same_batches(tmp_path: Path) -> None:
    dataset = packed(tmp_path, *((n % 5, n % 3 + 1) for n in range(24)), capacity=12)
    order = SeededSampler(len(dataset), 3)
    alone = list(DataLoader(dataset, 2, sampler=order, collate_fn=Collator(0)))
    spawned = DataLoader(
        dataset,
        2,
        sampler=order,
        collate_fn=Collator(0),
        num_workers=2,
        prefetch_factor=2,
        multiprocessing_context="spawn",
    )
    assert len(alone) > 1
    for mine, theirs in zip(alone, spawned, strict=True):
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_the_seeded_order_is_a_permutation_by_seed_and_epoch() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        sampler = SeededSampler(101, seed)
        sampler.set_epoch(epoch)
        assert [sampler.order()[place] for place in range(101)] == list(sampler)
        return list(sampler)

    assert sorted(order(1, 0)) == list(range(101))
    assert order(1, 0) == order(1, 0)
    assert len({tuple(order(seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}) == 4


def lengths(count: int) -> list[int]:
    return np.random.default_rng(1).integers(1, 500, count).tolist()


@pytest.mark.parametrize("count", [0, 3, 64, 1003])
def test_every_row_comes_once(count: int) -> None:
    sampler = LengthGroupedSampler(lengths(count), batch_size=8, seed=1)
    assert sorted(sampler) == list(range(count))
    assert len(sampler) == count


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        sampler = LengthGroupedSampler(lengths(100), 8, seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert order(1, 2) == order(1, 2)
    assert len({tuple(order(seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9


def test_neighbours_have_similar_lengths() -> None:
    sizes = np.array(lengths(4000))

    def padding_share(order: np.ndarray) -> float:
        batches = sizes[order].reshape(-1, 8)
        return float(1 - batches.sum() / (batches.max(axis=1).sum() * 8))

    grouped = padding_share(np.array(list(LengthGroupedSampler(sizes, 8, 0))))
    assert padding_share(np.arange(4000)) > 0.4
    assert grouped < 0.03
