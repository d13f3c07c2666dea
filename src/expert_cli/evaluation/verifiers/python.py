"""Judges Python answers: a case's tests run where the answer is, in one process behind walls; or its calls, whose results are
compared here.

In one process of CPython a program can change or read whatever stands in it: an answer that wants to can pass any `tests`
(docs/JUDGING.md). It cannot with `calls`: the process gets the arguments, and never what is expected.
"""

from __future__ import annotations

import ast
import json
import secrets
import sys
import warnings
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue

from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.verifiers.case import Case, Example, Grade
from expert_cli.evaluation.verifiers.json_schema import difference
from expert_cli.evaluation.verifiers.sandbox.child_process import Stopped, readable, run_program

CHILD = Path(__file__).parent / "sandbox" / "python_child.py"


class PythonCase(Case):
    """`tests`, code that calls what the answer defines and raises if it is wrong; or `function` and `calls`, which no answer
    can forge.
    """

    starts = "answer"
    fences = frozenset({"python", "py", "python3", "py3"})
    example = Example(
        {"prompt": "Write a function twice that doubles.", "function": "twice", "calls": [[[2], 4], [[-3], -6]]},
        right="def twice(number):\n    return 2 * number",
        wrong="def twice(number):\n    return number",
    )

    tests: str = ""  # its functions `test...` and test cases are called
    function: str = ""  # what `calls` call: a name, or `Solution().name`
    calls: list[list[JsonValue]] = Field(default=[])  # of each the arguments, and what it returns; a tuple is a list

    @property
    def criterion(self) -> str:
        """What an answer is held against, for people."""
        return self.tests or "; ".join(f"{self._call(args)} == {json.dumps(result)}" for args, result in self.calls)

    @property
    def can_be_forged(self) -> bool:
        """Whether tests run, in the answer's own process."""
        return bool(self.tests)

    def _call(self, args: Any) -> str:
        return f"{self.function}({', '.join(map(json.dumps, args))})"

    def require_sound(self) -> None:
        """Raise InputError for a case of neither tests nor calls, or of both, and for tests that are no Python."""
        if bool(self.tests) == bool(self.calls) or bool(self.calls) != bool(self.function):
            hint = 'write "tests", or "function" and "calls"'
            raise InputError("a case has either tests, or function and calls", hint)
        if not all(len(call) == 2 and isinstance(call[0], list) for call in self.calls):
            raise InputError("calls: each is a list of its arguments and what it returns", "write [[[2, 3], 5], ...]")
        try:
            program = _parsed(self.tests or self.function)
        except Stopped as stopped:
            raise InputError(f"{'tests' if self.tests else 'function'}: {stopped}", "correct the case") from stopped
        if not any(isinstance(node, ast.Name | ast.Import | ast.ImportFrom) for node in ast.walk(program)):
            raise InputError("tests: they use nothing that an answer defines", "call the answer in the tests")

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:  # noqa: ARG002  a case names none
        """Judge a program, which has `timeout_s` once its process stands."""
        asked = {"program": answer, "tests": self.tests, "function": self.function}
        try:
            readable(answer)
            reply = _run({**asked, "args": [args for args, _ in self.calls]}, timeout_s)
        except Stopped as stopped:
            return stopped.verdict
        results, kind = reply.get("results"), reply.get("kind")
        if self.calls and isinstance(results, list) and len(results) == len(self.calls):
            pairs = zip(self.calls, results, strict=True)
            found = ((args, difference(one, expected)) for (args, expected), one in pairs)
            faults = (f"{self._call(args)}: {fault}" for args, fault in found if fault)
            fault = next(faults, "")
            return Grade("wrong" if fault else "correct", fault)
        if kind not in ("empty", "invalid", "wrong", "refused", "too_large") and (self.calls or kind != "correct"):
            return Grade("refused", "its process says what nothing asked for")
        return Grade(kind, str(reply.get("why", "")))

    def result_key(self, answer: str, file: Path | None, timeout_s: float) -> Hashable:  # noqa: ARG002
        """Return the program without comments and spacing: what it gives no one knows without the tests."""
        readable(answer)
        with suppress(RecursionError):
            return ast.dump(_parsed(answer))
        return None


def _run(asked: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """Return what the child says, which an answer may have forged. Raises `Stopped` where it says nothing."""
    nonce, words = secrets.token_hex(16), [sys.executable, "-I", "-S", str(CHILD)]
    readable = [sys.prefix, sys.base_prefix, str(CHILD)]
    output, status, _ = run_program(words, readable, timeout_s, {}, asked=json.dumps({**asked, "nonce": nonce}))
    if not output.startswith("ready\n"):
        raise EnvironmentProblem(f"{sys.executable} does not start under its limits", "expert-cli doctor")
    said = [line.removeprefix(nonce) for line in output.splitlines() if line.startswith(nonce)]
    if not said and status < 0:
        raise Stopped("too_large", "its process ended: out of memory, or of its stack")
    try:
        reply = json.loads(said[0]) if said else {"kind": "wrong", "why": "its process ended before the tests did"}
    except (ValueError, RecursionError):
        reply = {}
    return reply if isinstance(reply, dict) else {}


def _parsed(program: str) -> ast.Module:
    """Return a program. Raises `Stopped`, which says why a text is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(program)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Stopped("invalid", str(error) or "it is nested too deep") from error
