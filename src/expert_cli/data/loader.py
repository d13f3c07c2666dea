"""Documents become packs: rows of documents that do not see each other, over the memory-mapped store.

One pack (documents A and B):

    input_ids     A0 A1 A2 A3 B0 B1 B2
    position_ids  0  1  2  3  0  1  2      where it returns to 0 a new document begins
    labels        -  -  A2 A3 -  -  B2     "-" is -100: prompts and first tokens

Labels are masked by position, never by id, since the padding id may be the end token's.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from expert_cli.data.documents import Documents
from expert_cli.data.packing import Fitted, Packs, concat, fit_lengths, pack, single
from expert_cli.runconfig import Overflow, Packing

IGNORED = -100
FILLER = -1
"""The index of a pack without tokens: what a process gets where the last step of an epoch has no pack left for it."""


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

    @property
    def document_lengths(self) -> NDArray[np.int64]:
        """Tokens of every piece of a document that lies in a pack, int64 [pieces]."""
        return self.packs.stops - self.packs.starts

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return one pack; `FILLER` gives one without tokens."""
        if index == FILLER:
            empty = torch.empty(0, dtype=torch.int64)
            return {"input_ids": empty, "labels": empty, "position_ids": empty}
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
