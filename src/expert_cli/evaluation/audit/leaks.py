"""Cases that training rows give away: by their question, nearly by it, or by their answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from expert_cli.data.rows.asked import Asked
from expert_cli.data.rows.overlap import HeldOut
from expert_cli.data.rows.similarity import Texts, near_in, normalize
from expert_cli.evaluation.audit.findings import Findings
from expert_cli.evaluation.audit.rows import AuditRow
from expert_cli.evaluation.cases import EvalCase, asked_by_cases
from expert_cli.utils.reporter import Reporter, late_progress

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
    near = near_in(Texts.of(asked.questions), Texts.of(asked.inputs), questions, inputs)
    for number, row in sorted(near.items()):
        if number in leaked:
            continue
        told = f"nearly {rows[row].where}: {rows[row].question}"
        findings.add("near_leak", cases[number].where, cases[number].where, told, cases[number].prompt)


def _check_questions(
    rows: Sequence[AuditRow],
    cases: Sequence[EvalCase],
    asked: Asked,
    findings: Findings,
    show: Callable[[float], None],
) -> set[int]:
    """Find the cases that rows ask as they are; return their numbers. asked: what the cases ask."""
    found = set()
    of_rows = Asked([row.question for row in rows], [row.input for row in rows], [row.where for row in rows])
    for match in HeldOut(asked).find(of_rows):
        case, row = cases[match.held], rows[match.row]
        show(match.row)
        found.add(match.held)
        findings.add("leak", match.row, row.where, f"case {case.id} of {case.where}", row.question)
    return found
