"""Cases that training rows give away: by their question, nearly by it, by their answer, or by their schema."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from expert_cli.data.rows.asked import Asked
from expert_cli.data.rows.overlap import HeldOut
from expert_cli.data.rows.similarity import Texts, near_in, normalize
from expert_cli.evaluation.audit.findings import Findings
from expert_cli.evaluation.audit.rows import AuditRow
from expert_cli.evaluation.cases import EvalCase, asked_by_cases
from expert_cli.utils.reporter import Reporter, late_progress

SCHEMA_SHARE = 0.8
_SHORT_ANSWER = 20
"""Answers of fewer characters ("SELECT 1", a label) are not taken for the case's own."""
_NAME = re.compile(r"[^\W\d]\w*")
_SCHEMA_WORDS = frozenset(
    (
        *(
            "create",
            "table",
            "primary",
            "key",
            "foreign",
            "references",
            "not",
            "null",
            "unique",
            "default",
            "constraint",
        ),
        *(
            "integer",
            "int",
            "bigint",
            "text",
            "varchar",
            "char",
            "string",
            "number",
            "numeric",
            "decimal",
            "real",
            "float",
        ),
        *("double", "date", "datetime", "timestamp", "time", "boolean", "bool", "blob", "list", "others", "the", "and"),
        *("node", "nodes", "relationship", "relationships", "properties"),
    )
)
"""Words of any schema."""


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
    with late_progress(report, "looking for the cases in the rows", len(rows), "rows") as show:
        leaked = _check_questions(rows, cases, findings, show)
    asked = asked_by_cases(cases)
    near = near_in(Texts.of(asked.questions), Texts.of(asked.inputs), questions, inputs)
    for number, row in sorted(near.items()):
        if number in leaked:
            continue
        told = f"nearly {rows[row].where}: {rows[row].question}"
        findings.add("near_leak", cases[number].where, cases[number].where, told, cases[number].prompt)


def _check_questions(
    rows: Sequence[AuditRow], cases: Sequence[EvalCase], findings: Findings, show: Callable[[float], None]
) -> set[int]:
    """Find the cases that rows ask as they are; return their numbers."""
    found = set()
    asked = Asked([row.question for row in rows], [row.input for row in rows], [row.where for row in rows])
    for match in HeldOut(asked_by_cases(cases)).find(asked):
        case, row = cases[match.held], rows[match.row]
        show(match.row)
        found.add(match.held)
        findings.add("leak", match.row, row.where, f"case {case.id} of {case.where}", row.question)
    return found


def names_of(schema: str) -> frozenset[str]:
    """Return the names in a schema: tables, columns, labels, properties."""
    return frozenset(map(str.lower, _NAME.findall(schema))) - _SCHEMA_WORDS


def check_schemas(rows: Sequence[AuditRow], cases: Sequence[EvalCase], findings: Findings) -> None:
    """Find cases whose schema training rows have, in other words or order: what is learned of it helps with them."""
    schemas: dict[str, AuditRow] = {}
    for row in rows:
        schemas.setdefault(row.input, row)
    known = [(names_of(text), row) for text, row in schemas.items() if text]
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for number, (names, _) in enumerate(known):
        for name in names:
            holders[name].append(number)
    best: dict[str, tuple[float, AuditRow | None]] = {}
    for case in cases:
        if case.input not in best:
            best[case.input] = _best(names_of(case.input), holders, known)
        share, holder = best[case.input]
        if holder is not None and share >= SCHEMA_SHARE:
            whose = f" ({holder.database})" if holder.database else ""
            group = case.file.name if case.file else case.input
            told = f"{group[:60]}: {share:.0%} of its names stand in the schema of {holder.where}{whose}"
            findings.add("shared_schema", case.where, case.where, told, case.input, group)


def _best(
    names: frozenset[str], holders: dict[str, list[int]], known: list[tuple[frozenset[str], AuditRow]]
) -> tuple[float, AuditRow | None]:
    """The schema that has most of some names, and the share of them that it has."""
    counts = np.zeros(len(known), np.int64)
    for name in names & holders.keys():
        counts[holders[name]] += 1
    if not names or not len(counts) or not counts.max():
        return 0.0, None
    most = int(counts.argmax())
    return float(counts[most] / len(names)), known[most][1]
