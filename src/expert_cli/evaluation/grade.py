"""Judges rows of answers, several at once, within what a user allows: commands of cases, programs without walls.

Of several answers to a case a vote goes by what they give (`Case.result_key`), not by their texts: two queries with the same
rows are one answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import psutil

from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.cases import MAX_CHARACTERS, CaseAnswer, EvalCase, at
from expert_cli.evaluation.extract import extract
from expert_cli.evaluation.result import Evaluation, GradedAnswer
from expert_cli.evaluation.verifiers.case import EMPTY, Case, Grade, Kind
from expert_cli.evaluation.verifiers.registry import VERIFIERS
from expert_cli.evaluation.verifiers.sandbox.isolation import MEMORY_BYTES, Stopped, is_network_shut, standing_walls
from expert_cli.inference.vote import Given, by_votes, text_given
from expert_cli.utils.process_setup import usable_cores
from expert_cli.utils.reporter import Reporter, late_progress
from expert_cli.utils.subprocesses import cancel_with

T = TypeVar("T")
R = TypeVar("R")

CASE_TIMEOUT_S = 2.0
TOGETHER = 25
_LOOK_S = 0.1
_NOTHING: frozenset[Kind] = frozenset(("invalid", "refused", "timeout", "too_large"))
"""Verdicts on answers that gave nothing, which can be told without knowing what is right."""
_NO_ROWS = "SELECT 1 WHERE 1 = 0"


@dataclass(frozen=True)
class Permissions:
    """What a user allows: commands that cases name; answers that are programs, where nothing keeps them from the network."""

    commands: bool = False
    without_walls: bool = False

    def require(self, cases: Sequence[EvalCase], report: Reporter) -> None:
        """Tell which walls stand around programs. Raises InputError, EnvironmentProblem for a case that is not allowed."""
        first = {row.case.starts: row for row in reversed(cases)}
        command, answer = first.get("command"), first.get("answer")
        if command and not self.commands:
            told = f"{command.where}: this case is judged by a program of its own, {command.case.file_names[0]}"
            raise InputError(told, "read that program; if you trust it: --allow-commands")
        if answer is None:
            return
        if not is_network_shut():
            if not self.without_walls:
                told = f"{answer.where}: answers to {answer.case.verifier} cases are programs, and nothing here keeps them "
                told += "from the network: neither seccomp nor network namespaces are to be had"
                hint = "judge them on Linux (see expert-cli doctor); if you trust the model: --without-walls"
                raise EnvironmentProblem(told, hint)
            report.warning("answers run as programs that nothing keeps from the network")
        report.info(f"walls     {', '.join(standing_walls()) or 'none'} around answers that are programs")


NOTHING = Permissions()


def in_order(
    work: Callable[[T], R], items: Sequence[T], threads: int, show: Callable[[float], None] = lambda _: None
) -> list[R]:
    """Return what `work` returns of every item, in their order. show: is told how many are done.

    Raises what the first item in order raised. Where this is interrupted, what the threads wait for ends, and they with it.
    """
    stop, done = threading.Event(), list[R]()
    with ThreadPoolExecutor(threads, initializer=cancel_with, initargs=(stop,)) as pool:
        try:
            for one in [pool.submit(work, item) for item in items]:
                while wait([one], _LOOK_S).not_done:
                    show(len(done))
                done.append(one.result())
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    show(len(done))
    return done


def grade(
    rows: Sequence[CaseAnswer], report: Reporter, case_timeout_s: float, threads: int | None = None
) -> Evaluation:
    """Judge every answer, with its samples. threads: default, one a core, where the memory suffices.

    Raises InputError with file and line of the first case that is at fault, EnvironmentProblem where an engine is missing.
    """
    fitting = min(usable_cores(), psutil.virtual_memory().available // MEMORY_BYTES)
    threads = max(1, min(threads or fitting, len(rows)))
    work = partial(_graded, timeout_s=case_timeout_s)
    with late_progress(report, "judging", len(rows), "answers") as show:
        asked: dict[type[Case], list[tuple[Case, str]]] = {}
        for each in (each for row in rows for each in row.samples or (row,)):
            if (answer := each.extracted) is not None:
                asked.setdefault(type(each.case), []).append((each.case, answer))
        for kind, answers in asked.items():
            parts = [answers[first : first + TOGETHER] for first in range(0, len(answers), TOGETHER)]
            in_order(partial(kind.prepare, timeout_s=case_timeout_s), parts, threads)
        found = in_order(work, rows, threads, show)
        late = [n for n, one in enumerate(found) if "timeout" in {each.verdict.kind for each in one.samples or (one,)}]
        if threads > 1 and late:  # they shared the cores: each has its time again, alone
            again = in_order(work, [rows[n] for n in late], 1, lambda done: show(len(rows) - len(late) + done))
            for n, one in zip(late, again, strict=True):
                found[n] = one
    return Evaluation(tuple(found))


def _graded(row: CaseAnswer, timeout_s: float) -> GradedAnswer:
    """Judge a row's answer, or its samples, of which equal ones are run once."""
    if not row.samples:
        return GradedAnswer(row, verdict_on(row, timeout_s))
    different = {one.answer: one for one in reversed(row.samples)}
    known = {text: verdict_on(one, timeout_s) for text, one in different.items()}
    samples = tuple(GradedAnswer(one, known[one.answer]) for one in row.samples)
    return GradedAnswer(row, samples[0].verdict, samples, _majority(row.case, row.file, samples, timeout_s))


def verdict_on(row: CaseAnswer, timeout_s: float) -> Grade:
    """Take the answer out of its text, and run it."""
    answer = row.extracted
    if answer is None:
        return Grade("too_large", f"a text of {len(row.answer):,} characters, at most {MAX_CHARACTERS:,} are read")
    with at(row.where):
        return row.case.grade(answer, row.file, timeout_s)


def _majority(case: Case, file: Path | None, samples: Sequence[GradedAnswer], timeout_s: float) -> int | None:
    """Return the place of the first sample that gives what most of them give; None where none gives anything."""
    known: dict[str | None, Given] = {None: Given(2, None)}
    given = []
    for one in samples:
        gave = case.starts or one.verdict.kind not in _NOTHING  # a program's verdict comes of its tests
        answer = one.row.extracted if gave else None
        if answer not in known and answer is not None:
            known[answer] = given_by(answer, case, file, timeout_s)
        given.append(known[answer])
    first = by_votes(given)[0][0]
    return first if given[first].rank < 2 else None


def given_by(answer: str, case: Case, file: Path | None, timeout_s: float) -> Given:
    """Return what an answer, taken out of its text, gives to a case when it is run."""
    try:
        key = case.result_key(answer, file, timeout_s)
    except Stopped:
        key = None
    return Given(2 if key is None else 1 if key == EMPTY else 0, key)


def rows_given(database: Path, report: Reporter) -> Callable[[str], Given] | None:
    """Return what runs an answer on a copy of an SQLite file, for a vote; None, which is told, where nothing here can."""
    case = VERIFIERS["sql"].model_validate({"verifier": "sql", "database": str(database), "expected": _NO_ROWS})
    file = database.absolute()
    try:
        case.result_key(_NO_ROWS, file, CASE_TIMEOUT_S)
    except (EnvironmentProblem, InputError) as error:
        report.info(f"the vote goes by the texts of answers, which are not run: {error.message}")
        return None

    def given(text: str) -> Given:
        found = given_by(extract(text, case.fences), case, file, CASE_TIMEOUT_S)
        return found if found.rank < 2 else Given(2, text_given(text, None).key)

    return given
