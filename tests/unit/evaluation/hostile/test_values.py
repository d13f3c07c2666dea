"""What answers try that are a text, a label, a number, JSON, or go to a program of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.evaluation.hostile import runner

CASES: dict[str, dict[str, Any]] = {
    "exact": {"expected": "Paris"},
    "choice": {"labels": ["good", "bad"], "expected": "good"},
    "number": {"expected": 42},
    "regex": {"pattern": r"[0-9]{4}-[0-9]{2}-[0-9]{2}"},
    "contains_all": {"expected": ["red", "blue"], "absent": ["green"]},
    "json": {"schema": {"type": ["object", "array", "string", "number", "boolean", "null"]}, "rule": "exact"},
}
CASES["json"]["expected"] = {"a": 1, "b": ["x", None]}

JUDGE = """
import json, sys
lines = sys.stdin.buffer.readlines()
told = json.loads(lines[0])
assert len(lines) == 1 and sys.argv[1:] == ["--strict", "a b"] and told["case"]["expected"] == "Paris"
print(json.dumps({"correct": told["answer"] == "Paris", "detail": told["answer"][:50]}))
"""


@runner.few_and_rest
@pytest.mark.parametrize("verifier", CASES)
def test_no_verdict_is_forged(verifier: str, few: bool) -> None:
    assert runner.misjudged(verifier, CASES[verifier], few=few, threads=1, timeout_s=1.0) == []


@runner.few_and_rest
def test_a_program_of_the_users_gets_answers_as_they_are(tmp_path: Path, few: bool) -> None:
    judge = tmp_path / "judge's own.py"
    judge.write_text(JUDGE, encoding="utf-8")
    outside = tmp_path / "outside"
    outside.mkdir()
    case = {"command": judge.name, "arguments": ["--strict", "a b"], "expected": "Paris"}
    with runner.untouched(outside) as places:
        assert runner.misjudged("command", case, few=few, file=judge, timeout_s=20, **places) == []
