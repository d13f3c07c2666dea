"""Runs the answers of training rows, by the verifier of the expert's cases: one entry a verifier that can tell anything
without a case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from expert_cli.errors import ExpertError
from expert_cli.evaluation.audit.findings import Findings
from expert_cli.evaluation.audit.rows import AuditRow
from expert_cli.evaluation.audit.run_queries import run_queries
from expert_cli.evaluation.cases import EvalCase
from expert_cli.evaluation.extract import extract
from expert_cli.evaluation.verifiers.cypher import CypherCase
from expert_cli.evaluation.verifiers.json_schema import JsonCase
from expert_cli.evaluation.verifiers.sandbox.engine_client import Engine
from expert_cli.evaluation.verifiers.sandbox.isolation import is_network_shut
from expert_cli.evaluation.verifiers.sql import SqlCase
from expert_cli.evaluation.verifiers.typescript import TypescriptCase
from expert_cli.evaluation.verifiers.typescript_text import parse_fault
from expert_cli.evaluation.verifiers.values import ChoiceCase, NumberCase
from expert_cli.utils.reporter import Reporter, late_progress

TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Running:
    """How answers are run. databases: a folder of what queries run on. program_s: seconds for programs, all together."""

    databases: Path | None = None
    program_s: float = 120.0


Results = dict[int, str]
"""What the answers of some rows return, by the rows' numbers."""
Runner = Callable[[Sequence[AuditRow], Sequence[EvalCase], Running, Findings, Reporter], Results]


def run_answers(
    rows: Sequence[AuditRow],
    cases: Sequence[EvalCase],
    verifier: str,
    running: Running,
    findings: Findings,
    report: Reporter,
) -> Results:
    """Run every answer as far as its verifier can without a case, and return what came back."""
    runner = RUNNERS.get(verifier)
    if runner is None:
        reason = f"answers of the verifier {verifier} are only judged with a case" if verifier else "no cases tell how"
        findings.not_run[reason] += len(rows)
        return {}
    try:
        return runner(rows, cases, running, findings, report)
    except ExpertError as error:
        findings.not_checked["does_not_run"] = error.message
        findings.not_run[error.message] += len(rows)
        return {}


def _sql(
    rows: Sequence[AuditRow], cases: Sequence[EvalCase], running: Running, found: Findings, report: Reporter
) -> Results:
    dialects = {case.case.dialect for case in cases if isinstance(case.case, SqlCase)}
    engine: Engine = "duckdb" if dialects == {"postgresql"} else "sqlite"
    return _queries(rows, SqlCase.fences, engine, running, found, report)


def _cypher(
    rows: Sequence[AuditRow], _: Sequence[EvalCase], running: Running, found: Findings, report: Reporter
) -> Results:
    return _queries(rows, CypherCase.fences, "graphqlite", running, found, report)


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
        if outcome.kind in ("empty", "null"):
            what, where = "no rows" if outcome.kind == "empty" else "nothing but null", outcome.detail
            found.add(
                f"{outcome.kind}_result", number, rows[number].where, f"{what} on {where}", queries[number], where
            )
    return {number: outcome.result for number, outcome in outcomes.items() if outcome.result}


def _json(rows: Sequence[AuditRow], _: Sequence[EvalCase], __: Running, found: Findings, report: Reporter) -> Results:
    """Read every answer as strictly as the judge does: no schema is known, and the value may be any."""
    case = JsonCase.model_validate({"verifier": "json", "schema": None, "expected": None, "rule": "exact"})
    with late_progress(report, "reading JSON", len(rows), "rows") as show:
        for number, row in enumerate(rows):
            grade = case.grade(extract(row.answer, JsonCase.fences), None, TIMEOUT_S)
            if grade.kind in ("correct", "wrong"):
                found.ran += 1
            else:
                found.add("does_not_run", number, row.where, grade.detail, row.answer)
            show(number + 1)
    return {}


def _choice(rows: Sequence[AuditRow], cases: Sequence[EvalCase], _: Running, found: Findings, __: Reporter) -> Results:
    """Hold every answer against the labels of all cases."""
    known = dict.fromkeys(label for case in cases if isinstance(case.case, ChoiceCase) for label in case.case.labels)
    if not known:
        found.not_run["no cases tell the labels"] += len(rows)
        return {}
    case = ChoiceCase(verifier="choice", labels=list(known), expected=next(iter(known)))
    _values(case, rows, found)
    return {}


def _number(rows: Sequence[AuditRow], _: Sequence[EvalCase], __: Running, found: Findings, ___: Reporter) -> Results:
    _values(NumberCase(verifier="number", expected=0), rows, found)
    return {}


def _values(case: ChoiceCase | NumberCase, rows: Sequence[AuditRow], found: Findings) -> None:
    for number, row in enumerate(rows):
        grade = case.grade(extract(row.answer, case.fences), None, TIMEOUT_S)
        if grade.kind in ("correct", "wrong"):
            found.ran += 1
        else:
            found.add("does_not_run", number, row.where, grade.detail, row.answer)


def _typescript(
    rows: Sequence[AuditRow], _: Sequence[EvalCase], running: Running, found: Findings, report: Reporter
) -> Results:
    """Parse every program; type-check and run as many, evenly spread, as there is time for. Rows with tests come first."""
    programs: dict[int, TypescriptCase] = {}
    answers: dict[int, str] = {}
    with late_progress(report, "parsing programs", len(rows), "rows") as show:
        for number, row in enumerate(rows):
            answer = extract(row.answer, TypescriptCase.fences)
            # A program may continue what its question begins, and be none without it.
            fault = parse_fault(answer)
            prefix = f"{row.question}\n" if fault and not parse_fault(f"{row.question}\n{answer}") else ""
            if fault and not prefix:
                found.add("does_not_run", number, row.where, fault, answer)
            else:
                programs[number] = TypescriptCase(verifier="typescript", tests=row.tests or None, prefix=prefix)
                answers[number] = answer
            show(number + 1)
    _run_programs(rows, programs, answers, running.program_s, found, report)
    return {}


def _run_programs(
    rows: Sequence[AuditRow],
    programs: Mapping[int, TypescriptCase],
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


RUNNERS: Mapping[str, Runner] = MappingProxyType(
    {
        "sql": _sql,
        "cypher": _cypher,
        "json": _json,
        "typescript": _typescript,
        "choice": _choice,
        "number": _number,
    }
)
