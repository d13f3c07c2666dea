"""Documents become packs: rows of documents that do not see each other, over the memory-mapped store.

One pack (documents A and B):

    input_ids     A0 A1 A2 A3 B0 B1 B2
    position_ids  0  1  2  3  0  1  2      where it returns to 0 a new document begins
    labels        -  -  A2 A3 -  -  B2     "-" is -100: prompts and first tokens

Labels are masked by position, never by id, since the padding id may be the end token's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from expert_cli.data.packing.epoch_packs import EpochPacks
from expert_cli.data.store.documents import Documents
from expert_cli.manifest.keys.loader import Overflow, Packing

Place = tuple[int, int]
"""An epoch (from 0) and the number that `EpochPacks` gives a pack in it."""

IGNORE_INDEX = -100
FILLER: Place = (0, -1)
"""The place of a pack without tokens: what a process gets where the last step of an epoch has no pack left for it."""


class PackedDataset(Dataset[dict[str, torch.Tensor]]):
    """Packs over an opened store: item (e, n) is the pack of number n of epoch e.

    An item is `input_ids`, `labels`, `position_ids`, int64 [tokens of the pack]. Picklable and small: a worker process maps
    the store's files again.
    """

    def __init__(
        self,
        documents: Documents,
        capacity: int,
        packing: Packing,
        overflow: Overflow,
        seed: int = 0,
        rows: range | None = None,
    ) -> None:
        """Decide from the lengths alone what is cut and which documents share a sequence; only masks are read, if needed.

        seed: with the epoch, decides random packs. rows: the documents that are packed; None: all. Raises InputError: overflow
        "error" with a document that is too long, or nothing is left.
        """
        self.documents = documents
        self.packs = EpochPacks(documents, capacity, packing, overflow, seed, rows=rows)
        # Whether a piece that ends before its document does is truncated in the middle, not cut off.
        self.shortens = packing != "concat" and overflow == "truncate"

    def __len__(self) -> int:
        """Return the number of packs of an epoch."""
        return self.packs.count()

    def __getitem__(self, place: Place) -> dict[str, torch.Tensor]:
        """Return one pack; `FILLER` gives one without tokens."""
        if place == FILLER:
            empty = torch.empty(0, dtype=torch.int64)
            return {"input_ids": empty, "labels": empty, "position_ids": empty}
        ids, labels, positions = [], [], []
        for document, start, stop in np.stack(self.packs.pack(*place), axis=1).tolist():
            tokens, trained = self._piece(*self.documents.document(document), start, stop)
            targets = np.where(trained, tokens, IGNORE_INDEX)
            targets[:1] = IGNORE_INDEX
            ids.append(tokens)
            labels.append(targets)
            positions.append(np.arange(len(tokens)))
        return {
            "input_ids": torch.from_numpy(np.concatenate(ids).astype(np.int64)),
            "labels": torch.from_numpy(np.concatenate(labels).astype(np.int64)),
            "position_ids": torch.from_numpy(np.concatenate(positions)),
        }

    def pieces_of(self, document: int) -> list[tuple[NDArray[np.int32], NDArray[np.bool_]]] | None:
        """Return which tokens of a document are left, piece by piece, by their numbers, and whether each is trained.

        None with "concat", where every pack may cut it.
        """
        pieces = self.packs.pieces_of(document)
        if pieces is None:
            return None
        ids, trained = self.documents.document(document)
        numbers = np.arange(len(ids), dtype=np.int32)
        return [self._piece(numbers, trained, start, stop) for _, start, stop in np.stack(pieces, axis=1).tolist()]

    def _piece(
        self, ids: NDArray[np.int32], trained: NDArray[np.bool_], start: int, stop: int
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        if self.shortens and stop < len(ids):
            return truncate_middle(ids, trained, stop)
        return ids[start:stop], trained[start:stop]


@dataclass(frozen=True)
class TrainingData:
    """The packs that train, the sets of those that evaluate by name ("" = of none), and the id that fills up rows.

    run_answers: lets the model as it is answer cases, and returns the share that is right; None: not asked for.
    """

    train: PackedDataset
    validation: Mapping[str, PackedDataset]
    pad_id: int
    run_answers: Callable[[], float] | None = None

    @property
    def longest(self) -> int:
        """Tokens of the longest document, of those that evaluate too."""
        return max(data.packs.document_lengths.longest for data in (self.train, *self.validation.values()))


def truncate_middle(
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
