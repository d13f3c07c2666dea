"""Two evaluations of the same cases, case by case: what was lost, what was gained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from expert_cli.evaluation.grade import Evaluation
from expert_cli.utils.statistics import paired_difference


@dataclass(frozen=True)
class Paired:
    """`lost`: passed first, not second; `gained`: the reverse."""

    cases: int
    lost: int
    gained: int

    @property
    def drop(self) -> float:
        """How much the accuracy fell; negative where it rose."""
        return (self.lost - self.gained) / self.cases

    @property
    def ci95(self) -> tuple[float, float]:
        """The 95 % interval of the drop."""
        return paired_difference(self.cases, self.lost, self.gained)

    @property
    def reversed(self) -> Paired:
        """The same pairs with the second evaluation as the first: its drop is how much the accuracy rose."""
        return Paired(self.cases, self.gained, self.lost)

    def as_json(self) -> dict[str, Any]:
        """Return counts, drop and interval."""
        return {
            "cases": self.cases,
            "lost": self.lost,
            "gained": self.gained,
            "drop": self.drop,
            "ci95": list(self.ci95),
        }


def pair(first: Evaluation, second: Evaluation) -> Paired:
    """Pair two evaluations of the same rows in the same order."""
    return pair_passed([one.verdict.passed for one in first.answers], [one.verdict.passed for one in second.answers])


def pair_passed(first: Sequence[bool], second: Sequence[bool]) -> Paired:
    """Pair what passed and what did not, row by row."""
    passed = list(zip(first, second, strict=True))
    return Paired(len(passed), passed.count((True, False)), passed.count((False, True)))
