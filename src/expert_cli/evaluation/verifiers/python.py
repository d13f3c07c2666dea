"""Judges Python answers: the case's tests run, and what the answer defines is asked from another process.

In one process of CPython a program can change or read whatever stands in it. Here the answer has a process of its own, and the
tests are in another one: a verdict rests on what the answer returns and on nothing that it is or does. It cannot see what is
expected, leave early, change built-ins, or call its results equal to anything (`sandbox/python_pair/peer.py`). That the one
process cannot look into the other rests on the walls: seccomp and Landlock, see `sandbox/walls.py`.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Hashable
from pathlib import Path
from typing import TypeGuard

from pydantic import Field

from expert_cli.errors import InputError
from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers.case import Case, Example
from expert_cli.evaluation.verifiers.sandbox.limits import Stopped, readable
from expert_cli.evaluation.verifiers.sandbox.python_pair.of_answer import own_part
from expert_cli.evaluation.verifiers.sandbox.python_pair.run import judged

MAX_BYTES = 1_000_000


class PythonCase(Case):
    """`tests`, code that calls what the answer defines and raises if it is wrong; `prefix`, code that the answer continues."""

    starts = "answer"
    fences = frozenset({"python", "py", "python3", "py3"})
    example = Example(
        {"prompt": "Write a function twice that doubles a number.", "tests": "assert twice(2) == 4"},
        right="def twice(number):\n    return 2 * number",
        wrong="def twice(number):\n    return number",
    )

    tests: str = Field(
        description="Code that raises if the answer is wrong; its functions `test...` are called. What is missing in it is the "
        "answer's, but for Python's own names: `from answer import sum`."
    )
    prefix: str = Field(
        default="",
        description="Code that the answer continues; what stands before its last statement the tests have, too.",
    )

    def require_sound(self) -> None:
        """Raise InputError for tests that are no Python, use nothing of the answer's, await it, or derive from its classes."""
        fault = self.parse_fault(self.tests)
        if fault:
            raise InputError(f"tests: {fault}", "correct the case's tests")
        if not _free_names(_parsed(self.tests)):
            raise InputError("tests: they use nothing that an answer defines", "call the answer in the tests")
        self._require_usable(_parsed(self.tests))

    def _require_usable(self, tests: ast.Module) -> None:
        """Raise InputError for tests that use the answer in a way that does not reach into another process."""
        own = {one.name for one in own_part(self.prefix) if isinstance(one, ast.ClassDef)}
        missing = _free_names(tests) - own
        for node in ast.walk(tests):
            if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith) or _imports_asyncio(node):
                why = "an answer runs in another process, where no event loop can wait for it"
                raise InputError(f"tests, line {node.lineno}: {why}", "ask for a function that is called without await")
            if not isinstance(node, ast.ClassDef):
                continue
            if found := [one.id for one in node.bases if isinstance(one, ast.Name) and one.id in missing]:
                why = f"the class {node.name} derives from {found[0]}, which is the answer's and in another process"
                raise InputError(f"tests, line {node.lineno}: {why}", "use objects of the answer's class itself")

    def for_dummy(self, *, first: bool) -> PythonCase | None:
        """Return the first case: one tells whether programs can be run here."""
        return self if first else None

    @classmethod
    def row_program(cls, tests: str, prefix: str) -> PythonCase | None:
        """Return a case of a row's tests, where it has some."""
        return cls(verifier="python", tests=tests, prefix=prefix) if tests else None

    @classmethod
    def parse_fault(cls, program: str) -> str:
        """Return why a text is no Python program, or ""."""
        try:
            _parsed(program)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return str(error) or "it is nested too deep"
        return ""

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:  # noqa: ARG002  a case names none
        """Judge the program `prefix` + `answer` by the tests, which have `timeout_s` once both processes stand.

        Raises EnvironmentProblem (Python does not start behind the walls).
        """
        try:
            readable(answer, MAX_BYTES)
        except Stopped as stopped:
            return stopped.verdict
        verdict = judged(self.prefix, answer, self.tests, timeout_s)
        parses = verdict.kind == "invalid" and not self.parse_fault(self.prefix + answer)
        return verdict.of_a_program if parses else verdict

    def result_key(self, answer: str, file: Path | None, timeout_s: float) -> Hashable:  # noqa: ARG002
        """Return the program without comments and spacing: what it gives no one knows without the tests."""
        try:
            readable(answer, MAX_BYTES)
            return ast.dump(_parsed(self.prefix + answer))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _parsed(program: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(program)


def _imports_asyncio(node: ast.AST) -> TypeGuard[ast.Import | ast.ImportFrom]:
    names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
    return "asyncio" in names or (isinstance(node, ast.ImportFrom) and node.module == "asyncio")


def _free_names(tree: ast.Module) -> set[str]:
    """The names that a program uses and nobody defines in it, and what it imports of the answer."""
    used, made = set[str](), set(vars(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else made).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            made.add(node.name)
        elif isinstance(node, ast.arg):
            made.add(node.arg)
        elif isinstance(node, ast.ImportFrom) and node.module == "answer":
            used.add("answer")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            made.update((one.asname or one.name).partition(".")[0] for one in node.names if one.name != "answer")
            used.update("answer" for one in node.names if one.name == "answer")
    return used - made
