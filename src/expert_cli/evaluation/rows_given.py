"""What queries give of a database that somebody asks about: no case, nothing is right or wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.evaluate import CASE_TIMEOUT_S
from expert_cli.evaluation.extract import extract
from expert_cli.evaluation.samples import given_by
from expert_cli.evaluation.verifiers.case import Case
from expert_cli.evaluation.verifiers.registry import VERIFIERS
from expert_cli.inference.vote import Given, text_given
from expert_cli.utils.reporter import Reporter

NO_ROWS = "SELECT 1 WHERE 1 = 0"


def rows_given(database: Path, report: Reporter) -> Callable[[str], Given] | None:
    """Return what runs an answer on a copy of an SQLite file, for a vote; None, which is told, where nothing here can."""
    asked = {"verifier": "sql", "database": str(database), "expected": NO_ROWS}
    case, file = VERIFIERS["sql"].model_validate(asked), database.absolute()
    try:
        case.result_key(NO_ROWS, file, CASE_TIMEOUT_S)
    except (EnvironmentProblem, InputError) as error:
        report.info(f"the vote goes by the texts of answers, which are not run: {error.message}")
        return None
    return partial(_given, case=case, file=file)


def _given(text: str, case: Case, file: Path) -> Given:
    given = given_by(extract(text, case.fences), case, file, CASE_TIMEOUT_S)
    return given if given.rank < 2 else Given(2, text_given(text, None).key)
