"""Cases that training rows give away: by their question, nearly by it, by their answer, or by their schema."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from expert_cli.evaluation.audit.findings import Findings
from expert_cli.evaluation.audit.rows import AuditRow
from expert_cli.evaluation.audit.similarity import NEAR, Texts, normalize, similarity
from expert_cli.evaluation.cases import EvalCase
from expert_cli.utils.reporter import Reporter, late_progress

SCHEMA_SHARE = 0.8
_SHORT_ANSWER = 20
"""Answers of fewer characters ("SELECT 1", a label) are not taken for the case's own."""
_MOST_LOOKS = 50
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
    asked, inputs, answers = texts
    of_pair: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    of_answer: dict[tuple[str, str], int] = {}
    for number in range(len(rows)):
        of_pair[asked[number], inputs[number]].append(number)
        of_answer.setdefault((inputs[number], answers[number].rstrip("; ")), number)
    case_asked, case_inputs = Texts.of([case.prompt for case in cases]), Texts.of([case.input for case in cases])
    with late_progress(report, "looking for the cases in the rows", len(cases), "cases") as show:
        for at, case in enumerate(cases):
            own = (case_asked[at], case_inputs[at])
            for number in of_pair.get(own, ()):
                findings.add(
                    "leak", number, rows[number].where, f"case {case.id} of {case.where}", rows[number].question
                )
            expected = normalize(case.case.expected_text).rstrip("; ")
            if len(expected) >= _SHORT_ANSWER and (own[1], expected) in of_answer:
                there = rows[of_answer[own[1], expected]]
                findings.add("leaked_answer", case.where, case.where, f"{there.where} has its answer", there.answer)
            if own not in of_pair:
                near = asked.near(case_asked.signatures[case_asked.index[at]])
                near &= inputs.near(case_inputs.signatures[case_inputs.index[at]])
                for number in np.flatnonzero(near)[:_MOST_LOOKS].tolist():
                    if (
                        similarity((own[0],), (asked[number],)) >= NEAR
                        and similarity((own[1],), (inputs[number],)) >= NEAR
                    ):
                        told = f"nearly {rows[number].where}: {rows[number].question}"
                        findings.add("near_leak", case.where, case.where, told, case.prompt)
                        break
            show(at + 1)


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
