"""One shape fits every micro-batch of a run, and changes nothing of what is trained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from expert_cli.data.packing.batches import Batch, Collator, FixedShape, PackedBatchSampler, Schedule, fixed_shape
from expert_cli.data.packing.packed_dataset import FILLER, IGNORE_INDEX, PackedDataset
from expert_cli.data.packing.random_fit import epoch_order
from expert_cli.manifest.keys.loader import Overflow, Packing
from tests.packs import END, packed

CAPACITY = 24


def drawn(folder: Path, packing: Packing = "random", overflow: Overflow = "truncate") -> PackedDataset:
    """60 documents of 2 to 32 tokens; of two in three one token is trained."""
    random = np.random.default_rng(5)
    lengths = [(int(p), int(a) if n % 3 == 0 else 1) for n, (p, a) in enumerate(random.integers(1, 17, (60, 2)))]
    return packed(folder, *lengths, capacity=CAPACITY, packing=packing, overflow=overflow)


def order_of(schedule: Schedule, epoch: int) -> np.ndarray:
    return epoch_order(schedule.packs, 3, epoch)


def pairs(data: PackedDataset, schedule: Schedule, shape: FixedShape) -> Iterator[tuple[Batch, Batch]]:
    """Yield every batch of two epochs, of every process, as it is and in the shape."""
    for epoch in range(2):
        for rank in range(schedule.processes):
            sampler = PackedBatchSampler(schedule, lambda epoch: order_of(schedule, epoch), rank=rank)
            sampler.set_epoch(epoch)
            for places in sampler:
                packs = [data[place] for place in places]
                yield Collator(END)(packs), Collator(END, shape=shape)(packs)


ASKED: dict[str, tuple[Packing, Overflow, int, int, int]] = {
    "one pack": ("random", "truncate", 1, 1, 1),
    "several": ("random", "truncate", 3, 6, 1),
    "of like length": ("best_fit", "drop", 2, 4, 1),
    "cut anywhere": ("concat", "truncate", 2, 4, 1),
    "not packed": ("off", "truncate", 4, 8, 1),
    "processes with nothing left": ("random", "truncate", 2, 10, 4),
    "micro-batches that end with their step": ("random", "truncate", 4, 6, 2),
}


@pytest.mark.parametrize(("packing", "overflow", "batch", "together", "processes"), ASKED.values(), ids=ASKED.keys())
def test_every_batch_of_a_run_has_the_shape_and_trains_what_it_would_without(
    tmp_path: Path, packing: Packing, overflow: Overflow, batch: int, together: int, processes: int
) -> None:
    data = drawn(tmp_path, packing, overflow)
    schedule = Schedule(data.even_out(lambda _: 2), together, batch, processes, 2.0, -1)
    shape = fixed_shape(data, schedule, lambda epoch: order_of(schedule, epoch), CAPACITY)
    assert (shape.tokens, shape.longest) == (batch * CAPACITY, CAPACITY)
    kinds, documents, most = set(), [], 0
    for plain, batch_of in pairs(data, schedule, shape):
        fixed = dict(batch_of)
        places, targets, borders = (fixed.pop(name) for name in ("target_positions", "targets", "cu_seqlens"))
        real, trained = fixed.pop("real_tokens"), fixed.pop("trained_tokens")
        assert (real, trained) == (plain["real_tokens"], plain["trained_tokens"])
        kinds.add((fixed.pop("max_seqlen"), tuple((n, t.shape, t.dtype) for n, t in fixed.items()), borders.shape))
        assert (borders.dtype, targets.dtype, places.dtype) == (torch.int32, torch.int64, torch.int64)
        assert len(places) == len(targets) == shape.targets
        assert torch.equal(places[:trained], plain["target_positions"])
        assert torch.equal(targets[:trained], plain["targets"])
        assert set(targets[trained:].tolist()) <= {IGNORE_INDEX}
        assert fixed["input_ids"][0, :real].tolist() == plain["input_ids"][0, :real].tolist()
        assert set(fixed["input_ids"][0, real:].tolist()) <= {END}
        lengths = borders.diff()
        assert int(lengths.max()) <= CAPACITY
        assert (int(lengths[-1]), int(borders[-1])) == (0, shape.tokens)
        begins = [start for start, end in zip(borders.tolist(), borders.tolist()[1:], strict=False) if end > start]
        assert begins == (fixed["position_ids"][0] == 0).nonzero().flatten().tolist()
        documents.append(len(begins))
        most = max(most, trained)
    assert len(kinds) == 1
    assert most <= shape.targets
    assert most == shape.targets or packing == "concat", "where documents are cut, it is a bound"
    assert shape.borders == max(*documents, batch) + 2


def test_a_process_that_nothing_is_left_for_trains_padding_of_that_shape(tmp_path: Path) -> None:
    data = packed(tmp_path, (2, 2), capacity=4)
    shape = FixedShape(tokens=12, longest=4, borders=6, targets=1)
    batch = Collator(END, shape=shape)([data[FILLER]])
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3] * 3]
    assert batch["cu_seqlens"].tolist() == [0, 4, 8, 12, 12, 12]
    assert (batch["target_positions"].tolist(), batch["targets"].tolist()) == ([0], [IGNORE_INDEX])
    assert (batch["real_tokens"], batch["trained_tokens"], batch["max_seqlen"]) == (0, 0, 4)
