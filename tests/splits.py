"""Which rows evaluate, of rows that are all in memory."""

from __future__ import annotations

from collections.abc import Sequence

from expert_cli.data.rows.sampling import content_rank, validation_split
from expert_cli.data.rows.scan import halves


def held_out(contents: Sequence[tuple[str, ...]], share: float, seed: int) -> set[int]:
    """Return the rows that evaluate: `validation_split` of their contents."""
    ranks = b"".join(content_rank(content, seed) for content in contents)
    return {int(row) for row in validation_split(halves(ranks), share)}
