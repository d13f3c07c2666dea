"""Truncates (in the middle), drops or splits documents that are longer than `max_seq_length`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from expert_cli.data.packing.pack_plan import Pieces
from expert_cli.data.store.store_files import Documents
from expert_cli.errors import InputError
from expert_cli.manifest.keys.loader import Overflow


def fitted(documents: Documents, capacity: int, overflow: Overflow) -> Pieces:
    """Return the documents, or pieces of them, that fit into `capacity` tokens.

    truncate: `truncate_middle` cuts long documents to the capacity. drop: they are left out. split: they are cut into pieces of
    `capacity` tokens; pieces that train nothing are left out. Raises InputError if nothing is left.
    """
    lengths = documents.lengths
    is_long = lengths > capacity
    counts = -(-lengths // capacity) if overflow == "split" else np.where((overflow == "drop") & is_long, 0, 1)
    which = np.repeat(np.arange(len(lengths)), counts)
    if len(lengths) and not len(which):
        told = f"none of the {len(lengths)} documents fits max_seq_length {capacity}; the shortest has {lengths.min()} tokens"
        raise InputError(told, "raise training.config.max_seq_length, or let long documents be truncated")
    starts = capacity * (np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts))
    stops = np.minimum(lengths[which], starts + capacity)
    pieces = Pieces(which, starts, stops)
    if overflow != "split" or not is_long.any():
        return pieces
    # A single remaining token, even an end token, cannot be trained, so its piece also takes the token before it.
    alone = np.flatnonzero((starts > 0) & (stops - starts == 1)) if capacity > 1 else starts[:0]
    starts[alone] -= 1
    stops[alone - 1] -= 1
    return pieces.taken((counts[which] == 1) | (documents.trained_in(pieces) > 0))


def truncate_middle(
    ids: NDArray[np.int32], trained: NDArray[np.bool_], limit: int
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Cut a document to `limit` tokens in the middle of its prompt, keeping its beginning and its end:

        prompt head … prompt tail | answer, end token

    The prompt keeps at least a quarter of `limit`. If necessary, the answer is cut in its middle, too. The token after that cut
    is not trained, because its context is missing.
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
