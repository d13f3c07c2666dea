"""Judges Python answers. A case's `tests` run in the answer's own process, which a malicious answer can manipulate. The
results of `calls` are compared here: the sandboxed process gets the arguments, never the expected values.
"""

from __future__ import annotations

import ast
import json
import secrets
import sys
from collections.abc import Hashable
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, JsonValue, Strict

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.case import Case, Example, Grade, Stopped, readable
from expert_cli.evaluation.verifiers.json_schema import difference
from expert_cli.evaluation.verifiers.sandbox.child_process import reply_of, run_program

CHILD = Path(__file__).parent / "sandbox" / "python_child.py"


class PythonCase(Case):
    """`tests`, code that raises if the answer is wrong; or `function` and `calls`, which no answer can forge."""

    starts = "answer"
    fences = frozenset({"python", "py", "python3", "py3"})
    example = Example(
        {"prompt": "Double n.", "function": "f", "calls": [[[2], 4]]}, "def f(n): return 2 * n", "def f(n): return n"
    )

    tests: str = ""  # test functions and unittest cases in it are run
    function: str = ""  # the function to call: a name, or `Solution().name`
    # arguments and expected result of each call; a returned tuple counts as a list
    calls: list[Annotated[tuple[list[JsonValue], JsonValue], Strict(False)]] = Field(default=[])

    @property
    def criterion(self) -> str:
        """The tests or calls, as text for people."""
        return self.tests or f"{self.function}: {json.dumps(self.calls)}"

    @property
    def can_be_forged(self) -> bool:
        """Whether the tests run in the answer's own process."""
        return bool(self.tests)

    def require_sound(self) -> None:
        """Raise InputError unless the case has either tests or calls, and its tests are run."""
        if bool(self.tests) == bool(self.calls) or bool(self.calls) != bool(self.function):
            hint = 'write "tests", or "function" and "calls"'
            raise InputError("a case has either tests, or function and calls", hint)
        try:
            fault = _not_run(ast.parse(self.tests, "tests")) if self.tests else ""
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            fault = str(error) or "nested too deep"
        if fault:
            raise InputError(f"tests: {fault}", "write asserts, functions test_..., or classes of unittest.TestCase")

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:  # noqa: ARG002  a case names none
        """Run a program. The time limit begins when its process is ready."""
        asked: dict[str, Any] = {"program": answer, "tests": self.tests, "function": self.function}
        asked |= {"args": [args for args, _ in self.calls], "nonce": secrets.token_hex(16)}
        words, files = [sys.executable, "-I", "-S", str(CHILD)], [sys.prefix, sys.base_prefix, str(CHILD)]
        output, status, _ = run_program(words, files, timeout_s, {}, asked=json.dumps(asked))
        reply = reply_of(output, status, asked["nonce"])
        results, kind = reply.get("results"), reply.get("kind")
        if self.calls and isinstance(results, list):
            fault = difference(results, [result for _, result in self.calls])
            return Grade("wrong" if fault else "correct", fault)
        if kind not in ("invalid", "wrong", "refused", "too_large") and (self.calls or kind != "correct"):
            return Grade("refused", "its process says what nothing asked for")
        return Grade(kind, str(reply.get("why", "")))

    def result_key(self, answer: str, file: Path | None, timeout_s: float) -> Hashable:  # noqa: ARG002
        """Return the program without comments and layout, because its result is not known without tests."""
        readable(answer)
        try:
            return ast.dump(ast.parse(answer))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Stopped("invalid", str(error) or "it is nested too deep") from error


def _not_run(tests: ast.Module) -> str:
    """Return what in the tests nothing runs: a class for pytest, or all of it."""
    used, parts, runs = {one.id for one in ast.walk(tests) if isinstance(one, ast.Name)}, list[ast.AST]([tests]), False
    for part in parts:
        match part:
            case ast.ClassDef(name, []) if name[:4] == "Test" and name not in used and "def test" in ast.unparse(part):
                return f"nothing runs the class {name}"
            case ast.ClassDef(bases=bases):
                runs |= any("TestCase" in ast.unparse(base) for base in bases)
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                runs |= name.startswith("test")
            case ast.Lambda() | ast.If(ast.Compare(ast.Name("__name__"))):
                pass
            case _:
                runs |= isinstance(part, ast.Assert | ast.Call | ast.Raise)
                parts += ast.iter_child_nodes(part)
    return "" if runs else "nothing in them is run"
