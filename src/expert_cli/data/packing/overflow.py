"""What becomes of documents that are longer than a sequence may be."""

from __future__ import annotations

import math
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


def left_out(documents: HasLengths, rows: range, capacity: int, overflow: Overflow, at_once: int) -> LeftOut:
    """Look at these documents, so many at once, and return what goes. Raises InputError: "error" and one is too long, or
    nothing is left.
    """
    long_ones, tokens, kept, longest, shortest = 0, 0, 0, (0, 0), math.inf
    for start in range(rows.start, rows.stop, at_once):
        numbers = np.arange(start, min(start + at_once, rows.stop))
        lengths = documents.lengths_of(numbers)
        longest = max(longest, (int(lengths.max()), -int(numbers[lengths.argmax()])))
        shortest = min(shortest, int(lengths.min()))
        long = numbers[lengths > capacity]
        pieces = pieces_of(long, documents, capacity, overflow)
        long_ones += len(long)
        tokens += int(lengths[lengths > capacity].sum() - pieces.lengths.sum())
        kept += len(numbers) - len(long) + len(pieces.documents)
    if long_ones and overflow == "error":
        raise InputError(
            f"document {-longest[1]} (counted from 0) has {longest[0]} tokens, max_seq_length is {capacity}; "
            f"{long_ones} of {len(rows)} documents are longer",
            f"Set training.config.max_seq_length to {longest[0]}, or let long documents be truncated, dropped or split.",
        )
    if rows and not kept:
        raise InputError(
            f"none of the {len(rows)} documents fits max_seq_length {capacity}; the shortest has {shortest} tokens",
            "Raise training.config.max_seq_length, or let long documents be truncated.",
        )
    return LeftOut(long_ones, tokens)
