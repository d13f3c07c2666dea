"""The verifiers, by the name that a case's row gives: those of this package, and those that others bring by an entry point.

[project.entry-points."expert_cli.verifiers"]
rhyme = "rhymes.judge:RhymeCase"              a subclass of Case (`case.py`); loaded when a row names it
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from expert_cli.errors import EnvironmentProblem
from expert_cli.evaluation.verifiers.case import Case
from expert_cli.evaluation.verifiers.command import CommandCase
from expert_cli.evaluation.verifiers.cypher import CypherCase
from expert_cli.evaluation.verifiers.json_schema import JsonCase
from expert_cli.evaluation.verifiers.python import PythonCase
from expert_cli.evaluation.verifiers.sql import SqlCase
from expert_cli.evaluation.verifiers.typescript import TypescriptCase
from expert_cli.evaluation.verifiers.values import ChoiceCase, ContainsAllCase, ExactCase, NumberCase, RegexCase

GROUP = "expert_cli.verifiers"
VERIFIERS: dict[str, type[Case]] = {
    "sql": SqlCase,
    "cypher": CypherCase,
    "json": JsonCase,
    "typescript": TypescriptCase,
    "python": PythonCase,
    "exact": ExactCase,
    "choice": ChoiceCase,
    "number": NumberCase,
    "regex": RegexCase,
    "contains_all": ContainsAllCase,
    "command": CommandCase,
}
"""Those of this package."""


def known_verifiers() -> list[str]:
    """Return every name that a row may give."""
    return [*VERIFIERS, *sorted(_of_packages().keys() - VERIFIERS.keys())]


def verifier(name: str) -> type[Case] | None:
    """Return what judges cases of a name; None for a name that nobody brings.

    Raises EnvironmentProblem for the verifier of a package that cannot be loaded, is no subclass of Case, or has a name that
    is taken, by this package or by another one.
    """
    points = _of_packages().get(name, ())
    own = VERIFIERS.get(name)
    if not points:
        return own
    packages = " and ".join(sorted({point.dist.name if point.dist else point.value for point in points}))
    if own is not None or len(points) > 1:
        fault = "replaces one of expert-cli's" if own is not None else "is in each of them"
        raise EnvironmentProblem(f"the verifier {name} of {packages} {fault}", f"uninstall, or rename it: {packages}")
    try:
        found = points[0].load()
    except Exception as error:
        raise _broken(name, packages, f"{type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Case)):
        raise _broken(name, packages, f"{points[0].value} is no subclass of {Case.__module__}.Case")
    return found


def _broken(name: str, packages: str, why: str) -> EnvironmentProblem:
    told = f"the verifier {name} of {packages} cannot be loaded: {why}"
    return EnvironmentProblem(told, f"install another version of {packages}, or tell those who made it")


@cache
def _of_packages() -> dict[str, tuple[EntryPoint, ...]]:
    """What packages bring, by name; nothing of it is loaded."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=GROUP):
        found[point.name] = (*found.get(point.name, ()), point)
    return found
