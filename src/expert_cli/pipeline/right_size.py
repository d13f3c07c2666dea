"""Computes the effect of other row lengths (`max_seq_length`) on a store, and recommends one."""

from __future__ import annotations

from dataclasses import dataclass

from expert_cli.data.packing.pack_plan import best_fit_steps
from expert_cli.utils.length_histogram import LengthHistogram

SIZES = (512, 768, 1024, 1536, 2048, 4096)
_MOST_CUT = 0.001


@dataclass(frozen=True)
class LengthRow:
    """The effect of a `max_seq_length`: packs, how full they are, documents shortened and by how many tokens in total."""

    max_seq_length: int
    sequences: int
    fill: float
    truncated_rows: int
    truncated_tokens: int


def length_table(lengths: LengthHistogram, *others: int) -> list[LengthRow]:
    """Return a row for each of `SIZES` and of the `others`, ascending; long documents are truncated."""
    rows = []
    for capacity in sorted({*SIZES, *others}):
        truncated, cut = lengths.beyond(capacity)
        fitting = lengths.counts[: capacity + 1].tolist()
        fitting[-1] += truncated
        packs = best_fit_steps(fitting, capacity)[1]
        fill = (lengths.tokens - cut) / max(1, packs * capacity)
        rows.append(LengthRow(capacity, packs, fill, truncated, cut))
    return rows


def recommend(lengths: LengthHistogram, present: int) -> int:
    """Return the smallest of `SIZES`, larger powers of two and `present` that cuts at most 0.1 % of the tokens."""
    usual = {*SIZES, present, *(1 << power for power in range(13, lengths.longest.bit_length() + 1))}
    return next(size for size in sorted(usual) if lengths.beyond(size)[1] <= _MOST_CUT * lengths.tokens)
