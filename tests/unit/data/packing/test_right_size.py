"""What is told of other row lengths is what packing by them would make; what is recommended cuts next to nothing."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from expert_cli.data.packing.dataset import PackedDataset
from expert_cli.data.packing.plan import SIZES, length_table, recommend
from expert_cli.data.store.documents import DocumentLengths
from expert_cli.utils.length_histogram import LengthHistogram
from tests.packs import Lengths


def numbers(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def recommended(lengths: NDArray[np.int64], prompts: NDArray[np.int64], present: int, at_once: int = 1000) -> int:
    """What is recommended for documents that are looked at so many at once."""
    documents = DocumentLengths(lengths, prompts, lengths - prompts)
    parts = [
        DocumentLengths(*(column[start : start + at_once] for column in documents))
        for start in range(0, len(lengths), at_once)
    ]
    return recommend(LengthHistogram.of(lengths), parts, present)


def test_right_size_counts_the_packs_that_packing_makes() -> None:
    lengths = np.random.default_rng(1).lognormal(6, 1, 5000).astype(int).clip(0, 4999) + 1
    rows = length_table(LengthHistogram.of(lengths), 600)
    assert [row.max_seq_length for row in rows] == [512, 600, 768, 1024, 1536, 2048, 4096]
    for row in rows:
        packs = PackedDataset(Lengths(lengths), row.max_seq_length, "best_fit", "truncate")
        assert (row.sequences, row.fill) == (len(packs), packs.fill())
        assert (row.truncated_rows, row.truncated_tokens) == packs.left_out


RECOMMENDED = {
    "fits 512": ((512, 100), (0, 0), 512),
    "one token too long of 613": ((513, 100), (0, 0), 768),
    "one token and a seam of 5513": ((513, *[500] * 10), (0,) * 11, 512),
    "fits 4096": ((4096, 9), (4000, 2), 4096),
    "one token too long of 4106": ((4097, 9), (0, 2), 4096),
    "beyond the table": ((5000, 9), (0, 2), 8192),
    "answers whole, prompts gone": ((40_000, 9), (39_990, 2), 65_536),
    "a few tokens of the prompts": ((520, *[512] * 9), (519, *[511] * 9), 768),
    "few tokens, but of the answers": ((513, *[512] * 9), (0, *[511] * 9), 768),
}


@pytest.mark.parametrize(("lengths", "prompts", "size"), RECOMMENDED.values(), ids=RECOMMENDED.keys())
@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_recommended_size_cuts_next_to_nothing(
    lengths: tuple[int, ...], prompts: tuple[int, ...], size: int, at_once: int
) -> None:
    assert recommended(numbers(*lengths), numbers(*prompts), SIZES[0], at_once) == size


@pytest.mark.parametrize(
    ("longest", "present", "size"), [(300, 384, 384), (385, 384, 512), (600, 700, 700), (600, 800, 768)]
)
def test_the_present_length_is_recommended_where_it_is_the_smallest_that_cuts_nothing(
    longest: int, present: int, size: int
) -> None:
    lengths = numbers(longest, 9)
    assert recommended(lengths, numbers(0, 2), present) == size
