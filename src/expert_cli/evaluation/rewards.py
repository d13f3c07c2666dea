"""What answers are worth to a trainer that learns from them: the verdicts of the judges as numbers from 0 to 1."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from expert_cli.errors import InputError
from expert_cli.evaluation.cases import CaseAnswer, case_in, digest_of
from expert_cli.evaluation.grade import grade
from expert_cli.evaluation.permissions import Permissions
from expert_cli.evaluation.verdict import Grade, Progress
from expert_cli.evaluation.verifiers.case import FORGED
from expert_cli.evaluation.verifiers.registry import verifier
from expert_cli.utils.files import parse_json
from expert_cli.utils.reporter import NullReporter

DENSE: Mapping[Progress, float] = {"nothing": 0.0, "parses": 0.1, "runs": 0.3, "columns": 0.5, "result": 1.0}
"""Less than half of what is right is worth to what is not, however far it came: no number of near misses makes up for it."""

Reward = Literal["dense", "binary"]
REWARDS: Mapping[Reward, Callable[[Grade], float]] = {
    "binary": lambda grade: float(grade.passed),
    "dense": lambda grade: DENSE[grade.progress],
}

WHOLE_CASE = "case"
"""The column that holds a case as JSON text, in place of a column a key."""


def grades(
    completions: Sequence[Any],
    columns: Mapping[str, Sequence[Any]],
    folder: Path,
    timeout_s: float,
    allowed: Permissions,
) -> list[Grade]:
    """Judge what was written, several at once, equal answers to equal cases once.

    columns: those of the data set, an entry a completion; of them the keys of the case count, or `WHOLE_CASE` alone. folder:
    paths in cases are relative to it. What is no text is judged as an empty one. Raises InputError where a case is at fault,
    EnvironmentProblem where what judges is missing or would not be safe.
    """
    rows = [_answered(index, text, columns, folder.resolve()) for index, text in enumerate(map(text_of, completions))]
    different = {(row.digest, row.answer): row for row in rows}
    allowed.require([*different.values()], NullReporter())
    if any(row.case.can_be_forged for row in rows):
        warnings.warn(FORGED, stacklevel=2)  # once, as Python's filters have it
    judged = grade([*different.values()], NullReporter(), timeout_s).answers if rows else ()
    known = dict(zip(different, (one.verdict for one in judged), strict=True))
    return [known[row.digest, row.answer] for row in rows]


def text_of(completion: Any) -> str:
    """Return what was written: a text, or that of the last message of the assistant; "" for anything else."""
    if isinstance(completion, str):
        return completion
    messages = completion if isinstance(completion, list | tuple) else ()
    said = [one.get("content") for one in messages if isinstance(one, Mapping) and one.get("role") == "assistant"]
    content = said[-1] if said else ""
    if isinstance(content, list | tuple):
        parts = [one.get("text") for one in content if isinstance(one, Mapping)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _answered(index: int, text: str, columns: Mapping[str, Sequence[Any]], folder: Path) -> CaseAnswer:
    where = f"completion {index + 1}"
    row = _row(where, index, columns)
    case, file = case_in(folder, where, row)
    return CaseAnswer(case, where, case.id, digest_of(row), file, text)


def _row(where: str, index: int, columns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the keys of a case: what other columns hold is none of the judge's business."""
    if WHOLE_CASE in columns:
        return _of_kind(_parsed(where, columns[WHOLE_CASE][index]))
    row = {name: values[index] for name, values in columns.items() if _is_column(values, index)}
    return _of_kind(row)


def _is_column(values: Any, index: int) -> bool:
    """Whether a trainer hands on a column: TRL has its own state beside them."""
    return isinstance(values, list | tuple) and index < len(values)


def _parsed(where: str, text: Any) -> dict[str, Any]:
    try:
        row = parse_json(text)
    except (ValueError, TypeError) as error:
        raise InputError(f"{where}: {WHOLE_CASE}: not JSON: {error}", "write the case's row as JSON text") from error
    if not isinstance(row, dict):
        raise InputError(
            f"{where}: {WHOLE_CASE}: {json.dumps(row)[:80]} is no object", "write the case's row as JSON text"
        )
    return row


def _of_kind(row: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is no key of the verifier, and what a data set fills up with null where a row has no such key."""
    name = row.get("verifier")
    kind = verifier(name) if isinstance(name, str) else None
    if kind is None:  # the reader of cases says what is wrong
        return dict(row)
    fields = {field.alias or key: field for key, field in kind.model_fields.items()}
    return {
        key: value for key, value in row.items() if key in fields and (value is not None or fields[key].is_required())
    }
