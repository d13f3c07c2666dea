"""Documents become batches: packs of documents that do not see each other, in an order that follows from a seed.

One pack of a batch, as the model gets it (documents A and B, two places of padding):

    input_ids     A0 A1 A2 A3 B0 B1 B2 .  .
    position_ids  0  1  2  3  0  1  2  0  0      where it returns to 0 a new document begins
    labels        -  -  A2 A3 -  -  B2 -  -      "-" is -100: prompts, first tokens, padding

There is no attention mask: transformers builds the block-diagonal one from position_ids if none is given and no cache is
used. Labels are masked by position, never by id, since the padding id may be the end token's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, Sampler

from expert_cli.data.documents import Documents
from expert_cli.data.order import EpochOrder, epoch_order
from expert_cli.data.packing import Fitted, Packs, concat, fit_lengths, pack, single
from expert_cli.runconfig import Overflow, Packing

IGNORED = -100
_MEGABATCH = 50


class PackedDataset(Dataset[dict[str, torch.Tensor]]):
    """Packs over an opened store: item i is pack i as `input_ids`, `labels`, `position_ids`, int64 [tokens of the pack].

    lengths: int64 [packs]. fitted: what became of documents that are too long. Picklable and small: a worker process maps
    the store's files again.
    """

    def __init__(self, documents: Documents, packs: Packs, fitted: Fitted | None, *, shortens: bool) -> None:
        """Take the documents and which of their tokens share a sequence (see `plan_packs`).

        shortens: a piece that ends before its document does is `shorten`ed, not cut off.
        """
        self.documents = documents
        self.packs = packs
        self.fitted = fitted
        self.shortens = shortens
        total = np.concatenate([[0], np.cumsum(packs.stops - packs.starts)])
        self.lengths: NDArray[np.int64] = np.diff(total[packs.offsets])

    def __len__(self) -> int:
        """Return the number of packs."""
        return len(self.packs)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return one pack."""
        ids, labels, positions = [], [], []
        for piece in range(int(self.packs.offsets[index]), int(self.packs.offsets[index + 1])):
            tokens, trained = self._piece(piece)
            targets = np.where(trained, tokens, IGNORED)
            targets[:1] = IGNORED
            ids.append(tokens)
            labels.append(targets)
            positions.append(np.arange(len(tokens)))
        return {
            "input_ids": torch.from_numpy(np.concatenate(ids).astype(np.int64)),
            "labels": torch.from_numpy(np.concatenate(labels).astype(np.int64)),
            "position_ids": torch.from_numpy(np.concatenate(positions)),
        }

    def _piece(self, piece: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        ids, trained = self.documents.document(int(self.packs.documents[piece]))
        start, stop = int(self.packs.starts[piece]), int(self.packs.stops[piece])
        if self.shortens and stop < len(ids):
            return shorten(ids, trained, stop)
        return ids[start:stop], trained[start:stop]


def plan_packs(documents: Documents, capacity: int, packing: Packing, overflow: Overflow) -> PackedDataset:
    """Decide from the lengths alone what is cut and which documents share a sequence; nothing is read but masks if needed.

    Raises InputError: overflow "error" with a document that is too long, or nothing is left.
    """
    if packing == "concat":
        return PackedDataset(documents, concat(documents.lengths, capacity), None, shortens=False)
    too_long = bool((documents.lengths > capacity).any())
    prompts = documents.prompt_lengths if too_long else np.zeros_like(documents.lengths)
    fitted = fit_lengths(documents.lengths, prompts, capacity, overflow)
    packs = pack(fitted.lengths, capacity) if packing == "best_fit" else single(fitted.lengths, capacity)
    return PackedDataset(documents, packs.within(fitted), fitted, shortens=overflow == "truncate")


def shorten(
    ids: NDArray[np.int32], trained: NDArray[np.bool_], limit: int
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Cut a document to `limit` tokens, out of the middle of its prompt; its ends and its last token stay.

        prompt head … prompt tail | answer, end token

    Where a quarter of `limit` is all that is left for the prompt, the answer loses its middle too; the token after that
    seam is not trained, since nothing before it leads there.
    """
    excess = len(ids) - limit
    if excess <= 0:
        return ids, trained
    prompt = int(np.argmax(trained))
    keep = max(min(prompt, limit // 4), prompt - excess)
    rest = limit - keep
    head, tail = (keep + 1) // 2, keep // 2
    kept = [np.arange(head), np.arange(prompt - tail, prompt)]
    if rest < len(ids) - prompt:
        kept += [np.arange(prompt, prompt + rest // 2), np.arange(len(ids) - (rest - rest // 2), len(ids))]
        trained = trained.copy()
        trained[kept[-1][:-1][:1]] = False
    else:
        kept.append(np.arange(prompt, len(ids)))
    chosen = np.concatenate(kept)
    return ids[chosen], trained[chosen]


@dataclass(frozen=True)
class Collator:
    """Pads packs to the longest of them: `input_ids`, `labels`, `position_ids`, each int64 [packs, longest].

    `real_tokens`, int64 [], counts what is not padding; the Trainer takes it out before the model sees the batch.
    """

    pad_id: int

    def __call__(self, rows: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Return one batch, padded on the right; every place of padding is a document of its own."""
        shape = (len(rows), max(len(row["input_ids"]) for row in rows))
        ids = torch.full(shape, self.pad_id, dtype=torch.int64)
        labels = torch.full(shape, IGNORED, dtype=torch.int64)
        positions = torch.zeros(shape, dtype=torch.int64)
        for n, row in enumerate(rows):
            length = len(row["input_ids"])
            ids[n, :length] = row["input_ids"]
            labels[n, :length] = row["labels"]
            positions[n, :length] = row["position_ids"]
        real = torch.tensor(sum(len(row["input_ids"]) for row in rows))
        return {"input_ids": ids, "labels": labels, "position_ids": positions, "real_tokens": real}


class SeededSampler(Sampler[int]):
    """All packs in the order of (seed, epoch); place n of it costs the same whatever n is."""

    def __init__(self, packs: int, seed: int) -> None:
        """Take the number of packs and the run's seed."""
        self.packs = packs
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of `epoch`, counted from 0; the Trainer calls this."""
        self.epoch = epoch

    def order(self) -> EpochOrder:
        """Return the order of the chosen epoch."""
        return epoch_order(self.packs, self.seed, self.epoch)

    def __len__(self) -> int:
        """Return the number of packs."""
        return self.packs

    def __iter__(self) -> Iterator[int]:
        """Yield every pack's number once."""
        yield from self.order().permutation().tolist()


class LengthGroupedSampler(Sampler[int]):
    """An order in which neighbours have similar lengths; the same for the same seed and epoch.

    Rows are shuffled, sorted by length within stretches of 50 batches, and the batches shuffled; a short batch comes last.
    """

    def __init__(self, lengths: Sequence[int] | NDArray[np.int64], batch_size: int, seed: int) -> None:
        """Take the length of every row and the rows of a batch."""
        self.lengths = np.asarray(lengths)
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of `epoch`, counted from 0; the Trainer calls this."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        """Yield every row's number once."""
        random = np.random.default_rng((self.seed, self.epoch))
        order = random.permutation(len(self.lengths))
        stretch = self.batch_size * _MEGABATCH
        stretches = [order[i : i + stretch] for i in range(0, len(order), stretch)]
        order = np.concatenate([s[np.argsort(-self.lengths[s], kind="stable")] for s in stretches] or [order])
        whole = len(order) // self.batch_size * self.batch_size
        batches = random.permutation(order[:whole].reshape(-1, self.batch_size))
        yield from np.concatenate([batches.reshape(-1), order[whole:]]).tolist()
