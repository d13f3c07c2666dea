"""What the texts of rows alone show: answers that go on too far, fences, repeats, contradictions; tests of cases."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Sequence

from expert_cli.evaluation.audit.findings import Findings, place_beside
from expert_cli.evaluation.audit.rows import AuditRow
from expert_cli.evaluation.audit.similarity import Texts, near_duplicates
from expert_cli.utils.reporter import Reporter, late_progress
from expert_cli.utils.text import normalize

FEW_ASSERTIONS = 3
_MIN_PROMPT_CHARACTERS = 12
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})([^`\n]*)")
# Words that only a prompt's next turn begins with; tokens stand in no program either.
_NEXT_TURN = re.compile(
    r"<\|[A-Za-z_]+\|>|<(?:start|end)_of_turn>|<｜[^｜]{1,30}｜>"
    r"|^### (?:Instruction|Input|Human|User|Question|Response):|^\[/?INST\]"
    r"|^(?:Human|User|Question): .*\n(?:Assistant|Answer):",
    re.MULTILINE,
)
_ASSERTION = re.compile(
    r"\b(?:assert(?:\.\w+)?|deepStrictEqual|strictEqual|deepEqual|equal|ok|throws|rejects|expect)\s*\(|\bthrow\b"
    r"|^[ \t]*assert[ \t]+[^\s(]",
    re.MULTILINE,
)
EQUAL_VALUES = ("choice", "exact", "number", "json")
"""Verifiers that compare answers as values: two that differ cannot both be right."""


def check_texts(rows: Sequence[AuditRow], findings: Findings, report: Reporter) -> None:
    """Check each answer by its text."""
    with late_progress(report, "reading answers", len(rows), "rows") as show:
        for number, row in enumerate(rows):
            _check_text(number, row, findings)
            show(number + 1)


def _check_text(number: int, row: AuditRow, findings: Findings) -> None:
    fault = prompt_in_answer(row)
    if fault:
        findings.add("prompt_in_answer", number, row.where, fault, row.answer[-200:])
    fence = unclosed_fence(row.answer)
    if fence:
        findings.add("unclosed_fence", number, row.where, fence, row.answer)


def prompt_in_answer(row: AuditRow) -> str:
    """Return how an answer goes on into a prompt; "" where it does not."""
    marker = _NEXT_TURN.search(row.answer)
    if marker:
        return f"it holds {marker[0].splitlines()[0]!r}"
    question, answer = normalize(row.question), normalize(row.answer)
    if len(question) >= _MIN_PROMPT_CHARACTERS and len(answer) > len(question) and answer.endswith(question):
        return "it ends with its own question"
    return ""


def unclosed_fence(text: str) -> str:
    """Return the line that opens a code fence which nothing closes; "" where there is none."""
    if "```" not in text and "~~~" not in text:
        return ""
    fence = opened = ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if not fence:
            if mark and "`" not in mark[2]:
                fence, opened = mark[1], line.strip()
        elif mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
    return f"{opened!r} is not closed" if fence else ""


def assertions(tests: str) -> int:
    """Return how many assertions a text of tests has, as far as their names tell; 0 where none is recognized."""
    return len(_ASSERTION.findall(tests))


def check_repeats(
    rows: Sequence[AuditRow],
    texts: tuple[Texts, Texts, Texts],
    results: dict[int, str],
    findings: Findings,
    verifier: str,
    report: Reporter,
) -> None:
    """Find rows that say what an earlier one says, nearly so, or something else to the same question.

    texts: questions, inputs, answers. results: of rows whose answer was run, what it returned.
    """
    asked, inputs, answers = (text.index.tolist() for text in texts)
    first: dict[tuple[int, ...], int] = {}
    groups: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        same = first.setdefault((asked[number], inputs[number], answers[number]), number)
        if same != number:
            findings.add(
                "duplicate", number, row.where, f"as {place_beside(rows[same].where, row.where)}", row.question
            )
        elif row.question:
            groups[asked[number], inputs[number]].append(number)
    _contradictions(rows, [group for group in groups.values() if len(group) > 1], results, findings, verifier)
    with late_progress(report, "comparing rows", len(rows), "rows") as show:
        near = near_duplicates(*texts, sorted(first.values()), show)
    for later, earlier in near.items():
        where = rows[later].where
        told = f"nearly {place_beside(rows[earlier].where, where)}"
        findings.add("near_duplicate", later, where, told, rows[later].question)


def _contradictions(
    rows: Sequence[AuditRow], groups: Sequence[list[int]], results: dict[int, str], findings: Findings, verifier: str
) -> None:
    """Of answers to one question: they contradict each other where their values or results are known and differ."""
    value: Callable[[int], str | None] = results.get
    if verifier in EQUAL_VALUES:
        value = lambda number: _value(rows[number].answer, verifier)
    for group in groups:
        if len({*map(value, group)} - {None}) < 2:
            continue  # written differently, the same value, as far as is known
        for number in group:
            other = rows[group[0] if number != group[0] else group[1]]
            told = f"{place_beside(other.where, rows[number].where)} answers: {other.answer}"
            findings.add("contradiction", number, rows[number].where, told, rows[number].answer)


def _value(answer: str, verifier: str) -> str:
    """An answer as its verifier compares it, near enough to tell different ones."""
    if verifier == "json":
        try:
            return json.dumps(json.loads(answer), sort_keys=True)
        except (ValueError, RecursionError):
            return answer
    return normalize(answer).strip(" .\"'`")
