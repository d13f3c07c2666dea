"""Answers are counted by what came of them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest

from expert_cli.evaluation.cases import EvalCase
from expert_cli.evaluation.grade import grade, in_order
from expert_cli.evaluation.verifiers.case import Case, Example, Grade
from expert_cli.utils.reporter import NullReporter
from expert_cli.utils.subprocesses import LineProcess


def test_the_detail_is_one_printable_line() -> None:
    assert Grade("wrong", "a\n b\x1b[2J\tc\x07\u202e").detail == "a b[2J c"
    assert len(Grade("wrong", "x" * 1_000_000).detail) == 200
    assert [Grade(kind).passed for kind in ("correct", "wrong", "parsed_only")] == [True, False, False]


class Busy(Case):
    """What is run is counted; `beside`: the first time an answer is late, since another one runs beside it."""

    fences = frozenset({"busy"})
    example = Example({}, "", "")
    runs: ClassVar[Counter[str]] = Counter()
    running: ClassVar[set[str]] = set()
    met: ClassVar[Any] = threading.Barrier(2, timeout=60)

    beside: bool = False

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:
        self.runs[answer] += 1
        self.running.add(answer)
        if self.beside and self.runs[answer] == 1:
            self.met.wait()
        alone = self.running == {answer}
        if self.beside and self.runs[answer] == 1:
            self.met.wait()  # both have looked
        self.running.remove(answer)
        return Grade("correct" if alone else "timeout", answer)


def busy(*answers: str, **keys: Any) -> list[EvalCase]:
    Busy.runs.clear()
    case = Busy(verifier="busy", **keys)
    return [EvalCase(case, f"f:{i}", str(i), "0" * 16).answered(text) for i, text in enumerate(answers, start=1)]


def test_what_was_late_beside_others_has_its_time_alone() -> None:
    found = grade(busy("a1", "a2", beside=True), NullReporter(), 2, threads=2)
    assert [one.verdict.kind for one in found.answers] == ["correct"] * 2
    assert Busy.runs == {"a1": 2, "a2": 2}


def test_equal_samples_are_run_once_also_where_they_run_out_of_time() -> None:
    (row,) = busy("late")
    Busy.running.add("another")
    try:
        (found,) = grade([replace(row, answers=row.answers * 3, is_sampled=True)], NullReporter(), 2, threads=1).answers
    finally:
        Busy.running.remove("another")
    assert ([one.kind for one in found.verdicts], found.majority) == (["timeout"] * 3, None)
    assert Busy.runs == {"late": 1}


def test_no_answer_is_looked_for_beyond_four_million_characters() -> None:
    long, right = "\n" * 4_000_000 + "z", "\n" * 3_999_999 + "z"
    found = grade(busy(long, right), NullReporter(), 2)
    assert [one.verdict.kind for one in found.answers] == ["empty", "correct"]
    assert Busy.runs == {"z": 1}


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_the_first_fault_in_order_is_raised_whichever_comes_first(threads: int) -> None:
    done: list[int] = []

    def work(n: int) -> int:
        if n in (20, 40):
            time.sleep(0.5 if n == 20 else 0)
            raise ValueError(n)
        time.sleep(0.05 if n == 19 else 0)
        done.append(n)
        return n

    with pytest.raises(ValueError, match=r"^20$"):
        in_order(work, list(range(60)), threads, lambda _: None)
    assert sorted(done)[:20] == list(range(20))


def test_ctrl_c_ends_what_the_threads_wait_for(tmp_path: Path) -> None:
    started: list[LineProcess] = []

    def work(_: int) -> bytes:
        process = LineProcess([sys.executable, "-c", "import time; time.sleep(600)"], cwd=tmp_path)
        started.append(process)
        try:
            return process.receive(600)
        finally:
            process.kill()

    def interrupt() -> None:
        while len(started) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    begun, before = time.monotonic(), {child.pid for child in psutil.Process().children()}
    with pytest.raises(KeyboardInterrupt):
        in_order(work, list(range(9)), 2, lambda _: None)
    assert time.monotonic() - begun < 30
    assert len(started) == 2
    assert {child.pid for child in psutil.Process().children()} <= before
