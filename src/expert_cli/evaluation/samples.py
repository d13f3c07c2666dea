"""Several answers to each case: what more tries are worth (pass@k), and what the majority of them answers.

A vote goes by what answers give (`Case.result_key`), not by their texts: two queries with the same rows are one answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from expert_cli.evaluation.cases import CaseAnswer
from expert_cli.evaluation.verdict import Grade, Kind
from expert_cli.evaluation.verifiers.sandbox.limits import Stopped
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

    Of results that as many give, the one that came first; one without rows only where none has any: who asks a database mostly
    asks for what is there. verdicts: of the samples; whether one is right is not read.
    """
    known: dict[str, Hashable] = {}
    keys: list[Hashable] = []
    for one, verdict in zip(row.samples, verdicts, strict=True):
        gave = row.case.starts or verdict.kind not in _NOTHING  # a program's verdict comes of its tests
        answer = one.extracted if gave else None
        if answer is not None and answer not in known:
            try:
                known[answer] = row.case.result_key(answer, row.file, timeout_s)
            except Stopped:
                known[answer] = None
        keys.append(None if answer is None else known[answer])
    given = [key for key in keys if key is not None]
    votes = Counter([key for key in given if not row.case.is_empty(key)] or given)
    return keys.index(votes.most_common(1)[0][0]) if votes else None


def _ends(estimate: Estimate) -> list[float]:
    return list(estimate.ci95 or (0.0, 1.0))
