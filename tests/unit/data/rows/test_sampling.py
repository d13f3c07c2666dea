"""Slices, weights and the split of evaluated rows, as exact row numbers."""

from __future__ import annotations

import pytest

from expert_cli.config.splits import parse_split
from expert_cli.data.rows.sampling import repeat_counts
from expert_cli.errors import InputError
from tests.splits import held_out

FROZEN_SAMPLE = [3, 6, 7, 8]
FROZEN_SPLIT = [6, 9, 11, 16]
"""What seed 7 chooses. Another choice would change every run that is repeated."""


@pytest.mark.parametrize(
    ("written", "total", "rows", "needed"),
    [
        ("train", 5, [0, 1, 2, 3, 4], None),
        ("train[:2]", 5, [0, 1], 2),
        ("train[1:3]", 5, [1, 2], 3),
        ("train[3:]", 5, [3, 4], None),
        ("train[-2:]", 5, [3, 4], None),
        ("train[:-2]", 5, [0, 1, 2], None),
        ("train[10%:20%]", 30, [3, 4, 5], None),
        ("train[:50%]", 5, [0, 1], None),  # round(2.5) is 2, as in datasets
        ("train[-20%:]", 10, [8, 9], None),
        ("[:1000]", 3, [0, 1, 2], 1000),
        ("train[4:2]", 5, [], 2),
        ("train_sft[:1]", 3, [0], 1),
    ],
)
def test_slices_name_exact_rows(written: str, total: int, rows: list[int], needed: int | None) -> None:
    split = parse_split(written)
    assert list(split.rows(total)) == rows
    assert split.rows_needed == needed


@pytest.mark.parametrize(
    "written", ["train[5]", "train[:1000", "train+test", "train[a:b]", "train[:10%%]", "train[1:2:3]"]
)
def test_other_forms_are_refused(written: str) -> None:
    with pytest.raises(InputError, match="not a split"):
        parse_split(written)


def test_datasets_reads_slices_the_same() -> None:
    from datasets import Dataset
    from datasets.arrow_reader import ReadInstruction

    for written in ("train[:7]", "train[3:9]", "train[10%:20%]", "train[:33%]", "train[-5:]", "train[-25%:]"):
        for total in (10, 11, 33, 50):
            instruction = ReadInstruction.from_spec(written).to_absolute({"train": total})[0]
            theirs = list(Dataset.from_dict({"row": list(range(total))})["row"])[instruction.from_ : instruction.to]
            assert list(parse_split(written).rows(total)) == theirs, (written, total)


@pytest.mark.parametrize(
    ("weight", "total", "smallest", "largest"),
    [
        (0.4, 40, 0, 1),
        (1.0, 100, 1, 1),
        (2.0, 200, 2, 2),
        (1.5, 150, 1, 2),
        (0.0001, 1, 0, 1),
        (0.0, 0, 0, 0),
    ],
)
def test_a_weight_takes_its_share_of_100_rows(weight: float, total: int, smallest: int, largest: int) -> None:
    copies = repeat_counts(100, weight, 7, "0")
    assert (sum(copies), min(copies), max(copies)) == (total, smallest, largest)


def test_samples_differ_by_seed_and_source_and_are_frozen() -> None:
    def taken(seed: int, salt: str) -> list[int]:
        return [row for row, copies in enumerate(repeat_counts(10, 0.4, seed, salt)) if copies]

    assert taken(7, "0") == FROZEN_SAMPLE
    assert taken(8, "0") != taken(7, "0") != taken(7, "1")
    assert sorted(held_out([(str(row),) for row in range(20)], 0.2, 7)) == FROZEN_SPLIT


def test_equal_rows_stay_on_one_side() -> None:
    contents = [(str(row % 10),) for row in range(30)]
    chosen = held_out(contents, 0.25, 3)
    evaluated = {contents[row] for row in chosen}
    assert 8 <= len(chosen) < 8 + 3
    assert all((contents[row] in evaluated) == (row in chosen) for row in range(30))


@pytest.mark.parametrize("contents", [[("a",)], [("a",), ("a",)]], ids=["one row", "one row twice"])
def test_rows_that_cannot_be_split_are_an_error(contents: list[tuple[str, ...]]) -> None:
    with pytest.raises(InputError, match="cannot be split for evaluation"):
        held_out(contents, 0.05, 0)
