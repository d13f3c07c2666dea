"""What the stock libraries train, step by step: the documents of this tool's own optimizer steps, as ids or as texts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expert_cli.config.run_config import RunConfig
from expert_cli.data.packing.batches import PackedBatchSampler, orders_of, schedule_of
from expert_cli.data.packing.dataset import IGNORE_INDEX, PackedDataset
from expert_cli.data.rows.selected import batches
from expert_cli.data.rows.selection import select_rows
from expert_cli.data.templates.segment import Document
from expert_cli.errors import InputError
from expert_cli.pipeline.pretokenize import DataInputs
from expert_cli.utils.reporter import NullReporter

Tokens = dict[str, list[int]]
"""`input_ids` and `labels` of one document, as the collators of transformers and TRL take them."""


@dataclass(frozen=True)
class StepRows:
    """Rows, and the numbers of those that each micro-batch takes, by optimizer step.

    The Trainer has `accumulation` micro-batches in every step. The last step of an epoch may have fewer: then the last row
    is one that trains nothing, and fills it up.
    """

    rows: Sequence[Any]
    steps: list[list[list[int]]]
    accumulation: int

    def micro_batches(self) -> list[list[int]]:
        """Return the numbers of every micro-batch in turn, those that fill up a step included."""
        filler = [len(self.rows) - 1]
        return [batch for step in self.steps for batch in (*step, *[filler] * (self.accumulation - len(step)))]


def documents_of_steps(run: RunConfig, packs: PackedDataset) -> StepRows:
    """Return the documents of this tool's packs, in its optimizer steps, each micro-batch those of one of its own.

    A document that was split over packs is as many documents, as it is in the packs.
    """
    schedule = schedule_of(run, packs, 1)
    places = iter(PackedBatchSampler(schedule, orders_of(run, packs)))
    documents: list[Tokens] = []
    steps: list[list[list[int]]] = []
    for step in range(schedule.steps):
        steps.append([])
        for _ in range(schedule.micro_steps(step)):
            first = len(documents)
            documents += [document for place in next(places) for document in _documents(packs[place])]
            steps[-1].append(list(range(first, len(documents))))
    documents.append({"input_ids": [0], "labels": [IGNORE_INDEX]})
    return StepRows(documents, steps, schedule.accumulation)


def _documents(pack: Mapping[str, Any]) -> list[Tokens]:
    """Return the documents of a pack, one after another."""
    ids, labels = pack["input_ids"].tolist(), pack["labels"].tolist()
    starts = (pack["position_ids"] == 0).nonzero().flatten().tolist()
    return [{"input_ids": ids[a:b], "labels": labels[a:b]} for a, b in pairwise([*starts, len(ids)])]


def texts_of_steps(run: RunConfig, inputs: DataInputs, packs: PackedDataset) -> tuple[StepRows, int]:
    """Return as many texts a step as the packs hold on average, and how many of them a micro-batch takes."""
    numbers, batch, accumulation = rows_of_steps(run, packs)
    texts = texts_of_documents(run, inputs, set(numbers), len(packs.documents))
    rows = np.arange(len(numbers)).reshape(-1, accumulation, batch)
    return StepRows([texts[number] for number in numbers], rows.tolist(), accumulation), batch


def rows_of_steps(run: RunConfig, packs: PackedDataset) -> tuple[list[int], int, int]:
    """Return the documents to train on, in the order of the tool's own packs, and their micro-batch and accumulation.

    A document that was split over packs is taken once, where it begins.
    """
    sampler, steps = PackedBatchSampler(schedule_of(run, packs, 1), orders_of(run, packs)), run.optim.max_steps
    rows = [row for step in range(steps) for row in _begun(packs, *sampler.packs_of(step))]
    per_step = max(1, round(len(rows) / steps))
    batch = min(run.optim.batch_size, per_step)
    accumulation = max(1, round(per_step / batch))
    more = (row for step in count(steps) for row in _begun(packs, *sampler.packs_of(step)))
    return list(islice(chain(rows, more), steps * batch * accumulation)), batch, accumulation


def _begun(data: PackedDataset, epoch: int, chosen: NDArray[np.int64]) -> list[int]:
    """Return the documents that begin in these packs of an epoch."""
    packs = (data.packs.pack(epoch, number) for number in chosen.tolist())
    return [document for pack in packs for document in pack.documents[pack.starts == 0].tolist()]


def texts_of_documents(
    run: RunConfig, inputs: DataInputs, wanted: Collection[int], documents: int
) -> Mapping[int, Document]:
    """Return documents of the store as the text they were made from. documents: how many the store holds.

    Raises InputError if the rows are not those of the store.
    """
    found: dict[int, Document] = {}
    number = 0
    selection = select_rows(run.data, inputs.located, NullReporter(), refused=inputs.template.refused)
    for rows in batches(selection.sources("train")):
        for document in inputs.template.documents(rows):
            if any(segment.trained and segment.text for segment in document):
                if number in wanted:
                    found[number] = document
                number += 1
    if number != documents:
        raise InputError(f"the rows give {number} documents, the token store holds {documents}", "pretokenize --force")
    return found
