"""Measure how many answers a second are judged by one thread and by several, and again with every verdict known.

python -m benchmarks.bench_judging [--threads 1 2] [--rounds 3] [--experts expert-sql expert-typescript]

The cases are those that the experts ship, each with its right answer. Every figure is from a process of its own, its engines
not yet started; rounds take turns, so that what else the machine does falls on all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from datagen.cases.make import EXPERTS, OUTPUT
from expert_cli.evaluation.cases import CaseAnswer, read_cases
from expert_cli.evaluation.evaluate import CASE_TIMEOUT_S
from expert_cli.evaluation.grade import grade
from expert_cli.utils.reporter import NullReporter


def right_answers(expert: str) -> list[CaseAnswer]:
    """Return the shipped cases, answered as the programs that made them do."""
    made = EXPERTS[expert]["cases"]()
    answers = {row["id"]: answer for row, answer in zip(made.rows, made.answers, strict=True)}
    return [case.answered(answers[case.id]) for case in read_cases(OUTPUT / expert / "tests" / "cases.jsonl")]


def measure(expert: str, threads: int) -> dict[str, float]:
    """Return answers a second: of the first time, and of the same answers again."""
    rows, rates = right_answers(expert), dict[str, float]()
    for name in ("first", "again"):
        started = time.perf_counter()
        found = grade(rows, NullReporter(), CASE_TIMEOUT_S, threads)
        rates[name] = len(rows) / (time.perf_counter() - started)
        if not all(found.passed):
            raise SystemExit(f"{expert}: {found.failures}")
    return rates


def in_a_process(expert: str, threads: int) -> dict[str, float]:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.bench_judging", "--one", expert, str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    rates: dict[str, float] = json.loads(done.stdout)
    return rates


def main() -> None:
    """Print a line an expert and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--experts", nargs="+", choices=list(EXPERTS), default=list(EXPERTS))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one[0], int(asked.one[1]))))
        return
    for expert in asked.experts:
        rounds = [{n: in_a_process(expert, n) for n in asked.threads} for _ in range(asked.rounds)]
        base = [one[asked.threads[0]]["first"] for one in rounds]
        for n in asked.threads:
            first, again = ([one[n][name] for one in rounds] for name in ("first", "again"))
            ratio = statistics.median(rate / other for rate, other in zip(first, base, strict=True))
            figures = f"{statistics.median(first):8,.1f} answers/s ({ratio:.2f} x)"
            print(f"{expert:18} {n} threads {figures}, known: {statistics.median(again):9,.0f} answers/s")


if __name__ == "__main__":
    main()
