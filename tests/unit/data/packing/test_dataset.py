"""Packs: positions restart, labels are masked by position, long documents keep their end."""

from __future__ import annotations

from pathlib import Path

import pytest

from expert_cli.data.packing.dataset import FILLER, IGNORE_INDEX, truncate_middle
from tests.packs import END, encoded, packed


def test_a_pack_restarts_its_positions_and_masks_by_position_not_by_id(tmp_path: Path) -> None:
    dataset = packed(tmp_path, (2, 2), (1, 1), capacity=6)
    assert len(dataset) == 1
    pack = dataset[0, 0]
    assert pack["input_ids"].tolist() == [100, 101, 200, END, 100, END]
    assert pack["position_ids"].tolist() == [0, 1, 2, 3, 0, 1]
    assert pack["labels"].tolist() == [IGNORE_INDEX, IGNORE_INDEX, 200, END, IGNORE_INDEX, END]
    assert dataset.packs.document_lengths.counts.tolist() == [0, 0, 1, 0, 1]


def test_a_filler_has_no_tokens(tmp_path: Path) -> None:
    dataset = packed(tmp_path, (2, 2))
    assert [tensor.tolist() for tensor in dataset[FILLER].values()] == [[], [], []]


def test_the_first_token_of_a_document_is_never_a_target(tmp_path: Path) -> None:
    dataset = packed(tmp_path, (0, 3), (0, 2), capacity=5)
    first = dataset[0, 0]["position_ids"] == 0
    assert first.sum() == 2
    assert (dataset[0, 0]["labels"][first] == IGNORE_INDEX).all()


def test_a_pack_has_a_document_that_is_too_long_without_its_middle(tmp_path: Path) -> None:
    dataset = packed(tmp_path, (5, 2), (1, 1), capacity=5, packing="off", overflow="truncate")
    assert [dataset[0, i]["input_ids"].tolist() for i in range(2)] == [[100, 101, 104, 200, END], [100, END]]


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
