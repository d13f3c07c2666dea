"""Distributes packs over the micro-batches of a run, in order, for any number of processes, and collates them.

An optimizer step takes the next `packs_per_step` packs of the epoch's order; each process takes its share of them:

    order of the epoch    p0 p1 | p2 p3 | p4 p5 | p6 p7 ...
    micro-step (process)   0 (0)   0 (1)   1 (0)   1 (1)      batch 2, accumulation 2, 2 processes: 8 packs per step

The packs of a step therefore depend only on its number: twice the processes with half the accumulation train the same packs.
If the packs do not divide evenly, some processes get none in the last micro-step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler

from expert_cli.config.run_config import Layout, RunConfig
from expert_cli.data.packing.pack_plan import Ints, Pieces
from expert_cli.data.packing.packed_dataset import FIELDS, FILLER, IGNORE_INDEX, PackedDataset, Place
from expert_cli.data.packing.random_fit import epoch_order, grouped_order

Batch = dict[str, Any]


@dataclass(frozen=True)
class Schedule:
    """The optimizer steps of a run, known before it starts. max_steps -1: `epochs` decides.

    packs: number in each epoch. packs_per_step: the effective batch of all processes. batch_size: packs of a micro-batch.
    """

    packs: int
    packs_per_step: int
    batch_size: int
    processes: int
    epochs: float
    max_steps: int

    @property
    def accumulation(self) -> int:
        """Number of micro-batches of each process in an optimizer step; the last ones may be empty."""
        return -(-self.packs_per_step // (self.batch_size * self.processes))

    @property
    def steps_per_epoch(self) -> int:
        """Number of optimizer steps in an epoch; the last one may have fewer packs."""
        return -(-self.packs // self.packs_per_step)

    @property
    def steps(self) -> int:
        """Number of optimizer steps in the whole run."""
        if self.max_steps > 0:
            return self.max_steps
        return max(1, math.ceil(self.epochs * self.steps_per_epoch - 1e-9))

    @property
    def epochs_begun(self) -> int:
        """Number of epochs that the run begins; it may not complete the last one."""
        return -(-self.steps // self.steps_per_epoch)


def schedule_of(run: RunConfig, train: PackedDataset, processes: int, begun_with: int = 0) -> Schedule:
    """Return the optimizer steps of a run. begun_with: the number of processes that began the run, 0: `processes`."""
    optim = run.optim
    packs_per_step = optim.batch_size * optim.gradient_accumulation_steps * (begun_with or processes)
    one = Schedule(1, packs_per_step, optim.batch_size, processes, optim.epochs, optim.max_steps)
    return replace(one, packs=train.even_out(lambda packs: replace(one, packs=packs).epochs_begun))


def once_in_turn(schedule: Schedule, packs: int, rank: int) -> PackedBatchSampler:
    """Return a sampler that yields a process's share of `packs` packs, each once and in order, for evaluation."""
    together = schedule.batch_size * schedule.processes
    once = replace(schedule, packs=packs, packs_per_step=together, epochs=1.0, max_steps=-1)
    return PackedBatchSampler(once, lambda _: np.arange(packs), rank=rank)


def orders_of(run: RunConfig, train: PackedDataset) -> Callable[[int], Ints]:
    """Return a function that returns the order of the packs in an epoch (from 0). It caches the latest order."""

    @lru_cache(1)
    def order_of(epoch: int) -> Ints:
        if run.loader.group_by_length:
            return grouped_order(train.plan(epoch).lengths, run.optim.batch_size, run.seed, epoch)
        return epoch_order(len(train), run.seed, epoch)

    return order_of


class PackedBatchSampler(Sampler[list[Place]]):
    """Yields the packs of each micro-step of one process in an epoch. `set_epoch` sets the epoch, as in torch's samplers."""

    def __init__(self, schedule: Schedule, order_of: Callable[[int], Ints], *, rank: int = 0) -> None:
        """Take the function that returns the order of the packs in an epoch (from 0). rank: of this process."""
        self.schedule, self.order_of, self.rank, self.epoch = schedule, order_of, rank, 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch (from 0) of the next iteration."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Return the number of micro-steps in an epoch, which is the same for all processes."""
        schedule = self.schedule
        steps, rest = divmod(schedule.packs, schedule.packs_per_step)
        return steps * schedule.accumulation - (-rest // (schedule.batch_size * schedule.processes))

    def packs_of(self, step: int) -> tuple[int, Ints]:
        """Return the epoch (from 0) of an optimizer step (from 0), and the packs of this step for all processes."""
        epoch, within = divmod(step, self.schedule.steps_per_epoch)
        first = within * self.schedule.packs_per_step
        return epoch, self.order_of(epoch)[first : first + self.schedule.packs_per_step]

    def __iter__(self) -> Iterator[list[Place]]:
        """Yield the packs of each micro-step; `[FILLER]` if this process gets none."""
        schedule, epoch = self.schedule, self.epoch
        order = self.order_of(epoch).tolist()
        for start in range(0, schedule.packs, schedule.packs_per_step):
            packs = [(epoch, pack) for pack in order[start : start + schedule.packs_per_step]]
            for first in range(0, len(packs), schedule.batch_size * schedule.processes):
                mine = first + self.rank * schedule.batch_size
                yield packs[mine : mine + schedule.batch_size] or [FILLER]


@dataclass(frozen=True)
class FixedShape:
    """The shape of all micro-batches. tokens: in total. longest: of a document. targets: most trained tokens. borders: most
    documents + 1, and a repeated end, because kernels of the RTX 50 series read past the end (flash-attention pull 2333).
    """

    tokens: int
    longest: int
    borders: int
    targets: int

    def __str__(self) -> str:
        """Return the shape in words."""
        return f"{self.tokens:,} tokens, {self.borders - 2:,} documents, {self.targets:,} trained tokens a micro-batch"


def fixed_shape(data: PackedDataset, schedule: Schedule, order_of: Callable[[int], Ints], capacity: int) -> FixedShape:
    """Return the shape for all micro-batches in all epochs of the run. capacity: tokens of a full pack."""
    numbers = np.arange(len(data.documents))
    of_documents = data.documents.trained_in(Pieces(numbers, 0 * numbers, data.documents.lengths))
    places = np.arange(schedule.packs)
    begins = np.flatnonzero(places % schedule.packs_per_step % schedule.batch_size == 0)  # of micro-batches
    counts = []
    for epoch in range(schedule.epochs_begun):
        plan = data.plan(epoch)
        total = np.append(0, np.cumsum(np.minimum(of_documents[plan.pieces.documents], plan.pieces.lengths)))
        of_packs = np.stack([plan.lengths, np.diff(plan.offsets), np.diff(total[plan.offsets])])
        counts.append(np.add.reduceat(of_packs[:, order_of(epoch)], begins, axis=1))
    tokens, documents, trained = np.concatenate(counts, axis=1)
    full = schedule.batch_size * capacity
    # a process without packs trains on padding only
    padded = -(-(full - tokens) // capacity)
    documents = max(int((documents + padded).max()), schedule.batch_size)
    return FixedShape(full, capacity, documents + 2, max(1, int(trained.max())))


@dataclass(frozen=True)
class Collator:
    """Collates packs into a batch, and counts its tokens on the CPU, so that no step waits for the GPU. Layouts by attention:

        packed  A0 A1 A2 B0 B1 C0 C1 C2     one row [1, tokens], no padding
        padded  A0 A1 A2 B0 B1              one row per pack [packs, longest], padded on the right
                C0 C1 C2 .  .
        rows    A0 A1 A2  /  B0 B1 .  /  C0 C1 C2      the same with one row per document

    `input_ids`, `position_ids`: int64 of that shape. `target_positions`: int64 [n], positions in the flattened batch whose next
    token is trained; `targets`: int64 [n], these next tokens. Packed: `cu_seqlens` int32 [documents + 1] and `max_seqlen` as in
    flash-attention. `real_tokens`: without padding; `trained_tokens`: number of `targets`.

    shape: packed batches are padded to it for CUDA graphs and compiled layers, with documents of at most `max_seqlen` tokens
    (flash-attention leaves rows beyond that uninitialized), empty documents (repeated ends in `cu_seqlens`), targets of -100.
    """

    pad_id: int
    layout: Layout = "packed"
    shape: FixedShape | None = None

    def __call__(self, packs: Sequence[dict[str, torch.Tensor]]) -> Batch:
        """Return one batch."""
        real = sum(len(pack["input_ids"]) for pack in packs)
        if self.layout == "packed":
            tokens, longest = (self.shape.tokens, self.shape.longest) if self.shape else (1, 1)
            parts = [*packs, _padding(max(0, tokens - real), self.pad_id, longest)]
            joined = {name: torch.cat([part[name] for part in parts])[None] for name in FIELDS}
        else:
            rows = [row for pack in packs for row in (documents_of(pack) if self.layout == "rows" else [pack])] or packs
            longest = max(1, *(len(row["input_ids"]) for row in rows))
            pairs = [(row, _padding(longest - len(row["input_ids"]), self.pad_id, longest)) for row in rows]
            joined = {name: torch.stack([torch.cat([one[name] for one in pair]) for pair in pairs]) for name in FIELDS}
        labels = joined.pop("labels").flatten()
        # A document's first label is always ignored, so no prediction crosses a border.
        places = (labels[1:] != IGNORE_INDEX).nonzero().flatten()
        targets = labels[places + 1]
        batch: Batch = {**joined, "real_tokens": real, "trained_tokens": len(places)}
        if self.layout == "packed":
            positions = batch["position_ids"].flatten()
            borders = torch.cat([(positions == 0).nonzero().flatten(), torch.tensor([len(positions)])])
            longest = self.shape.longest if self.shape else int(borders.diff().max())
            if shape := self.shape:
                borders = _extended(borders, shape.borders, len(positions))
                places, targets = _extended(places, shape.targets, 0), _extended(targets, shape.targets, IGNORE_INDEX)
            batch |= {"cu_seqlens": borders.to(torch.int32), "max_seqlen": longest}
        return {**batch, "target_positions": places, "targets": targets}


def documents_of(pack: dict[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    """Return the documents of a pack as packs."""
    starts = (pack["position_ids"] == 0).nonzero().flatten().tolist()
    parts = {name: values.tensor_split(starts[1:]) for name, values in pack.items()}
    return [{name: of[number] for name, of in parts.items()} for number in range(len(starts))]


def _extended(values: torch.Tensor, size: int, filler: int) -> torch.Tensor:
    """Return values [n] padded to [size], or unchanged if longer."""
    return torch.cat([values, values.new_full((max(0, size - len(values)),), filler)])


def _padding(tokens: int, pad_id: int, longest: int) -> dict[str, torch.Tensor]:
    """Return `tokens` of padding as documents of at most `longest` tokens, which attend to no other and train nothing."""
    return {
        "input_ids": torch.full((tokens,), pad_id, dtype=torch.int64),
        "labels": torch.full((tokens,), IGNORE_INDEX, dtype=torch.int64),
        "position_ids": torch.arange(tokens) % longest,
    }
