"""Cases that training rows give away: by their question, nearly by it, or by their answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from expert_cli.data.overlap import HeldOut, Question
from expert_cli.evaluation.audit.findings import Findings
from expert_cli.evaluation.audit.rows import AuditRow
from expert_cli.evaluation.audit.similarity import Texts, near_in
from expert_cli.evaluation.cases import EvalCase, asked_by_cases
from expert_cli.utils.reporter import Reporter, late_progress
from expert_cli.utils.text import normalize

_SHORT_ANSWER = 20
"""Answers of fewer characters ("SELECT 1", a label) are not taken for the case's own."""


def check_leaks(
    rows: Sequence[AuditRow],
    cases: Sequence[EvalCase],
    texts: tuple[Texts, Texts, Texts],
    findings: Findings,
    report: Reporter,
) -> None:
    """Look for every case in the rows. texts: questions, inputs and answers of the rows."""
    questions, inputs, answers = texts
    of_answer: dict[tuple[str, str], int] = {}
    for number in range(len(rows)):
        of_answer.setdefault((inputs[number], answers[number].rstrip("; ")), number)
    for case in cases:
        expected = normalize(case.case.expected_text).rstrip("; ")
        own = (normalize(case.input), expected)
        if len(expected) >= _SHORT_ANSWER and own in of_answer:
            there = rows[of_answer[own]]
            findings.add("leaked_answer", case.where, case.where, f"{there.where} has its answer", there.answer)
    asked = asked_by_cases(cases)
    with late_progress(report, "looking for the cases in the rows", len(rows), "rows") as show:
        leaked = _check_questions(rows, cases, asked, findings, show)
    near = near_in(Texts.of([one.asked for one in asked]), Texts.of([one.input for one in asked]), questions, inputs)
    for number, row in sorted(near.items()):
        if number in leaked:
            continue
        told = f"nearly {rows[row].where}: {rows[row].question}"
        findings.add("near_leak", cases[number].where, cases[number].where, told, cases[number].prompt)


def _check_questions(
    rows: Sequence[AuditRow],
    cases: Sequence[EvalCase],
    asked: Sequence[Question],
    findings: Findings,
    show: Callable[[float], None],
) -> set[int]:
    """Find the cases that rows ask as they are; return their numbers. asked: what the cases ask."""
    found = set()
    held_out = HeldOut(asked)
    for number, row in enumerate(rows):
        for held in held_out.find(row.question, row.input):
            case = cases[held]
            show(number)
            found.add(held)
            findings.add("leak", number, row.where, f"case {case.id} of {case.where}", row.question)
    return found
