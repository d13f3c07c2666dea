"""What other row lengths would mean for the documents of a store, and which one is recommended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from expert_cli.data.packing.plan import Ints, best_fit_steps
from expert_cli.data.store.documents import DocumentLengths
from expert_cli.utils.length_histogram import LengthHistogram

SIZES = (512, 768, 1024, 1536, 2048, 4096)
_MOST_CUT = 0.001


@dataclass(frozen=True)
class LengthRow:
    """What a `max_seq_length` would mean: packs, how full, documents shortened and by how many tokens in all."""

    max_seq_length: int
    sequences: int
    fill: float
    truncated_rows: int
    truncated_tokens: int


def length_table(lengths: LengthHistogram, *others: int) -> list[LengthRow]:
    """Return a row for each of `SIZES` and of the `others`, ascending; long documents truncated."""
    rows = []
    for capacity in sorted({*SIZES, *others}):
        truncated, cut = lengths.beyond(capacity)
        fitting = lengths.counts[: capacity + 1].tolist()
        fitting[-1] += truncated
        packs = best_fit_steps(fitting, capacity)[1]
        fill = (lengths.tokens - cut) / max(1, packs * capacity)
        rows.append(LengthRow(capacity, packs, fill, truncated, cut))
    return rows


def recommend(lengths: LengthHistogram, documents: Iterable[DocumentLengths], present: int) -> int:
    """Return the smallest of `SIZES`, powers of two above them and `present` that truncates less than 0.1 % of tokens.

    Less than 0.1 % of the trained tokens, and of all tokens as well: answers may be whole at a size that leaves nothing of
    their prompts. Where fewer tokens of a document are trained than follow the prompt (several turns), their share of those
    is taken as cut. documents: all that `lengths` counts, some at a time.
    """
    usual = [*SIZES]
    while usual[-1] < lengths.longest:
        usual.append(2 * usual[-1])
    trained, trained_cut = 0, {size: 0.0 for size in (*usual, present) if size < lengths.longest}
    for some in documents if trained_cut else ():
        trained += int(some.trained.sum())
        share_trained = some.trained / np.maximum(some.tokens - some.prompts, 1)
        for capacity in trained_cut:
            trained_cut[capacity] += float((answer_cut(some, capacity) * share_trained).sum())

    def keeps(capacity: int) -> bool:
        tokens = lengths.beyond(capacity)[1]
        return not tokens or (tokens < _MOST_CUT * lengths.tokens and trained_cut[capacity] < _MOST_CUT * trained)

    first = next(filter(keeps, usual))
    return present if present < first and keeps(present) else first


def answer_cut(documents: DocumentLengths, capacity: int) -> Ints:
    """Return how many tokens of each answer `dataset.truncate_middle` cuts or leaves untrained after the seam."""
    sizes, prompts = documents.tokens, documents.prompts
    keep = np.maximum(np.minimum(prompts, capacity // 4), prompts - (sizes - capacity))
    rest = capacity - keep
    cut = sizes - prompts - rest
    return np.where(cut > 0, cut + (rest > 2), 0)
