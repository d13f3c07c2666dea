"""What becomes of documents that are longer than `max_seq_length`: they are truncated in the middle, dropped, or split."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from expert_cli.data.packing.pack_plan import Pieces
from expert_cli.data.store.store_files import Documents
from expert_cli.errors import InputError
from expert_cli.manifest.keys.loader import Overflow

Tokens = tuple[NDArray[np.int32], NDArray[np.bool_]]
"""Ids of tokens, and whether each is trained."""


def fitted(documents: Documents, capacity: int, overflow: Overflow) -> Pieces:
    """Return what is left of documents where some are longer than `capacity`.

    truncate: such documents stop at the capacity: the tokens of `truncate_middle`, not the first ones. drop: they go. split:
    pieces of `capacity`; one that trains nothing goes. Raises InputError: nothing is left.
    """
    lengths = documents.lengths
    is_long = lengths > capacity
    counts = -(-lengths // capacity) if overflow == "split" else np.where((overflow == "drop") & is_long, 0, 1)
    which = np.repeat(np.arange(len(lengths)), counts)
    if len(lengths) and not len(which):
        told = f"none of the {len(lengths)} documents fits max_seq_length {capacity}; the shortest has {lengths.min()} tokens"
        raise InputError(told, "Raise training.config.max_seq_length, or let long documents be truncated.")
    starts = capacity * (np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts))
    stops = np.minimum(lengths[which], starts + capacity)
    pieces = Pieces(which, starts, stops)
    if overflow != "split" or not is_long.any():
        return pieces
    # A single token that is left trains nothing, be it an answer's end: it takes the one before along.
    alone = np.flatnonzero((starts > 0) & (stops - starts == 1)) if capacity > 1 else starts[:0]
    starts[alone] -= 1
    stops[alone - 1] -= 1
    prompts, _ = documents.mask_lengths
    return pieces.taken((counts[which] == 1) | (stops > np.maximum(prompts[which], starts + 1)))


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
    kept = [np.arange((keep + 1) // 2), np.arange(prompt - keep // 2, prompt)]
    if rest < len(ids) - prompt:
        tail = np.arange(len(ids) - (rest - rest // 2), len(ids))
        kept += [np.arange(prompt, prompt + rest // 2), tail]
        if len(tail) > 1:
            trained = trained.copy()
            trained[tail[0]] = False
    else:
        kept.append(np.arange(prompt, len(ids)))
    chosen = np.concatenate(kept)
    return ids[chosen], trained[chosen]
