"""Judges rows of answers, and counts what came of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from expert_cli.errors import InputError
from expert_cli.evaluation.cases import CaseAnswer
from expert_cli.evaluation.extract import extract
from expert_cli.evaluation.verdict import Grade, Kind
from expert_cli.utils.reporter import Reporter, late_progress
from expert_cli.utils.statistics import wilson

EXAMPLES = 3


@dataclass(frozen=True)
class GradedAnswer:
    """One answer and what came of it."""

    row: CaseAnswer
    verdict: Grade

    def as_json(self) -> dict[str, Any]:
        """Return the row under "answers"."""
        return {
            "id": self.row.id,
            "case": self.row.digest,
            "prompt": self.row.prompt or None,
            "category": self.row.case.category,
            "kind": self.verdict.kind,
            "detail": self.verdict.detail,
            "answer": self.row.answer,
            "stop": self.row.stop or None,
        } | ({"raw": self.row.raw} if self.row.raw else {})


@dataclass(frozen=True)
class Accuracy:
    """How many of the cases passed."""

    cases: int
    correct: int

    @property
    def accuracy(self) -> float:
        """The share that passed, 0 to 1."""
        return self.correct / self.cases

    @property
    def ci95(self) -> tuple[float, float]:
        """The 95 % interval of Wilson, which holds near 0 and 1 and for few cases."""
        return wilson(self.correct, self.cases)

    def as_json(self) -> dict[str, Any]:
        """Return counts, share and interval."""
        return {"cases": self.cases, "correct": self.correct, "accuracy": self.accuracy, "ci95": list(self.ci95)}


@dataclass(frozen=True)
class Evaluation:
    """The judged answers, in the order of their rows; there is at least one."""

    answers: tuple[GradedAnswer, ...]

    @property
    def passed(self) -> list[bool]:
        """Whether each answer is right."""
        return [one.verdict.passed for one in self.answers]

    @property
    def share(self) -> Accuracy:
        """All cases."""
        return _share(self.answers)

    @property
    def by_category(self) -> dict[str, Accuracy]:
        """The cases of each category, in the order in which they first come."""
        names = dict.fromkeys(judged.row.case.category for judged in self.answers)
        return {name: _share([one for one in self.answers if one.row.case.category == name]) for name in names}

    @property
    def failures(self) -> dict[Kind, int]:
        """How many answers of each class did not pass, the largest class first."""
        return dict(Counter(one.verdict.kind for one in self.answers if not one.verdict.passed).most_common())

    def examples(self, kind: Kind) -> list[GradedAnswer]:
        """Return the first answers of a class."""
        return [one for one in self.answers if one.verdict.kind == kind][:EXAMPLES]

    def as_json(self) -> dict[str, Any]:
        """Return the keys of `evaluate --json` (docs/INTERFACE.md) that judging alone can fill."""
        return {
            **self.share.as_json(),
            "by_category": {name: share.as_json() for name, share in self.by_category.items()},
            "failures": self.failures,
            "answers": [judged.as_json() for judged in self.answers],
        }


def grade(rows: Sequence[CaseAnswer], report: Reporter, case_timeout_s: float) -> Evaluation:
    """Judge every answer; a bar is shown where that takes longer than two seconds.

    Raises InputError with file and line where a case itself is at fault, EnvironmentProblem where an engine is missing.
    """
    judged: list[GradedAnswer] = []
    with late_progress(report, "judging", len(rows), "answers") as show:
        for row in rows:
            judged.append(GradedAnswer(row, verdict_on(row, case_timeout_s)))
            show(len(judged))
    return Evaluation(tuple(judged))


def verdict_on(row: CaseAnswer, timeout_s: float) -> Grade:
    """Take the answer out of its text, and run it."""
    try:
        return row.case.grade(extract(row.answer, row.case.fences), row.file, timeout_s)
    except InputError as error:
        raise InputError(f"{row.where}: {error.message}", error.hint) from error


def _share(answers: Sequence[GradedAnswer]) -> Accuracy:
    return Accuracy(len(answers), sum(one.verdict.passed for one in answers))
