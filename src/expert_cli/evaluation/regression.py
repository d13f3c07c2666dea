"""Compares an evaluation with an earlier one of the same cases, case by case."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expert_cli.errors import InputError
from expert_cli.evaluation.grade import Evaluation
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
    old = _read(path)
    lost = gained = cases = 0
    for judged in new.answers:
        row = old.get(judged.row.id)
        if row is None:
            continue
        if row.get("case") != judged.row.digest:
            raise InputError(f"{judged.row.where}: case {judged.row.id!r} is not that of {path}", "evaluate it again")
        cases += 1
        passed = row.get("kind") == "correct"
        lost += passed and not judged.verdict.passed
        gained += judged.verdict.passed and not passed
    if not cases:
        raise InputError(f"{path}: none of its cases is evaluated here", "give an evaluation of the same cases")
    alone = (len(new.answers) - cases, len(old) - cases)
    return Drop(path, Paired(cases, lost, gained), max_drop, alone)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return {row["id"]: row for row in document["answers"]}
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", "give a file that evaluate --output wrote") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: not an evaluation", "give a file that evaluate --output wrote") from error
