"""Judges answers in parallel, within the user's permissions, and computes the figures of `evaluate --json`: verdicts,
accuracy, and a paired comparison with an earlier evaluation.

A vote among several answers counts answers with equal results (`Case.result_key`), not with equal texts.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import psutil

from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.cases import Cases, EvalCase, at, digest_of
from expert_cli.evaluation.extract import extract
from expert_cli.evaluation.verifiers.case import Case, Grade, Kind, Stopped
from expert_cli.evaluation.verifiers.registry import VERIFIERS
from expert_cli.evaluation.verifiers.sandbox.child_process import MEMORY_BYTES, standing_walls
from expert_cli.inference.vote import by_votes
from expert_cli.runs.metrics import BASES, items, part, read_json
from expert_cli.utils.process_setup import usable_cores
from expert_cli.utils.reporter import Reporter, late_progress
from expert_cli.utils.statistics import Paired, pass_at, wilson
from expert_cli.utils.subprocesses import cancel_with

T = TypeVar("T")
R = TypeVar("R")

CASE_TIMEOUT_S = 2.0
TOGETHER = 25
_NOTHING: frozenset[Kind] = frozenset(("invalid", "refused", "timeout", "too_large"))
"""Verdicts on answers that have no result."""


@dataclass(frozen=True)
class Permissions:
    """The user's permissions: commands that cases name, programs without a sandbox, and seconds for each answer."""

    commands: bool = False
    without_walls: bool = False
    seconds: float = CASE_TIMEOUT_S

    def require(self, cases: Cases, report: Reporter) -> None:
        """Report the sandbox of programs. Raises InputError, EnvironmentProblem for a case that is not permitted."""
        first = {row.case.starts: row for row in reversed(cases)}
        if (command := first.get("command")) and not self.commands:
            told = f"{command.where}: this case is judged by the program {command.case.file_names[0]}"
            raise InputError(told, "read that program; if you trust it: --allow-commands")
        answer = first.get("answer")
        if answer and not {"syscalls", "namespaces"}.intersection(standing_walls()):
            told = "answers are programs, and this system cannot sandbox them (seccomp, network namespaces)"
            if not self.without_walls:
                hint = "judge them on Linux; if you trust the model: --without-walls"
                raise EnvironmentProblem(f"{answer.where}: {told}", hint)
            report.warning(told)
        if answer:
            report.info(f"walls     {', '.join(standing_walls()) or 'none'} around answers that are programs")


NOTHING = Permissions()


def in_order(
    work: Callable[[T], R], items: Sequence[T], threads: int, show: Callable[[float], None] = lambda _: None
) -> list[R]:
    """Call `work` on every item in threads, and return the results in order. An interruption stops the threads, too."""
    stop, done = threading.Event(), list[R]()
    with ThreadPoolExecutor(threads, initializer=cancel_with, initargs=(stop,)) as pool:
        try:
            for found in pool.map(work, items):
                done.append(found)
                show(len(done))
        except BaseException:
            stop.set()
            raise
    return done


@dataclass(frozen=True)
class GradedAnswer:
    """A row with a verdict on each answer. majority: the index of the first sample with the most frequent result, if any."""

    row: EvalCase
    verdicts: tuple[Grade, ...]
    majority: int | None = None

    @property
    def verdict(self) -> Grade:
        """The verdict on the first answer."""
        return self.verdicts[0]

    def as_json(self) -> dict[str, Any]:
        """Return the entry of "answers"."""
        row, judged = self.row, zip(self.row.answers, self.verdicts, strict=True)
        each = [{**vars(verdict), "answer": one.text, "stop": one.stop or None} for one, verdict in judged]
        return {
            "id": row.id,
            "case": row.digest,
            "prompt": digest_of(row.question) if row.prompt else None,
            "question": row.question if row.prompt else None,
            "expected": row.case.criterion,
            "category": row.case.category,
            **({"schema_prompt": row.shown} if row.shown else {}),
            **each[0],
            **({"samples": each, "majority": self.majority} if row.is_sampled else {}),
        }


@dataclass(frozen=True)
class Evaluation:
    """One or more graded answers in the order of their rows. told: further keys of `evaluate --json`."""

    answers: tuple[GradedAnswer, ...]
    told: Mapping[str, Any] = field(default_factory=dict)

    def telling(self, **told: Any) -> Evaluation:
        """Return the evaluation with further keys."""
        return Evaluation(self.answers, {**self.told, **told})

    @property
    def passed(self) -> list[bool]:
        """Whether each answer is right."""
        return [one.verdict.passed for one in self.answers]

    @property
    def share(self) -> dict[str, Any]:
        """The number and share of right answers, and Wilson's 95 % interval, which also holds near 0 and 1 or for few cases."""
        cases, correct = len(self.answers), sum(self.passed)
        return {"cases": cases, "correct": correct, "accuracy": correct / cases, "ci95": list(wilson(correct, cases))}

    @property
    def missed(self) -> str:
        """The message about the threshold that was missed, with both values; "" for none."""
        threshold, against = self.told.get("threshold"), self.told.get("against")
        if threshold is not None and self.share["accuracy"] < threshold:
            told = "accuracy {accuracy:.4f} ({correct} of {cases}) is below the threshold {threshold:g}"
            return told.format(**self.share, threshold=threshold)
        if against and not against["held"]:
            return "accuracy fell by {drop:.4f} against {file}, more than {max_drop:g}".format(**against)
        return ""

    def judged(self) -> dict[str, Any]:
        """Return the keys of `evaluate --json` that follow from the verdicts, with the most frequent failure first."""
        groups: dict[str, list[GradedAnswer]] = {}
        for one in self.answers:
            groups.setdefault(one.row.case.category, []).append(one)
        failures = Counter(one.verdict.kind for one in self.answers if not one.verdict.passed)
        return {
            **self.share,
            **(self._sampled() if all(one.row.is_sampled for one in self.answers) else {}),
            "by_category": {name: Evaluation(tuple(group)).share for name, group in groups.items()},
            "failures": dict(failures.most_common()),
            "answers": [judged.as_json() for judged in self.answers],
        }

    def _sampled(self) -> dict[str, Any]:
        """Return pass@k for every k, and how often the majority is right."""
        passed, cases = [[each.passed for each in one.verdicts] for one in self.answers], len(self.answers)
        most = range(1, min(map(len, passed)) + 1)
        shares = {str(k): fmean(pass_at(k, sum(one), len(one)) for one in passed) for k in most}
        chosen = zip(passed, (one.majority for one in self.answers), strict=True)
        majority = sum(place is not None and one[place] for one, place in chosen)
        return {
            "pass_at": shares,
            "pass_at_ci95": {k: list(wilson(share * cases, cases)) for k, share in shares.items()},
            "majority": majority / cases,
            "majority_ci95": list(wilson(majority, cases)),
        }

    def as_json(self) -> dict[str, Any]:
        """Return the document of `evaluate --json` (docs/INTERFACE.md)."""
        untold = dict.fromkeys((*BASES, "threshold", "against", "expert", "generation", "limit"))
        return {**self.judged(), **untold, "passed": not self.missed, **self.told}

    def beside(self, expert: Evaluation, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value of a key of `BASES`: these answers to the same cases, and by how much the expert's are better.
        asked: how these answers were made.
        """
        told = Paired.of(self.passed, expert.passed).rise()
        return {**self.judged(), "difference": told, **asked, "generation": self.told.get("generation")}


def earlier_answers(path: Path) -> dict[Any, dict[str, Any]]:
    """Return the answers of an earlier evaluation by id. Raises InputError if the file has none."""
    found = {row["id"]: row for row in map(part, items(read_json(path), "answers")) if "id" in row}
    if not found:
        told = "is not an evaluation" if path.is_file() else "no such file"
        raise InputError(f"--against {path}: {told}", "name an evaluation.json, or what evaluate --output wrote")
    return found


def compare_with(path: Path, found: Evaluation, max_drop: float, report: Reporter) -> dict[str, Any]:
    """Pair the answers with those of the evaluation in `path` by id, and return the value of "against".

    In it, `answers` is the number of answers that are compared as texts, and `differ` lists the cases with different texts.
    Raises InputError if no case is in both, or a case has changed.
    """
    old = earlier_answers(path)
    both = [(judged, old[judged.row.id]) for judged in found.answers if judged.row.id in old]
    if not both:
        raise InputError(f"{path}: none of its cases is evaluated here", "give an evaluation of the same cases")
    for judged, row in both:
        if row.get("case") != judged.row.digest:
            raise InputError(
                f"{judged.row.where}: case {judged.row.id!r} differs from the one in {path}", "evaluate it again"
            )
    here, there = len(found.answers) - len(both), len(old) - len(both)
    if here or there:
        report.warning(f"not compared: {here} cases that only this evaluation has, {there} that only the other has")
    pairs = Paired.of((row.get("kind") == "correct" for _, row in both), (one.verdict.passed for one, _ in both))
    texts = [(now, then) for one, row in both for now, then in zip(_texts(one.as_json()), _texts(row), strict=False)]
    differ = [now[0] for now, then in texts if now != then]
    told = {"file": str(path), **pairs.as_json(), "max_drop": max_drop, "held": pairs.drop <= max_drop}
    return told | {"answers": len(texts), "answers_differ": len(differ), "differ": list(dict.fromkeys(differ))}


def _texts(row: Mapping[str, Any]) -> list[Any]:
    return [(row["id"], one.get("answer")) for one in items(row, "samples") or [row]]


def grade(rows: Cases, report: Reporter, case_timeout_s: float, threads: int | None = None) -> Evaluation:
    """Grade every answer, including samples, in `threads` threads. Raises InputError, EnvironmentProblem."""
    fitting = min(usable_cores(), psutil.virtual_memory().available // MEMORY_BYTES)
    threads, work = max(1, min(threads or fitting, len(rows))), partial(_graded, timeout_s=case_timeout_s)
    with late_progress(report, "judging", len(rows), "answers") as show:
        asked: dict[type[Case], list[tuple[Case, str]]] = {}
        for row in rows:
            texts = (extract(one.text, row.case.fences) for one in row.answers)
            asked.setdefault(type(row.case), []).extend((row.case, text) for text in texts)
        for kind, answers in asked.items():
            parts = [answers[first : first + TOGETHER] for first in range(0, len(answers), TOGETHER)]
            in_order(partial(kind.prepare, timeout_s=case_timeout_s), parts, threads)
        found = in_order(work, rows, threads, show)
        late = [n for n, one in enumerate(found) if "timeout" in {each.kind for each in one.verdicts}]
        if threads > 1 and late:  # they shared the cores: each one is run again, alone
            again = in_order(work, [rows[n] for n in late], 1, lambda done: show(len(rows) - len(late) + done))
            for n, one in zip(late, again, strict=True):
                found[n] = one
    return Evaluation(tuple(found))


def _graded(row: EvalCase, timeout_s: float) -> GradedAnswer:
    """Grade a row's answers; equal answers are run once."""
    texts = [one.text for one in row.answers]
    known = {text: verdict_on(row, text, timeout_s) for text in dict.fromkeys(texts)}
    verdicts = tuple(known[text] for text in texts)
    return GradedAnswer(row, verdicts, _majority(row, verdicts, timeout_s) if row.is_sampled else None)


def verdict_on(row: EvalCase, text: str, timeout_s: float) -> Grade:
    """Extract an answer from a text, and grade it."""
    with at(row.where):
        return row.case.verdict(extract(text, row.case.fences), row.file, timeout_s)


def _majority(row: EvalCase, verdicts: Sequence[Grade], timeout_s: float) -> int | None:
    """Return the index of the first sample with the most frequent result; None if none has a result."""
    given_of = cache(partial(given_by, case=row.case, file=row.file, timeout_s=timeout_s))
    # the verdict on a program comes from its tests, so any program may have a result
    gave = (row.case.starts or one.kind not in _NOTHING for one in verdicts)
    given = [given_of(one.text) if is_any else None for one, is_any in zip(row.answers, gave, strict=True)]
    first = by_votes(given)[0][0]
    return None if given[first] is None else first


def given_by(text: str, case: Case, file: Path | None, timeout_s: float) -> Hashable:
    """Return the result key of the answer in a text; None if it has no result."""
    with suppress(Stopped):
        return case.result_key(extract(text, case.fences), file, timeout_s)
    return None


def rows_given(database: Path) -> Callable[[str], Hashable]:
    """Return a function that runs an answer on a copy of an SQLite file and returns its result key, for a vote."""
    row = {"verifier": "sql", "database": str(database), "expected": "SELECT 1 WHERE 1 = 0"}
    case = VERIFIERS["sql"].model_validate(row)
    return partial(given_by, case=case, file=database.absolute(), timeout_s=CASE_TIMEOUT_S)
