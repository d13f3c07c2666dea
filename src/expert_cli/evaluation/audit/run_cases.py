"""Asks of every case whether its judge tells right from wrong: its expected answer is judged, and one that holds nothing."""

from __future__ import annotations

from collections.abc import Sequence

from expert_cli.errors import ExpertError, InputError
from expert_cli.evaluation.audit.findings import Findings
from expert_cli.evaluation.audit.text_checks import FEW_ASSERTIONS, assertions
from expert_cli.evaluation.cases import EvalCase
from expert_cli.utils.reporter import Reporter, late_progress

TIMEOUT_S = 10.0


def run_cases(cases: Sequence[EvalCase], findings: Findings, report: Reporter) -> None:
    """Judge the expected answer of every case by the case itself, and look at the tests of those that have no answer."""
    unknown = sum(row.case.starts != "answer" and not row.case.right_answers() for row in cases)
    if unknown:
        told = f"{unknown:,} without an answer that is right: patterns, programs, commands"
        findings.not_checked["case_fails"] = told
    with late_progress(report, "running cases", len(cases), "cases") as show:
        for done, row in enumerate(cases, start=1):
            try:
                _run_case(row, findings)
            except InputError as error:
                findings.add("case_fails", row.where, row.where, error.message, row.case.expected_text or row.prompt)
            except ExpertError as error:
                findings.not_checked["case_fails"] = error.message
            show(done)


def _run_case(row: EvalCase, findings: Findings) -> None:
    case = row.case
    if case.starts == "answer":
        _check_tests(row, findings)
        return
    for answer in case.right_answers():
        grade = case.grade(answer, row.file, TIMEOUT_S)
        if not grade.passed:
            findings.add("case_fails", row.where, row.where, f"{grade.kind}: {grade.detail}", answer)
    if case.finds_nothing and case.grade(case.finds_nothing, row.file, TIMEOUT_S).passed:
        told = "the expected query returns no rows: any query that finds nothing is right"
        findings.add("case_empty", row.where, row.where, told, case.expected_text)


def _check_tests(row: EvalCase, findings: Findings) -> None:
    tests = row.case.criterion
    fault = row.case.parse_fault(tests) if tests else ""
    if fault:
        findings.add("case_fails", row.where, row.where, f"the tests: {fault}", tests)
    elif 0 < (count := assertions(tests)) <= FEW_ASSERTIONS:
        findings.add("weak_case", row.where, row.where, f"{count} assertions", tests)
