"""Whether an answer says one thing over and over."""

from __future__ import annotations

from collections.abc import Sequence

BLOCK = 8
"""Tokens that a repeated block has at least: shorter ones, which tables of numbers hold, count in multiples."""
TIMES = 4
"""How often a block stands one after another in an answer that loops."""


def is_looping(ids: Sequence[int]) -> bool:
    """Return whether an answer ends with a block of at least BLOCK tokens, TIMES times."""
    count = len(ids)
    for size in range(BLOCK, count // TIMES + 1):
        if ids[-1] == ids[-1 - size] and all(
            ids[count - size :] == ids[count - (n + 1) * size : count - n * size] for n in range(1, TIMES)
        ):
            return True
    return False
