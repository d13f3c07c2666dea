"""Several answers to each case: what more tries are worth (pass@k), and what the majority of them answers.

A vote goes by what answers give (`Case.result_key`), not by their texts: two queries with the same rows are one answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from expert_cli.evaluation.cases import CaseAnswer
from expert_cli.evaluation.verdict import Grade, Kind
from expert_cli.evaluation.verifiers.case import EMPTY, Case
from expert_cli.evaluation.verifiers.sandbox.isolation import Stopped
from expert_cli.inference.vote import Given, by_votes
from expert_cli.utils.statistics import Estimate, mean_of_shares, pass_at

MajorityBy = Literal["result", "text", "result or text"]
_NOTHING: frozenset[Kind] = frozenset(("invalid", "refused", "timeout", "too_large"))
"""Verdicts on answers that gave nothing, which can be told without knowing what is right."""


@dataclass(frozen=True)
class Sampled:
    """pass@k for every k up to the number of answers that each case has, and the share of cases whose majority is right.

    majority_by: how votes were counted: by what answers give, or, of programs, by their texts.
    """

    pass_at: Mapping[int, Estimate]
    majority: Estimate
    majority_by: MajorityBy

    @classmethod
    def of(cls, passed: Sequence[Sequence[bool]], majority: Sequence[bool], programs: Sequence[bool]) -> Sampled:
        """Estimate from at least one case: which answers are right, whether the majority is, whether answers are programs."""
        most = min(map(len, passed))
        by: MajorityBy = "text" if all(programs) else "result or text" if any(programs) else "result"
        estimates = {
            k: mean_of_shares([pass_at(k, sum(one), len(one)) for one in passed], fmean(map(len, passed)) / k)
            for k in range(1, most + 1)
        }
        return cls(estimates, mean_of_shares(majority), by)

    def as_json(self) -> dict[str, Any]:
        """Return the keys of `evaluate --json` that samples fill."""
        return {
            "pass_at": {str(k): estimate.mean for k, estimate in self.pass_at.items()},
            "pass_at_ci95": {str(k): _ends(estimate) for k, estimate in self.pass_at.items()},
            "majority": self.majority.mean,
            "majority_ci95": _ends(self.majority),
            "majority_by": self.majority_by,
        }


def majority_of(row: CaseAnswer, verdicts: Sequence[Grade], timeout_s: float) -> int | None:
    """Return the place of the first of a row's samples that gives what most of them give; None where none gives anything.

    What wins of results that as many give, `by_votes` says. verdicts: of the samples; whether one is right is not read.
    """
    known: dict[str, Given] = {}
    given: list[Given] = []
    for one, verdict in zip(row.samples, verdicts, strict=True):
        gave = row.case.starts or verdict.kind not in _NOTHING  # a program's verdict comes of its tests
        answer = one.extracted if gave else None
        if answer is not None and answer not in known:
            known[answer] = given_by(answer, row.case, row.file, timeout_s)
        given.append(Given(2, None) if answer is None else known[answer])
    first = by_votes(given)[0][0]
    return first if given[first].rank < 2 else None


def given_by(answer: str, case: Case, file: Path | None, timeout_s: float) -> Given:
    """Return what an answer, taken out of its text, gives to a case when it is run."""
    try:
        key = case.result_key(answer, file, timeout_s)
    except Stopped:
        key = None
    return Given(2 if key is None else 1 if key == EMPTY else 0, key)


def _ends(estimate: Estimate) -> list[float]:
    return list(estimate.ci95 or (0.0, 1.0))
