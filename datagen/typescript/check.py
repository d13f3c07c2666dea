"""How TypeScript rows are verified: by the judge of answers, which type-checks them and runs them with their tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from expert_cli.evaluation.verifiers.typescript import TypescriptCase

TOGETHER, TIMEOUT_S = 25, 10.0


def failures(rows: Sequence[Mapping[str, str]]) -> list[str | None]:
    """For every row None, or what the parser, the type check or the row's own test said."""
    asked = [(TypescriptCase(verifier="typescript", tests=row["test"]), row["output"]) for row in rows]
    for first in range(0, len(asked), TOGETHER):
        TypescriptCase.prepare(asked[first : first + TOGETHER], TIMEOUT_S)
    found = (case.verdict(answer, None, TIMEOUT_S) for case, answer in asked)
    return [None if grade.passed else grade.detail for grade in found]
