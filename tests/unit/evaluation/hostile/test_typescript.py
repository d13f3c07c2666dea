"""What TypeScript answers try: none is right that is not, nothing is reached, and each gets its verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from expert_cli.evaluation.verifiers.case import MAX_BYTES
from tests.graders import typescript as check
from tests.processes import none_left
from tests.unit.evaluation.hostile import runner

TESTS = 'import { deepStrictEqual } from "node:assert";\ndeepStrictEqual(f(2), 4);\ndeepStrictEqual(f(3), 6);'

LONG: dict[str, tuple[str, set[str]]] = {
    "brackets": ("(" * 200_000, {"invalid", "too_large"}),
    "a megabyte of comment": ("/*" + "x" * (MAX_BYTES - 500) + "*/\nconst f = (n: number) => 0;", {"wrong"}),
    "more than a megabyte": ("//" + "x" * MAX_BYTES, {"too_large"}),
}
"""Texts too long for the rows of typescript.jsonl."""


@runner.few_and_rest
def test_no_answer_escapes_and_no_verdict_is_forged(tmp_path: Path, few: bool) -> None:
    with none_left(), runner.untouched(tmp_path) as places:
        assert runner.misjudged("typescript", {"tests": TESTS}, few=few, timeout_s=2, threads=2, **places) == []


@pytest.mark.slow
def test_long_answers_get_a_verdict() -> None:
    for name, (answer, kinds) in LONG.items():
        assert check(answer, TESTS, timeout_s=5).kind in kinds, name
