"""Judges rows of answers, several at once, and counts what came of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from expert_cli.errors import InputError
from expert_cli.evaluation.cases import MAX_CHARACTERS, CaseAnswer
from expert_cli.evaluation.classification import Classification, classifications
from expert_cli.evaluation.parallel import fitting_threads, in_order
from expert_cli.evaluation.samples import Sampled, majority_of
from expert_cli.evaluation.verdict import Grade, Kind
from expert_cli.evaluation.verifiers.case import Case, Labeled
from expert_cli.evaluation.verifiers.sandbox.isolation import MEMORY_BYTES
from expert_cli.utils.reporter import Reporter, late_progress
from expert_cli.utils.statistics import wilson

EXAMPLES = 3
TOGETHER = 25


@dataclass(frozen=True)
class GradedAnswer:
    """One answer and what came of it.

    samples: those of `row`, judged, this one first. majority: the place of the one that answers what most of them do; None
    where none answers.
    """

    row: CaseAnswer
    verdict: Grade
    samples: tuple[GradedAnswer, ...] = ()
    majority: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the row under "answers"."""
        return {
            "id": self.row.id,
            "case": self.row.digest,
            "prompt": self.row.question.digest if self.row.question else None,
            "question": self.row.question._asdict() if self.row.question else None,
            "expected": self.row.case.criterion,
            "category": self.row.case.category,
            **({"schema_prompt": self.row.shown} if self.row.shown else {}),
            **self._one,
        } | ({"samples": [one._one for one in self.samples], "majority": self.majority} if self.samples else {})

    @property
    def _one(self) -> dict[str, Any]:
        return {
            "kind": self.verdict.kind,
            "detail": self.verdict.detail,
            "answer": self.row.answer,
            "stop": self.row.stop or None,
        } | ({"raw": self.row.raw} if self.row.raw else {})

    @property
    def is_late(self) -> bool:
        """Whether it ran out of time, or one of its samples did."""
        return any(one.verdict.kind == "timeout" for one in self.samples or (self,))

    @property
    def labeled(self) -> Labeled | None:
        """The answer as a label; None where answers are none."""
        return self.row.case.labeled(self.row.extracted or "")


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

    @property
    def unknown_names(self) -> int:
        """How many answers name what is not there."""
        return self.failures.get("unknown_name", 0)

    @property
    def classifications(self) -> list[Classification]:
        """The answers that are labels, those of the same labels together."""
        return classifications(filter(None, (one.labeled for one in self.answers)))

    @property
    def sampled(self) -> Sampled | None:
        """What more tries are worth; None where a case has no samples."""
        if not all(one.samples for one in self.answers):
            return None
        passed = [[each.verdict.passed for each in one.samples] for one in self.answers]
        right = [one.majority is not None and one.samples[one.majority].verdict.passed for one in self.answers]
        return Sampled.of(passed, right, [bool(one.row.case.starts) for one in self.answers])

    def examples(self, kind: Kind) -> list[GradedAnswer]:
        """Return the first answers of a class."""
        return [one for one in self.answers if one.verdict.kind == kind][:EXAMPLES]

    def as_json(self) -> dict[str, Any]:
        """Return the keys of `evaluate --json` (docs/INTERFACE.md) that judging alone can fill."""
        labels = [one.as_json() for one in self.classifications]
        return {
            **self.share.as_json(),
            **(self.sampled.as_json() if self.sampled else {}),
            "by_category": {name: share.as_json() for name, share in self.by_category.items()},
            **({"classification": labels} if labels else {}),
            "failures": self.failures,
            "answers": [judged.as_json() for judged in self.answers],
        }


def grade(
    rows: Sequence[CaseAnswer], report: Reporter, case_timeout_s: float, threads: int | None = None
) -> Evaluation:
    """Judge every answer, with its samples; a bar is shown where that takes longer than two seconds.

    threads: default, one a core, where the memory suffices that an answer may take; verdicts and their order are the same
    for any number. Raises InputError with file and line where a case itself is at fault (the first one in order),
    EnvironmentProblem where an engine is missing.
    """
    threads = min(threads or fitting_threads(MEMORY_BYTES), len(rows)) or 1
    with late_progress(report, "judging", len(rows), "answers") as show:

        def judged(chosen: Sequence[CaseAnswer], threads: int, before: int = 0) -> list[GradedAnswer]:
            work = partial(_graded, timeout_s=case_timeout_s)
            return in_order(work, chosen, threads, lambda done: show(before + done))

        _prepare(rows, case_timeout_s, threads)
        found = judged(rows, threads)
        late = [index for index, one in enumerate(found) if one.is_late]
        if threads > 1 and late:  # they shared the cores: each has its time again, alone
            again = judged([rows[index] for index in late], 1, len(rows) - len(late))
            for index, one in zip(late, again, strict=True):
                found[index] = one
    return Evaluation(tuple(found))


def _prepare(rows: Sequence[CaseAnswer], timeout_s: float, threads: int) -> None:
    """Let each verifier do for many answers what it can do for many at once."""
    asked: dict[type[Case], list[tuple[Case, str]]] = {}
    for one in (each for row in rows for each in row.samples or (row,)):
        if one.extracted is not None:
            asked.setdefault(type(one.case), []).append((one.case, one.extracted))
    for kind, answers in asked.items():
        parts = [answers[first : first + TOGETHER] for first in range(0, len(answers), TOGETHER)]
        in_order(lambda part, kind=kind: kind.prepare(part, timeout_s), parts, threads, lambda _: None)  # type: ignore[misc]


def _graded(row: CaseAnswer, timeout_s: float) -> GradedAnswer:
    """Judge a row's answer, or its samples, of which equal ones are run once."""
    if not row.samples:
        return GradedAnswer(row, verdict_on(row, timeout_s))
    known: dict[str, Grade] = {}
    for one in row.samples:
        if one.answer not in known:
            known[one.answer] = verdict_on(one, timeout_s)
    samples = tuple(GradedAnswer(one, known[one.answer]) for one in row.samples)
    majority = majority_of(row, [one.verdict for one in samples], timeout_s)
    return GradedAnswer(row, samples[0].verdict, samples, majority)


def verdict_on(row: CaseAnswer, timeout_s: float) -> Grade:
    """Take the answer out of its text, and run it."""
    answer = row.extracted
    if answer is None:
        return Grade("too_large", f"a text of {len(row.answer):,} characters, at most {MAX_CHARACTERS:,} are read")
    try:
        return row.case.grade(answer, row.file, timeout_s)
    except InputError as error:
        raise InputError(f"{row.where}: {error.message}", error.hint) from error


def _share(answers: Sequence[GradedAnswer]) -> Accuracy:
    return Accuracy(len(answers), sum(one.verdict.passed for one in answers))
