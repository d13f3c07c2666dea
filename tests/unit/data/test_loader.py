"""Batches: padded, masked by position, shortened without losing the end, the same in worker processes."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from expert_cli.data.encode import Encoded
from expert_cli.data.loader import IGNORED, Collator, DocumentDataset, LengthGroupedSampler, shorten

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


def test_labels_are_masked_by_position_not_by_id() -> None:
    dataset = DocumentDataset(encoded((2, 2), (1, 1)), 100)
    batch = Collator(pad_id=END)([dataset[0], dataset[1]])
    assert batch["input_ids"].tolist() == [[100, 101, 200, END], [100, END, END, END]]
    assert batch["labels"].tolist() == [[IGNORED, IGNORED, 200, END], [IGNORED, END, IGNORED, IGNORED]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert {t.dtype for t in batch.values()} == {torch.int64}


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


def test_what_was_shortened_is_counted() -> None:
    dataset = DocumentDataset(encoded((5, 5), (1, 1), (20, 1)), 8)
    assert dataset.lengths.tolist() == [8, 2, 8]
    assert (dataset.truncated_rows, dataset.truncated_tokens) == (2, 15)
    assert [len(dataset[n]["input_ids"]) for n in range(3)] == [8, 2, 8]
    assert all(dataset[n]["labels"][-1] == END for n in range(3))


def test_spawned_workers_give_the_same_batches() -> None:
    dataset = DocumentDataset(encoded(*((n % 5, n % 3 + 1) for n in range(12))), 6)

    def batches(**options: object) -> list[dict[str, list[list[int]]]]:
        loader = DataLoader(dataset, batch_size=4, collate_fn=Collator(0), **options)  # type: ignore[arg-type]
        return [{key: value.tolist() for key, value in batch.items()} for batch in loader]

    assert batches(num_workers=2, multiprocessing_context="spawn") == batches()


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
