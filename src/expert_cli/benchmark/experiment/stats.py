"""What repeated runs tell: means and ratios with their 95 % intervals, and whether two losses are the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from statistics import NormalDist, fmean, stdev
from typing import Any, Literal

Verdict = Literal["equal", "higher", "lower", "not finite"]

TOLERANCE = 0.02
"""Losses that differ by less than this share count as equal whatever the noise: precision and order of summing differ."""
STANDARD_ERRORS = 2.0

# Quantiles of Student's t for a two-sided 95 % interval, 1 to 30 degrees of freedom.
_T = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)


def t_quantile(degrees: float) -> float:
    """Return the 97.5 % quantile of Student's t; a broken number of degrees (>= 1) is rounded down, the safe way."""
    whole = math.floor(degrees)
    if whole <= len(_T):
        return _T[whole - 1]
    z = NormalDist().inv_cdf(0.975)  # Abramowitz and Stegun 26.7.5
    return z + (z**3 + z) / (4 * whole) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * whole**2)


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95 % interval; None where one value tells nothing of its spread."""

    mean: float
    ci95: tuple[float, float] | None

    def as_json(self) -> dict[str, Any]:
        """Return {"mean", "ci95"}."""
        return {"mean": self.mean, "ci95": list(self.ci95) if self.ci95 else None}


def mean_of(values: Sequence[float]) -> Estimate:
    """Return the mean of at least one value; the interval by Student's t."""
    mean = fmean(values)
    if len(values) < 2:
        return Estimate(mean, None)
    half = t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Estimate(mean, (mean - half, mean + half))


def paired_ratio(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """Return a / b of pairs that were measured one after the other: the mean of the log ratios, and back.

    A machine that gets slower over the hours slows both of a pair, so that it widens the interval of neither.
    """
    logs = mean_of([math.log(x / y) for x, y in zip(a, b, strict=True)])
    return Estimate(math.exp(logs.mean), (math.exp(logs.ci95[0]), math.exp(logs.ci95[1])) if logs.ci95 else None)


def unpaired_ratio(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """Return a / b of values measured at different times: means of the logs, the interval by Welch's t."""
    logs = [[math.log(value) for value in values] for values in (a, b)]
    difference = fmean(logs[0]) - fmean(logs[1])
    if min(map(len, logs)) < 2:
        return Estimate(math.exp(difference), None)
    errors = [stdev(values) ** 2 / len(values) for values in logs]
    total = sum(errors)
    if not total:
        return Estimate(math.exp(difference), (math.exp(difference), math.exp(difference)))
    degrees = total**2 / sum(error**2 / (len(values) - 1) for error, values in zip(errors, logs, strict=True))
    half = t_quantile(degrees) * math.sqrt(total)
    return Estimate(math.exp(difference), (math.exp(difference - half), math.exp(difference + half)))


@dataclass(frozen=True)
class Curve:
    """The loss of a run over what it has learned from: trained tokens of each optimizer step, mean loss per one of them."""

    tokens: tuple[int, ...]
    losses: tuple[float, ...]

    @property
    def total(self) -> int:
        """Trained tokens of the whole run."""
        return sum(self.tokens)

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
    stop = min(curve.total for curve in (*a, *b))
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
