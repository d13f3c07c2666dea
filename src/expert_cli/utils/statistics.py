"""Means, shares, ratios and differences with 95 % confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

Z_95 = 1.959964

# Quantiles of Student's t for a two-sided 95 % interval, 1 to 30 degrees of freedom.
_T = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)


def t_quantile(degrees: float) -> float:
    """Return the 97.5 % quantile of Student's t; fractional degrees of freedom (>= 1) are rounded down, to be safe."""
    whole = math.floor(degrees)
    if whole <= len(_T):
        return _T[whole - 1]
    z = Z_95  # Abramowitz and Stegun 26.7.5
    return z + (z**3 + z) / (4 * whole) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * whole**2)


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95 % interval; the interval is None for a single value."""

    mean: float
    ci95: tuple[float, float] | None

    def as_json(self) -> dict[str, Any]:
        """Return {"mean", "ci95"}."""
        return {"mean": self.mean, "ci95": list(self.ci95) if self.ci95 else None}


def mean_of(values: Sequence[float]) -> Estimate:
    """Return the mean of at least one value, with the interval by Student's t."""
    mean = fmean(values)
    if len(values) < 2:
        return Estimate(mean, None)
    half = t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Estimate(mean, (mean - half, mean + half))


def paired_ratio(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """Return the mean of paired ratios a / b, computed over their logarithms."""
    logs = mean_of([math.log(x / y) for x, y in zip(a, b, strict=True)])
    return Estimate(math.exp(logs.mean), (math.exp(logs.ci95[0]), math.exp(logs.ci95[1])) if logs.ci95 else None)


def wilson(correct: float, cases: float) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share, which may be an estimate itself (JASA 22, 1927, 209-212)."""
    share = correct / cases
    spread = Z_95**2 / cases
    middle = (share + spread / 2) / (1 + spread)
    half = Z_95 / (1 + spread) * math.sqrt(share * (1 - share) / cases + spread / (4 * cases))
    return max(0.0, middle - half), min(1.0, middle + half)


def pass_at(k: int, correct: int, tries: int) -> float:
    """Return an unbiased estimate of the probability that one of k <= tries is right (Chen et al., arXiv 2107.03374)."""
    return 1 - math.comb(tries - correct, k) / math.comb(tries, k)


@dataclass(frozen=True)
class Paired:
    """Results of two evaluations of the same cases. `lost`: right only in the first; `gained`: only in the second."""

    cases: int
    lost: int
    gained: int

    @classmethod
    def of(cls, first: Iterable[bool], second: Iterable[bool]) -> Paired:
        """Pair the results case by case; there is at least one."""
        passed = list(zip(first, second, strict=True))
        return cls(len(passed), passed.count((True, False)), passed.count((False, True)))

    @property
    def drop(self) -> float:
        """How much the share of right answers fell; negative if it rose."""
        return (self.lost - self.gained) / self.cases

    @property
    def ci95(self) -> tuple[float, float]:
        """The 95 % interval of the drop, also for few pairs, or if none or all of them differ.

        Source: Bonett and Price, Journal of Educational and Behavioral Statistics 37 (2012).
        """
        lost, gained = (self.lost + 1) / (self.cases + 2), (self.gained + 1) / (self.cases + 2)
        middle = lost - gained
        half = Z_95 * math.sqrt((lost + gained - middle**2) / (self.cases + 2))
        return max(-1.0, middle - half), min(1.0, middle + half)

    def rise(self) -> dict[str, Any]:
        """Return how much the share of right answers rose, its interval, and counts."""
        low, high = self.ci95
        told = {"difference": (self.gained - self.lost) / self.cases, "ci95": [-high, -low]}
        return {**told, "gained": self.gained, "lost": self.lost}

    def as_json(self) -> dict[str, Any]:
        """Return counts, drop and interval."""
        return {**asdict(self), "drop": self.drop, "ci95": list(self.ci95)}
