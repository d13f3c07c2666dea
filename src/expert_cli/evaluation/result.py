"""What an evaluation found, as `evaluate --json` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expert_cli.evaluation.baseline import BaselineComparison
from expert_cli.evaluation.extract import RULE
from expert_cli.evaluation.grade import Evaluation
from expert_cli.evaluation.regression import Drop
from expert_cli.runs.metrics import BASES


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation found; facts, generation: what was evaluated and how, as the document says it.

    bases: the base model on the same cases, by the document's key: "baseline" without examples, "few_shot" with some.
    cases_file: where the cases stand. limit: how many of them at most were asked for; None: all. threshold: the accuracy
    that was asked for. drop: what changed since an earlier evaluation.
    """

    evaluation: Evaluation
    bases: Mapping[str, BaselineComparison]
    facts: Mapping[str, Any] | None
    generation: Mapping[str, Any] | None
    cases_file: Path = Path()
    limit: int | None = None
    threshold: float | None = None
    drop: Drop | None = None

    @property
    def missed(self) -> str:
        """Which threshold was missed, in words with both values; "" for none."""
        share, drop = self.evaluation.share, self.drop
        if self.threshold is not None and share.accuracy < self.threshold:
            counts = f"{share.correct} of {share.cases}"
            return f"accuracy {share.accuracy:.4f} ({counts}) is below the threshold {self.threshold:g}"
        if drop is not None and not drop.held:
            return f"accuracy fell by {drop.pairs.drop:.4f} against {drop.file}, more than {drop.max_drop:g}"
        return ""

    def as_json(self) -> dict[str, Any]:
        """Return what `evaluate --json` prints (docs/INTERFACE.md)."""
        return {
            **self.evaluation.as_json(),
            **{name: self.bases[name].as_json() if name in self.bases else None for name in BASES},
            "threshold": self.threshold,
            "against": self.drop.as_json() if self.drop else None,
            "passed": not self.missed,
            "extraction": RULE,
            "expert": self.facts,
            "generation": self.generation,
            "cases_file": str(self.cases_file.resolve()),
            "limit": self.limit,
        }
