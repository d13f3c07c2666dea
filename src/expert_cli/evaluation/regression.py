"""Compares an evaluation with an earlier one of the same cases, case by case."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expert_cli.errors import InputError
from expert_cli.evaluation.grade import Evaluation
from expert_cli.runs.metrics import items, read_json
from expert_cli.utils.statistics import Paired


@dataclass(frozen=True)
class Drop:
    """What changed since the evaluation in `file`, and how much may; `alone`: cases of only one of the two (here, there)."""

    file: Path
    pairs: Paired
    max_drop: float
    alone: tuple[int, int] = (0, 0)

    @property
    def held(self) -> bool:
        """Whether the accuracy fell by no more than was allowed."""
        return self.pairs.drop <= self.max_drop

    def as_json(self) -> dict[str, Any]:
        """Return the value under "against"."""
        return {"file": str(self.file), **self.pairs.as_json(), "max_drop": self.max_drop, "held": self.held}


def compare_with(path: Path, new: Evaluation, max_drop: float) -> Drop:
    """Pair the answers with those of the evaluation in `path` by id.

    Raises InputError where it is none, where no case is in both, or where a case has changed.
    """
    rows = [row for row in items(read_json(path), "answers") if isinstance(row, dict)]
    if not rows:
        raise InputError(f"{path}: not an evaluation", "give a file that evaluate --output wrote")
    old = {row.get("id"): row for row in rows}
    pairs = [(judged, old[judged.row.id]) for judged in new.answers if judged.row.id in old]
    for judged, row in pairs:
        if row.get("case") != judged.row.digest:
            raise InputError(f"{judged.row.where}: case {judged.row.id!r} is not that of {path}", "evaluate it again")
    if not pairs:
        raise InputError(f"{path}: none of its cases is evaluated here", "give an evaluation of the same cases")
    found = Paired.of((row.get("kind") == "correct" for _, row in pairs), (one.verdict.passed for one, _ in pairs))
    return Drop(path, found, max_drop, (len(new.answers) - len(pairs), len(old) - len(pairs)))
