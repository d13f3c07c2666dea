"""Runs the answers of training rows, as far as the verifier of the expert's cases can without a row's own case."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from expert_cli.errors import ExpertError
from expert_cli.evaluation.audit.findings import Findings
from expert_cli.evaluation.audit.rows import AuditRow
from expert_cli.evaluation.audit.run_queries import run_queries
from expert_cli.evaluation.cases import EvalCase
from expert_cli.evaluation.extract import extract
from expert_cli.evaluation.verifiers.case import Case
from expert_cli.evaluation.verifiers.registry import verifier as registered
from expert_cli.evaluation.verifiers.sandbox.engine_client import Engine
from expert_cli.evaluation.verifiers.sandbox.isolation import is_network_shut
from expert_cli.utils.reporter import Reporter, late_progress

TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Running:
    """How answers are run. databases: a folder of what queries run on. program_s: seconds for programs, all together."""

    databases: Path | None = None
    program_s: float = 120.0


Results = dict[int, str]
"""What the answers of some rows return, by the rows' numbers."""


def run_answers(
    rows: Sequence[AuditRow],
    cases: Sequence[EvalCase],
    verifier: str,
    running: Running,
    findings: Findings,
    report: Reporter,
) -> Results:
    """Run every answer as far as its verifier can without a case, and return what came back."""
    kind = registered(verifier)
    known = [case.case for case in cases]
    try:
        if kind is not None and (engine := kind.row_engine()):
            return _queries(rows, kind.fences, engine, running, findings, report)
        if kind is not None and kind.starts == "answer":
            _programs(rows, kind, running, findings, report)
        elif kind is not None and (case := kind.row_case(known)):
            _values(rows, case, findings, report)
        else:
            told = (
                f"answers of the verifier {verifier} are only judged with a case" if verifier else "no cases tell how"
            )
            findings.not_run[told] += len(rows)
    except ExpertError as error:
        findings.not_checked["does_not_run"] = error.message
        findings.not_run[error.message] += len(rows)
    return {}


def _queries(
    rows: Sequence[AuditRow],
    fences: frozenset[str],
    engine: Engine,
    running: Running,
    found: Findings,
    report: Reporter,
) -> Results:
    queries = [extract(row.answer, fences) for row in rows]
    outcomes = run_queries(rows, queries, engine, running.databases, report)
    for number, outcome in sorted(outcomes.items()):
        if outcome.kind == "fault":
            found.add("does_not_run", number, rows[number].where, outcome.detail, queries[number])
        elif outcome.kind == "not_run":
            found.not_run[outcome.detail] += 1
        elif outcome.kind == "parsed":
            found.parsed += 1
        else:
            found.ran += 1
        if outcome.kind == "empty":
            where = outcome.detail
            found.add("empty_result", number, rows[number].where, f"no rows on {where}", queries[number], where)
    return {number: outcome.result for number, outcome in outcomes.items() if outcome.result}


def _values(rows: Sequence[AuditRow], case: Case, found: Findings, report: Reporter) -> None:
    with late_progress(report, "judging answers", len(rows), "rows") as show:
        for number, row in enumerate(rows):
            grade = case.grade(extract(row.answer, case.fences), None, TIMEOUT_S)
            if grade.kind in ("correct", "wrong"):
                found.ran += 1
            else:
                found.add("does_not_run", number, row.where, grade.detail, row.answer)
            show(number + 1)


def _programs(rows: Sequence[AuditRow], kind: type[Case], running: Running, found: Findings, report: Reporter) -> None:
    """Parse every program; run as many, evenly spread, as there is time for. Rows with tests come first."""
    programs: dict[int, Case] = {}
    answers: dict[int, str] = {}
    with late_progress(report, "parsing programs", len(rows), "rows") as show:
        for number, row in enumerate(rows):
            answer = extract(row.answer, kind.fences)
            # A program may continue what its question begins, and be none without it.
            fault = kind.parse_fault(answer)
            prefix = f"{row.question}\n" if fault and not kind.parse_fault(f"{row.question}\n{answer}") else ""
            if fault and not prefix:
                found.add("does_not_run", number, row.where, fault, answer)
            elif case := kind.row_program(row.tests, prefix):
                programs[number], answers[number] = case, answer
            else:
                found.parsed += 1
            show(number + 1)
    _run_programs(rows, programs, answers, running.program_s, found, report)


def _run_programs(
    rows: Sequence[AuditRow],
    programs: Mapping[int, Case],
    answers: Mapping[int, str],
    seconds: float,
    found: Findings,
    report: Reporter,
) -> None:
    order = sorted(programs, key=lambda number: (not rows[number].tests, _spread_key(number)))
    if not is_network_shut():
        found.parsed += len(order)
        found.not_run["nothing here keeps programs from the network (expert-cli doctor)"] += len(order)
        return
    deadline = time.monotonic() + seconds
    done = 0
    with late_progress(report, "running programs", len(order), "programs") as show:
        for number in order:
            if time.monotonic() > deadline:
                break
            grade = programs[number].grade(answers[number], None, TIMEOUT_S)
            done += 1
            if grade.kind == "parsed_only":
                found.parsed += len(order)
                found.not_run[grade.detail] += len(order)
                return
            found.ran += 1
            if not grade.passed:
                row = rows[number]
                found.add("does_not_run", number, row.where, f"{grade.kind}: {grade.detail}", row.answer)
            show(done)
    if done < len(order):
        left = len(order) - done
        found.parsed += left
        found.not_run[f"parsed only: {seconds:g} s for programs were over (--program-seconds)"] += left


def _spread_key(number: int) -> int:
    """Orders numbers so that any first part of them is spread over all: the bits of each, the last one first."""
    return int(f"{number:032b}"[::-1], 2)
