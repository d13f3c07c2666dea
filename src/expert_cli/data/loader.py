"""Encoded documents become batches: one document a row, padded to the longest of its batch.

Labels are -100 by position, at untrained tokens and at padding: never by id, since the padding may be the end token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, Sampler

from expert_cli.data.encode import Encoded

IGNORED = -100
_MEGABATCH = 50


class DocumentDataset(Dataset[dict[str, torch.Tensor]]):
    """One document a row, at most `max_seq_length` tokens of it: `input_ids` and `labels`, int64 [tokens].

    lengths: int64 [documents], after shortening. truncated_rows, truncated_tokens: what was shortened, by how much.
    """

    def __init__(self, encoded: Encoded, max_seq_length: int) -> None:
        """Keep the arrays of `encoded`; documents are shortened when they are asked for."""
        full = np.diff(encoded.offsets)
        self.encoded = encoded
        self.max_seq_length = max_seq_length
        self.lengths: NDArray[np.int64] = np.minimum(full, max_seq_length)
        self.truncated_rows = int((full > max_seq_length).sum())
        self.truncated_tokens = int((full - self.lengths).sum())

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return one document, shortened if it is too long."""
        start, stop = self.encoded.offsets[index], self.encoded.offsets[index + 1]
        ids, trained = shorten(self.encoded.ids[start:stop], self.encoded.trained[start:stop], self.max_seq_length)
        labels = np.where(trained, ids, IGNORED)
        return {
            "input_ids": torch.from_numpy(ids.astype(np.int64)),
            "labels": torch.from_numpy(labels.astype(np.int64)),
        }


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
    """Pads rows to the longest of them: `input_ids`, `attention_mask`, `labels`, each int64 [rows, longest]."""

    pad_id: int

    def __call__(self, rows: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Return one batch, padded on the right."""
        shape = (len(rows), max(len(row["input_ids"]) for row in rows))
        ids = torch.full(shape, self.pad_id, dtype=torch.int64)
        labels = torch.full(shape, IGNORED, dtype=torch.int64)
        mask = torch.zeros(shape, dtype=torch.int64)
        for n, row in enumerate(rows):
            length = len(row["input_ids"])
            ids[n, :length] = row["input_ids"]
            labels[n, :length] = row["labels"]
            mask[n, :length] = 1
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class LengthGroupedSampler(Sampler[int]):
    """An order in which neighbours have similar lengths; the same for the same seed and epoch.

    Rows are shuffled, sorted by length within 50 batches at a time, and the batches shuffled; a short batch comes last.
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
