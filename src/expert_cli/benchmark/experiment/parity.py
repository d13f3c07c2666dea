"""Whether two losses are the same, at equal trained tokens and within the noise of repeated runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from statistics import fmean, stdev
from typing import Any, Literal

Verdict = Literal["equal", "higher", "lower", "not finite"]

TOLERANCE = 0.02
"""Losses that differ by less than this share count as equal whatever the noise: precision and order of summing differ."""
STANDARD_ERRORS = 2.0


@dataclass(frozen=True)
class Curve:
    """The loss of a run over what it has learned from: trained tokens of each optimizer step, mean loss per one of them."""

    tokens: tuple[int, ...]
    losses: tuple[float, ...]

    def mean_loss(self, start: float, stop: float) -> float:
        """Return the mean loss per trained token from the `start`th to the `stop`th; a step at the edge counts in part."""
        ends = list(accumulate(self.tokens))
        shares = [
            max(0.0, min(stop, end) - max(start, end - tokens)) for end, tokens in zip(ends, self.tokens, strict=True)
        ]
        return sum(share * loss for share, loss in zip(shares, self.losses, strict=True) if share) / (stop - start)


@dataclass(frozen=True)
class Parity:
    """Whether A loses the same as B at equal trained tokens.

    a, b: mean losses of the runs between `tokens`, None where one is not finite. difference: a - b; the losses are equal if
    it is not larger than tolerance + noise. All are in the loss's own unit.
    """

    verdict: Verdict
    a: float | None
    b: float | None
    difference: float
    noise: float
    tolerance: float
    tokens: tuple[int, int]

    @property
    def holds(self) -> bool:
        """Whether the losses are the same: one that is too low is no better sign than one that is too high."""
        return self.verdict == "equal"

    def as_json(self) -> dict[str, Any]:
        """Return the values, with what they come to."""
        return {"holds": self.holds, **asdict(self), "band": self.noise + self.tolerance, "tokens": list(self.tokens)}


def parity(a: Sequence[Curve], b: Sequence[Curve]) -> Parity:
    """Compare the losses of pairs of runs that began with the same adapter and saw the same rows in the same order.

    Steps need not hold the same number of tokens, so losses are compared over the same trained tokens, the second half of
    those that every run reached: in the first half nobody has learned much. The noise is two standard errors of the mean of
    the smallest spread from repeat to repeat: of A, of B, or of the pairs' differences. The smallest, because a side that
    is broken is often wild as well, and must not be excused by its own spread.
    """
    stop = min(sum(curve.tokens) for curve in (*a, *b))
    window = (stop // 2, stop)
    losses = [[curve.mean_loss(*window) for curve in side] for side in (a, b)]
    if not all(math.isfinite(loss) for side in losses for loss in side):
        finite = [fmean(side) if all(map(math.isfinite, side)) else None for side in losses]
        return Parity("not finite", finite[0], finite[1], 0.0, 0.0, 0.0, window)
    differences = [x - y for x, y in zip(*losses, strict=True)]
    spread = min(map(stdev, (*losses, differences))) if len(differences) > 1 else 0.0
    mean_a, mean_b, difference = fmean(losses[0]), fmean(losses[1]), fmean(differences)
    noise = STANDARD_ERRORS * spread / math.sqrt(len(differences))
    tolerance = TOLERANCE * mean_b
    verdict: Verdict = "higher" if difference > 0 else "lower"
    if abs(difference) <= noise + tolerance:
        verdict = "equal"
    return Parity(verdict, mean_a, mean_b, difference, noise, tolerance, window)
