"""Which rows of a source: weights and the split of validation rows. Pure, and the same on every machine.

Where chance decides, rows are ordered by a keyed hash, never by a random generator whose algorithm may change.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from expert_cli.errors import InputError


def repeat_counts(rows: int, weight: float, seed: int, salt: str) -> NDArray[np.int32]:
    """Return how often each row is taken: 0.4 a seeded 40 % of them once, 2.0 all twice, 1.5 all once and half again.

    A weight above 0 takes at least one row; `salt` tells sources apart, so that equal ones are sampled differently.
    """
    whole = int(weight)
    extra = round((weight - whole) * rows)
    if whole == 0 and weight > 0 and rows:
        extra = max(extra, 1)
    copies = np.full(rows, whole, np.int32)
    for row in sorted(range(rows), key=lambda row: _rank(seed, f"{salt}:{row}"))[:extra] if extra else ():
        copies[row] += 1
    return copies


def replayed_rows(share: float, others: int) -> int:
    """Return how many rows are `share` of all, beside so many others; at least one."""
    return max(1, round(share / (1 - share) * others))


def content_rank(content: tuple[str, ...], seed: int) -> bytes:
    """Return a row's place in the order by seed and content: 16 bytes, equal for equal rows."""
    return _rank(seed, "\0".join(content))


def validation_split(ranks: NDArray[np.uint64], share: float) -> NDArray[np.int64]:
    """Return the rows that evaluate: the first `share` of them by rank. `ranks`: [rows, 2], those of all rows in halves.

    Equal rows stay on one side, so that no row that trains is evaluated; the share is met from above by less than one
    such group, and is at least one row. Raises InputError where no row would be left to train.
    """
    order = np.lexsort((ranks[:, 1], ranks[:, 0]))
    changes = (np.diff(ranks[order], axis=0) != 0).any(axis=1)
    group_ends = np.append(np.flatnonzero(changes) + 1, len(order))
    wanted = max(1, round(share * len(order)))
    chosen = order[: group_ends[np.searchsorted(group_ends, wanted)]]
    if len(chosen) == len(order):
        raise InputError(
            f"{len(order)} rows ({len(group_ends)} different ones) cannot be split for evaluation (share {share})",
            "Name validation rows of their own, or train on more rows.",
        )
    return np.sort(chosen)


def first_ones(digests: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return which of some digests, [digests, 2], are not among those before them."""
    order = np.lexsort((digests[:, 1], digests[:, 0]))  # stable: of equal ones the first comes first
    first = np.ones(len(digests), np.bool_)
    first[order[1:]] = (np.diff(digests[order], axis=0) != 0).any(axis=1)
    return first


def _rank(seed: int, text: str) -> bytes:
    return hashlib.blake2b(f"{seed}:{text}".encode(), digest_size=16).digest()
