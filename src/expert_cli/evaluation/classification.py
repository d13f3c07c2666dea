"""Answers that are labels: which label was answered for which, and F1.

Precision, recall and F1 are 0 where they have no denominator. The macro F1 is the plain mean over the labels that are expected
or answered at least once, as in scikit-learn's `f1_score(average="macro")`; an answer that is no label is a miss for the label
that was expected, and no class of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from expert_cli.evaluation.verifiers.case import Labeled


@dataclass(frozen=True)
class LabelScore:
    """How one label fared. cases: those in which it is right; answered: how often it was answered; hits: both."""

    cases: int
    answered: int
    hits: int

    @property
    def precision(self) -> float:
        """The share of its answers that is right, 0 to 1."""
        return self.hits / max(1, self.answered)

    @property
    def recall(self) -> float:
        """The share of its cases that was answered with it, 0 to 1."""
        return self.hits / max(1, self.cases)

    @property
    def f1(self) -> float:
        """The harmonic mean of both, 0 to 1."""
        return 2 * self.hits / max(1, self.cases + self.answered)

    def as_json(self) -> dict[str, Any]:
        """Return the value under the label in "by_label"."""
        return {"cases": self.cases, "precision": self.precision, "recall": self.recall, "f1": self.f1}


@dataclass(frozen=True)
class Classification:
    """The confusion matrix of cases with the same labels.

    matrix: a row for each expected label, a column for each answered one, and a last column for answers that are none.
    """

    labels: tuple[str, ...]
    matrix: tuple[tuple[int, ...], ...]

    @property
    def cases(self) -> int:
        """How many answers are counted."""
        return sum(map(sum, self.matrix))

    @property
    def by_label(self) -> dict[str, LabelScore]:
        """The score of every label."""
        return {
            label: LabelScore(
                sum(self.matrix[place]), sum(row[place] for row in self.matrix), self.matrix[place][place]
            )
            for place, label in enumerate(self.labels)
        }

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the labels that occur, 0 to 1."""
        found = [score.f1 for score in self.by_label.values() if score.cases or score.answered]
        return sum(found) / len(found)

    def as_json(self) -> dict[str, Any]:
        """Return one entry under "classification"."""
        return {
            "labels": list(self.labels),
            "cases": self.cases,
            "macro_f1": self.macro_f1,
            "by_label": {label: score.as_json() for label, score in self.by_label.items()},
            "confusion": [list(row) for row in self.matrix],
        }


def classifications(answers: Iterable[Labeled]) -> list[Classification]:
    """Count answers, one matrix for each set of labels, in the order in which the sets first come."""
    orders: dict[frozenset[str], tuple[str, ...]] = {}
    counts: dict[frozenset[str], Counter[tuple[str, str | None]]] = {}
    for one in answers:
        group = frozenset(one.labels)
        orders.setdefault(group, one.labels)
        counts.setdefault(group, Counter())[one.expected, one.answered] += 1
    return [
        Classification(labels, tuple(tuple(counts[group][row, column] for column in (*labels, None)) for row in labels))
        for group, labels in orders.items()
    ]
