"""The verifiers by name: those of this package, and those of other packages, which provide an entry point.

[project.entry-points."expert_cli.verifiers"]
rhyme = "rhymes.judge:RhymeCase"              a subclass of Case (`case.py`), loaded when a row names it
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from expert_cli.errors import EnvironmentProblem
from expert_cli.evaluation.verifiers import values
from expert_cli.evaluation.verifiers.case import Case
from expert_cli.evaluation.verifiers.command import CommandCase
from expert_cli.evaluation.verifiers.json_schema import JsonCase
from expert_cli.evaluation.verifiers.python import PythonCase
from expert_cli.evaluation.verifiers.query import CypherCase, SqlCase
from expert_cli.evaluation.verifiers.typescript import TypescriptCase

GROUP = "expert_cli.verifiers"
VERIFIERS: dict[str, type[Case]] = {
    "sql": SqlCase, "cypher": CypherCase, "json": JsonCase, "typescript": TypescriptCase, "python": PythonCase,
    "exact": values.ExactCase, "choice": values.ChoiceCase, "number": values.NumberCase, "regex": values.RegexCase,
    "contains_all": values.ContainsAllCase, "command": CommandCase,
}  # fmt: skip
"""The verifiers of this package."""


def known_verifiers() -> list[str]:
    """Return every name that a row may use; names of this package cannot be overridden."""
    return [*VERIFIERS, *sorted({point.name for point in entry_points(group=GROUP)} - VERIFIERS.keys())]


@cache
def verifier(name: str) -> type[Case] | None:
    """Return the case class of a verifier, None for an unknown name. Raises EnvironmentProblem if it cannot be loaded."""
    for point in () if name in VERIFIERS else entry_points(group=GROUP, name=name):
        try:
            return point.load()  # type: ignore[no-any-return]
        except Exception as error:  # another package may raise anything
            told = f"the verifier {name} ({point.value}) cannot be loaded: {type(error).__name__}: {error}"
            raise EnvironmentProblem(told, "install another version of its package, or tell its authors") from error
    return VERIFIERS.get(name)
