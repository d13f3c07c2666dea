"""What the texts of rows show, on rows of one kind of fault each."""

from __future__ import annotations

import pytest

from expert_cli.evaluation.audit.findings import Findings
from expert_cli.evaluation.audit.rows import AuditRow, split_text
from expert_cli.evaluation.audit.similarity import Texts
from expert_cli.evaluation.audit.text_checks import (
    assertions,
    check_repeats,
    prompt_in_answer,
    unclosed_fence,
)
from expert_cli.utils.reporter import NullReporter


def rows(*pairs: tuple[str, str]) -> list[AuditRow]:
    return [AuditRow(f"f.jsonl:{number}", *pair) for number, pair in enumerate(((q, "", a) for q, a in pairs), start=1)]


def found(findings: Findings) -> dict[str, set[int | str]]:
    return {name: check.members for name, check in findings.found.items() if check.members}


def repeats(given: list[AuditRow], verifier: str, results: dict[int, str] | None = None) -> dict[str, set[int | str]]:
    findings = Findings()
    texts = tuple(Texts.of([getattr(row, name) for row in given]) for name in ("question", "input", "answer"))
    check_repeats(given, texts, results or {}, findings, verifier, NullReporter())  # type: ignore[arg-type]
    return found(findings)


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ("SELECT 1", True),
        ("```sql\nSELECT 1\n```", True),
        ("```sql\nSELECT 1", False),
        ("```sql\nSELECT 1\n``` and more", False),
        ("~~~\n```\n~~~", True),
        ("````\n```\n````", True),
        ("````\n```", False),
        ("const a = `x`; // ```inline``` stays", True),
        ("```\none\n```\n```js\ntwo", False),
    ],
)
def test_fences(text: str, closed: bool) -> None:
    assert (unclosed_fence(text) == "") is closed


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("SELECT 1", ""),
        ("SELECT 1\n### Instruction:\nList more", "it holds '### Instruction:'"),
        ("SELECT 1<|im_end|>\n<|im_start|>user", "it holds '<|im_end|>'"),
        ("Four.\nHuman: And five?\nAssistant:", "it holds 'Human: And five?'"),
        ("Human: is a word", ""),
        ("4\n\nHow many  BOATS are there?", "it ends with its own question"),
        ("How many boats are there?", ""),  # an answer that is its question is none that goes on
    ],
)
def test_answers_that_go_on_into_a_prompt(answer: str, told: str) -> None:
    assert prompt_in_answer(AuditRow("f:1", "How many boats are there?", "", answer)) == told


@pytest.mark.parametrize(
    ("verifier", "results", "expected"),
    [
        ("choice", {}, {"contradiction": {0, 1}, "duplicate": {3}}),
        ("sql", {}, {"duplicate": {3}}),
        ("sql", {0: "a", 1: "a"}, {"duplicate": {3}}),
        ("sql", {0: "a", 1: "b"}, {"contradiction": {0, 1}, "duplicate": {3}}),
        ("sql", {0: "a"}, {"duplicate": {3}}),
    ],
)
def test_two_answers_to_one_question(verifier: str, results: dict[int, str], expected: dict[str, set[int]]) -> None:
    given = rows(
        ("Is this a fine day?", "yes"), ("is this  a fine day?", "no"), ("Or a bad one?", "no"), ("OR a bad one?", "No")
    )
    told = repeats(given, verifier, results)
    assert told.pop("near_duplicate") == {1}  # but for its last word it is the first row
    assert told == expected


def test_json_that_is_laid_out_otherwise_is_no_contradiction() -> None:
    given = rows(("As JSON: one, two.", '{"a": 1, "b": 2}'), ("As JSON: one, two.", '{"b":2,"a":1}'))
    assert "contradiction" not in repeats(given, "json")
    assert repeats([given[0], AuditRow("f:2", given[1].question, "", '{"a": 2}')], "json")["contradiction"] == {0, 1}


def test_assertions_are_counted_by_their_names() -> None:
    tests = 'import { deepStrictEqual } from "node:assert";\ndeepStrictEqual(f(1), 2);\nif (f(2) !== 3) throw new Error("x");'
    assert assertions(tests) == 2
    assert assertions("assert.deepEqual(f(1), 2); assert(f(2)); expect(f(3)).toBe(4);") == 3
    assert assertions("assert f(1) == 2\nassert (f(2)) == 3\n  assert not f(3)") == 3
    assert assertions("f(1);") == 0


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("### Instruction:\nHi\n\n### Response:\nHello", ("### Instruction:\nHi\n\n", "Hello")),
        (
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n",
            ("<|im_start|>user\nHi<|im_end|>\n", "Hello"),
        ),
        ("Once upon a time", ("", "Once upon a time")),
    ],
)
def test_whole_texts_are_parted_before_their_last_answer(text: str, parts: tuple[str, str]) -> None:
    assert split_text(text) == parts
