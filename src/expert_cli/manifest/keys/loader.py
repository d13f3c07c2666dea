"""Packing and loading of batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from expert_cli.manifest.key import Positive, Strict, key, unused

Packing = Literal["random", "best_fit", "concat", "off"]
Overflow = Literal["truncate", "drop", "split"]
PACKINGS: dict[Packing, str] = {
    "random": "each row is filled with whole documents, drawn at random again in every epoch; they do not attend to each other",
    "best_fit": "each row is filled with whole documents of similar length, the same in every epoch, which do not attend to "
    "each other; documents of one database or template share a row up to 50 times as often as by chance",
    "concat": "documents are joined end to end and cut; for comparison only",
    "off": "one document in each row, padded to the longest of its batch",
}
OVERFLOWS: dict[Overflow, str] = {
    "truncate": "longer documents lose the middle of their prompt",
    "drop": "longer documents are left out",
    "split": "longer documents are split",
}
ALIKE = "rows of similar length share a batch, by the seed; they are often similar in content, too"


class LoaderKeys(Strict):
    """The keys for packs and batches."""

    max_seq_length: Annotated[int, Field(ge=8, le=2**24)] | None = key(
        2048,
        "a row holds {} tokens",
        why="fits most questions with their answers, and the activations fit a small GPU; short documents share rows",
    )
    """Longest document in tokens."""
    packing: bool | Literal["random", "best_fit", "concat"] | None = key(
        "random",
        PACKINGS,
        why="no time is spent on padding, and documents are combined at random, as in batches without packing",
    )
    """Fill each row with several documents that do not attend to each other: "random" (or true) draws them anew in every
    epoch, "best_fit" groups documents of similar length, "concat" cuts them; false: one document in each row."""
    overflow: Overflow | None = key(
        "truncate",
        "documents longer than max_seq_length: {}",
        why="the answer stays whole, the prompt keeps both ends, and the number of cut documents is reported",
    )
    """How to handle documents longer than `max_seq_length`: truncate (the middle of the prompt), drop, split."""
    group_by_length: bool | None = key(False, ALIKE, off="rows are shuffled", why="rows of one length are often alike")
    """Batches of rows of similar length."""
    dataloader_num_workers: Annotated[int, Field(ge=0, le=1024)] | None = key(
        0, "{} processes prepare batches", why="tokenized rows are read in microseconds, so steps do not wait for them"
    )
    """Processes that prepare batches; 0 prepares them in the training process."""
    dataloader_pin_memory: bool | None = key(True, "pinned batches", off="usual memory", why="copies run during steps")
    """Pinned memory for faster copies to a GPU."""
    dataloader_prefetch_factor: Positive | None = key(2, "batches prepared ahead by each worker", why="PyTorch's own")
    """Batches each worker prepares ahead."""
    dataloader_persistent_workers: bool | None = unused("workers are always kept for the whole run")
    """Keep the workers between epochs."""


@dataclass(frozen=True)
class LoaderConfig:
    """How batches are loaded. `prefetch_factor` is None without workers."""

    num_workers: int
    pin_memory: bool
    prefetch_factor: int | None
    packing: Packing
    overflow: Overflow
    group_by_length: bool
