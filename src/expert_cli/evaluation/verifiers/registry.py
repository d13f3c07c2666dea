"""The verifiers, by the name that a case's row gives: those of this package, and those that others bring by an entry point.

[project.entry-points."expert_cli.verifiers"]
rhyme = "rhymes.judge:RhymeCase"              a subclass of Case (`case.py`); loaded when a row names it
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from expert_cli.errors import EnvironmentProblem
from expert_cli.evaluation.verifiers import values
from expert_cli.evaluation.verifiers.case import Case
from expert_cli.evaluation.verifiers.command import CommandCase
from expert_cli.evaluation.verifiers.json_schema import JsonCase
from expert_cli.evaluation.verifiers.python import PythonCase
from expert_cli.evaluation.verifiers.query import CypherCase, SqlCase
from expert_cli.evaluation.verifiers.typescript import TypescriptCase

VERIFIERS: dict[str, type[Case]] = {
    "sql": SqlCase, "cypher": CypherCase, "json": JsonCase, "typescript": TypescriptCase, "python": PythonCase,
    "exact": values.ExactCase, "choice": values.ChoiceCase, "number": values.NumberCase, "regex": values.RegexCase,
    "contains_all": values.ContainsAllCase, "command": CommandCase,
}  # fmt: skip
"""Those of this package."""


@cache
def _brought() -> dict[str, EntryPoint]:
    """What packages bring; nothing of it is loaded. A name of ours stays ours."""
    return {point.name: point for point in entry_points(group="expert_cli.verifiers") if point.name not in VERIFIERS}


def known_verifiers() -> list[str]:
    """Return every name that a row may give."""
    return [*VERIFIERS, *sorted(_brought())]


def verifier(name: str) -> type[Case] | None:
    """Return what judges cases of a name; None: nobody brings it. Raises EnvironmentProblem for one that cannot be used."""
    point = _brought().get(name)
    if point is None:
        return VERIFIERS.get(name)
    try:
        found: type[Case] = point.load()
        if not issubclass(found, Case):
            raise TypeError(f"{point.value} is no subclass of {Case.__module__}.Case")  # noqa: TRY301
    except Exception as error:
        told = f"the verifier {name} ({point.value}) cannot be loaded: {type(error).__name__}: {error}"
        raise EnvironmentProblem(told, "install another version of its package, or tell those who made it") from error
    return found
