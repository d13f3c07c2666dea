"""What becomes of documents that are longer than a sequence may be."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from expert_cli.data.packing.plan import Ints, Lengths, Pieces
from expert_cli.errors import InputError
from expert_cli.manifest.keys.loader import Overflow


class HasLengths(Protocol):
    """Documents by number. Numbers that are asked for ascend."""

    def __len__(self) -> int:
        """Return how many there are."""

    def lengths_of(self, numbers: Ints) -> Ints:
        """Return the tokens of some, int64."""

    def prompt_lengths_of(self, numbers: Ints) -> Ints:
        """Return the tokens before the first trained one of some, int64."""


class LeftOut(NamedTuple):
    """rows: documents that were too long. tokens: their tokens that are in no pack."""

    rows: int
    tokens: int


def apply_overflow(lengths: Lengths, prompt_lengths: Lengths, capacity: int, overflow: Overflow) -> Pieces:
    """Decide what becomes of documents longer than `capacity`; return what is left of all, in document order.

    truncate: the middle of the prompt goes, then the middle of the answer; such documents have start 0 and stop at the
    capacity: the tokens of `truncate_middle`, not the first ones. drop: the document goes. split: pieces of `capacity`; one
    that trains nothing goes. `prompt_lengths` = tokens before the first trained one, which "split" asks for, of long documents.
    """
    sizes, prompts = np.asarray(lengths, np.int64), np.asarray(prompt_lengths, np.int64)
    counts = -(-sizes // capacity) if overflow == "split" else np.where((overflow == "drop") & (sizes > capacity), 0, 1)
    documents = np.repeat(np.arange(len(sizes)), counts)
    starts = capacity * (np.arange(len(documents)) - np.repeat(np.cumsum(counts) - counts, counts))
    stops = np.minimum(sizes[documents], starts + capacity)
    if overflow == "split":
        # A single token that is left trains nothing, be it an answer's end: it takes the one before along.
        alone = np.flatnonzero((starts > 0) & (stops - starts == 1)) if capacity > 1 else starts[:0]
        starts[alone] -= 1
        stops[alone - 1] -= 1
        trains = (counts[documents] == 1) | (stops > np.maximum(prompts[documents], starts + 1))
        documents, starts, stops = documents[trains], starts[trains], stops[trains]
    return Pieces(documents, starts, stops)


def pieces_of(numbers: Ints, documents: HasLengths, capacity: int, overflow: Overflow | None) -> Pieces:
    """Return what is left of the documents of these numbers, which ascend. overflow None: they may have any length."""
    lengths = documents.lengths_of(numbers)
    if overflow is None:
        return Pieces(numbers, np.zeros_like(lengths), lengths)
    prompts = np.zeros_like(lengths)
    if overflow == "split":
        long = lengths > capacity
        prompts[long] = documents.prompt_lengths_of(numbers[long])
    fitted = apply_overflow(lengths, prompts, capacity, overflow)
    return Pieces(numbers[fitted.documents], fitted.starts, fitted.stops)


def left_out(documents: HasLengths, rows: range, capacity: int, overflow: Overflow) -> LeftOut:
    """Return what of these documents goes. Raises InputError: "error" and one is too long, or nothing is left."""
    numbers = np.arange(rows.start, rows.stop)
    lengths = documents.lengths_of(numbers)
    is_long = lengths > capacity
    long_ones = int(is_long.sum())
    if long_ones and overflow == "error":
        longest = int(lengths.max())
        raise InputError(
            f"document {numbers[lengths.argmax()]} (counted from 0) has {longest} tokens, max_seq_length is {capacity}; "
            f"{long_ones} of {len(rows)} documents are longer",
            f"Set training.config.max_seq_length to {longest}, or let long documents be truncated, dropped or split.",
        )
    pieces = pieces_of(numbers[is_long], documents, capacity, overflow)
    if rows and long_ones == len(rows) and not len(pieces.documents):
        raise InputError(
            f"none of the {len(rows)} documents fits max_seq_length {capacity}; the shortest has {lengths.min()} tokens",
            "Raise training.config.max_seq_length, or let long documents be truncated.",
        )
    return LeftOut(long_ones, int(lengths[is_long].sum() - pieces.lengths.sum()))
