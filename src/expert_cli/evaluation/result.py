"""What an evaluation found, as `evaluate --json` prints it: verdicts and shares; against an earlier one, case by case.

Precision, recall and F1 are 0 where they have no denominator. The macro F1 is the plain mean over the labels that are expected
or answered at least once, as in scikit-learn's `f1_score(average="macro")`; an answer that is no label is a miss for the label
that was expected, and no class of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from expert_cli.errors import InputError
from expert_cli.evaluation.cases import CaseAnswer
from expert_cli.evaluation.extract import RULE
from expert_cli.evaluation.verifiers.case import Grade, Kind, Labeled
from expert_cli.evaluation.verifiers.sandbox.isolation import standing_walls
from expert_cli.runs.metrics import BASES, WITHOUT_GRAMMAR, items, part, read_json
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.statistics import Estimate, Paired, mean_of_shares, pass_at, wilson

EXAMPLES = 3
COMPUTED = dict.fromkeys(("device", "threads", "batch_size"), "generation") | dict.fromkeys(
    ("dtype", "quantization"), "expert"
)
"""What decides how sums are rounded, and so which of two tokens comes that are almost as likely; by the key it stands under."""


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
        row, samples = self.row, [one._one for one in self.samples]
        return {
            "id": row.id,
            "case": row.digest,
            "prompt": row.question.digest if row.prompt else None,
            "question": row.question._asdict() if row.prompt else None,
            "expected": row.case.criterion,
            "category": row.case.category,
            **({"schema_prompt": row.shown} if row.shown else {}),
            **self._one,
            **({"samples": samples, "majority": self.majority} if samples else {}),
        }

    @property
    def _one(self) -> dict[str, Any]:
        told = {"kind": self.verdict.kind, "detail": self.verdict.detail, "answer": self.row.answer}
        return {**told, "stop": self.row.stop or None, **({"raw": self.row.raw} if self.row.raw else {})}


def classifications(answers: Iterable[Labeled]) -> list[dict[str, Any]]:
    """Return the entries under "classification", one for each set of labels, in the order in which the sets first come.

    confusion: a row for each expected label, a column for each answered one, and a last column for answers that are none.
    """
    groups: dict[frozenset[str], list[Labeled]] = {}
    for one in answers:
        groups.setdefault(frozenset(one.labels), []).append(one)
    found = []
    for labels, group in ((group[0].labels, group) for group in groups.values()):
        counts = Counter((one.expected, one.answered) for one in group)
        confusion = [[counts[expected, answered] for answered in (*labels, None)] for expected in labels]
        scores = {}
        for n, label in enumerate(labels):
            hits, cases, answered = confusion[n][n], sum(confusion[n]), sum(row[n] for row in confusion)
            shares = {"precision": hits / max(1, answered), "recall": hits / max(1, cases)}
            scores[label] = {"cases": cases, **shares, "f1": 2 * hits / max(1, cases + answered)}
        f1 = [scores[name]["f1"] for name in labels if any(name in (one.expected, one.answered) for one in group)]
        told = {"labels": list(labels), "cases": len(group), "macro_f1": sum(f1) / len(f1)}
        found.append({**told, "by_label": scores, "confusion": confusion})
    return found


def _share(answers: Sequence[GradedAnswer]) -> dict[str, Any]:
    """Return how many passed, the share, and the 95 % interval of Wilson, which holds near 0 and 1 and for few cases."""
    cases, correct = len(answers), sum(one.verdict.passed for one in answers)
    return {"cases": cases, "correct": correct, "accuracy": correct / cases, "ci95": list(wilson(correct, cases))}


@dataclass(frozen=True)
class Evaluation:
    """The judged answers, in the order of their rows; there is at least one."""

    answers: tuple[GradedAnswer, ...]

    @property
    def passed(self) -> list[bool]:
        """Whether each answer is right."""
        return [one.verdict.passed for one in self.answers]

    @property
    def share(self) -> dict[str, Any]:
        """Counts, share and interval of all cases: "cases", "correct", "accuracy", "ci95"."""
        return _share(self.answers)

    @property
    def by_category(self) -> dict[str, dict[str, Any]]:
        """The same of each category, in the order in which they first come."""
        groups: dict[str, list[GradedAnswer]] = {}
        for one in self.answers:
            groups.setdefault(one.row.case.category, []).append(one)
        return {name: _share(group) for name, group in groups.items()}

    @property
    def failures(self) -> dict[Kind, int]:
        """How many answers of each class did not pass, the largest class first."""
        return dict(Counter(one.verdict.kind for one in self.answers if not one.verdict.passed).most_common())

    @property
    def classifications(self) -> list[dict[str, Any]]:
        """The answers that are labels, those of the same labels together."""
        rows = [one.row for one in self.answers]
        return classifications(filter(None, (row.case.labeled(row.extracted or "") for row in rows)))

    @property
    def sampled(self) -> dict[str, Any]:
        """pass@k for every k up to the number of answers to a case, and the share of cases whose majority is right.

        By what votes were counted: what answers give, or, of programs, their texts. {} where a case has no samples.
        """
        if not all(one.samples for one in self.answers):
            return {}
        passed = [[each.verdict.passed for each in one.samples] for one in self.answers]
        tries, programs = fmean(map(len, passed)), [bool(one.row.case.starts) for one in self.answers]
        estimates = {
            str(k): mean_of_shares([pass_at(k, sum(one), len(one)) for one in passed], tries / k)
            for k in range(1, min(map(len, passed)) + 1)
        }
        right = [one.majority is not None and one.samples[one.majority].verdict.passed for one in self.answers]
        majority = mean_of_shares(right)
        return {
            "pass_at": {k: estimate.mean for k, estimate in estimates.items()},
            "pass_at_ci95": {k: _ends(estimate) for k, estimate in estimates.items()},
            "majority": majority.mean,
            "majority_ci95": _ends(majority),
            "majority_by": "text" if all(programs) else "result or text" if any(programs) else "result",
        }

    def examples(self, kind: Kind) -> list[GradedAnswer]:
        """Return the first answers of a class."""
        return [one for one in self.answers if one.verdict.kind == kind][:EXAMPLES]

    def as_json(self) -> dict[str, Any]:
        """Return the keys of `evaluate --json` (docs/INTERFACE.md) that judging alone can fill."""
        labels = self.classifications
        return {
            **self.share,
            **self.sampled,
            "by_category": self.by_category,
            **({"classification": labels} if labels else {}),
            "failures": self.failures,
            "answers": [judged.as_json() for judged in self.answers],
        }


def _ends(estimate: Estimate) -> list[float]:
    return list(estimate.ci95 or (0.0, 1.0))


def beside(evaluation: Evaluation, of_expert: Evaluation, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value under a key of `BASES`: other answers to the same cases, the base model's for one.

    The difference is the expert's accuracy minus that of these answers. asked: how: shots, examples, template, generation;
    generation alone for the expert itself.
    """
    pairs = Paired.of(evaluation.passed, of_expert.passed)
    rise = pairs.reversed
    told = {"difference": rise.drop, "ci95": list(rise.ci95), "gained": pairs.gained, "lost": pairs.lost}
    return {**evaluation.as_json(), "difference": told, **asked}


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation found; facts, generation: what was evaluated and how, as the document says it.

    bases: other answers to the same cases, by their key of `BASES`. grammar: what held the answers: type, held, free; None for
    nothing. limit: how many cases at most were asked for; None: all. threshold: the accuracy that was asked for. drop: what
    changed since an earlier evaluation. pairs: right and wrong answers that were written.
    """

    evaluation: Evaluation
    bases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    facts: Mapping[str, Any] | None = None
    generation: Mapping[str, Any] | None = None
    cases_file: Path = Path()
    limit: int | None = None
    threshold: float | None = None
    drop: Mapping[str, Any] | None = None
    grammar: Mapping[str, Any] | None = None
    pairs: Mapping[str, Any] | None = None

    @property
    def missed(self) -> str:
        """Which threshold was missed, in words with both values; "" for none."""
        share, drop = self.evaluation.share, self.drop
        if self.threshold is not None and share["accuracy"] < self.threshold:
            told = "accuracy {accuracy:.4f} ({correct} of {cases}) is below the threshold".format(**share)
            return f"{told} {self.threshold:g}"
        if drop is not None and not drop["held"]:
            return "accuracy fell by {drop:.4f} against {file}, more than {max_drop:g}".format(**drop)
        return ""

    @property
    def grammar_json(self) -> dict[str, Any] | None:
        """The value under "grammar": what held the answers, and how many name what is not there."""
        if self.grammar is None:
            return None
        free = self.bases.get(WITHOUT_GRAMMAR)
        names = {"with": self.evaluation.failures, "without": free["failures"] if free else None}
        counts = {of: None if one is None else one.get("unknown_name", 0) for of, one in names.items()}
        return {**self.grammar, "unknown_names": counts}

    def as_json(self) -> dict[str, Any]:
        """Return what `evaluate --json` prints (docs/INTERFACE.md)."""
        has_programs = any(one.row.case.starts == "answer" for one in self.evaluation.answers)
        return {
            **self.evaluation.as_json(),
            **{name: self.bases.get(name) for name in BASES},
            "grammar": self.grammar_json,
            "threshold": self.threshold,
            "against": self.drop,
            "passed": not self.missed,
            "extraction": RULE,
            "expert": self.facts,
            "generation": self.generation,
            "cases_file": str(self.cases_file.resolve()),
            "limit": self.limit,
            **({"pairs": self.pairs} if self.pairs else {}),
            **({"walls": list(standing_walls())} if has_programs else {}),
        }


def compare_with(path: Path, found: Evaluated, max_drop: float, report: Reporter) -> dict[str, Any]:
    """Pair the answers with those of the evaluation in `path` by id; return the value under "against".

    answers: how many were written for the cases of both, of samples as many as both drew; differ: the cases of those that are
    other texts. computed: of COMPUTED, what both say and differ in (there, here). Cases of only one of the two are told.
    Raises InputError where it is none, where no case is in both, or where a case has changed.
    """
    document, new = read_json(path), found.evaluation
    old = {row.get("id"): row for row in items(document, "answers") if isinstance(row, dict)}
    if not old:
        raise InputError(f"{path}: not an evaluation", "give a file that evaluate --output wrote")
    both = [(judged, old[judged.row.id]) for judged in new.answers if judged.row.id in old]
    for judged, row in both:
        if row.get("case") != judged.row.digest:
            raise InputError(f"{judged.row.where}: case {judged.row.id!r} is not that of {path}", "evaluate it again")
    if not both:
        raise InputError(f"{path}: none of its cases is evaluated here", "give an evaluation of the same cases")
    here, there = len(new.answers) - len(both), len(old) - len(both)
    if here or there:
        report.warning(f"not compared: {here} cases that only this evaluation has, {there} that only the other has")
    pairs = Paired.of((row.get("kind") == "correct" for _, row in both), (one.verdict.passed for one, _ in both))
    texts = [
        (judged.row.id, now, then)
        for judged, row in both
        for now, then in zip(_texts(judged.as_json()), _texts(row), strict=False)
    ]
    differ, computed = [name for name, now, then in texts if now != then], {}
    for name, where in COMPUTED.items():
        now = ((found.generation if where == "generation" else found.facts) or {}).get(name)
        then = part(document, where).get(name)
        if None not in (now, then) and now != then:
            computed[name] = [then, now]
    told = {"file": str(path), **pairs.as_json(), "max_drop": max_drop, "held": pairs.drop <= max_drop}
    told |= {"answers": len(texts), "answers_differ": len(differ), "differ": list(dict.fromkeys(differ))}
    return {**told, "computed": computed}


def _texts(row: Mapping[str, Any]) -> list[Any]:
    """Return the answers of a row under "answers"."""
    return [one.get("answer") for one in items(row, "samples") or [row]]
