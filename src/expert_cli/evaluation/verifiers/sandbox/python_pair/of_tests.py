"""The process of a Python answer's tests: reads {"prefix", "tests"}, waits until the answer is loaded in a process of its own
(`of_answer.py`), runs the tests here, and writes {"kind", "why"} on stderr, which the answer has no part of.

Names that the tests use and nobody defines here are the answer's, but for those of Python itself and of what the case's
`prefix` holds before what it leaves unfinished: an answer changes neither the built-ins nor the case's own helpers. What is
meant to be the answer's `sum` is imported: `from answer import sum`.
"""

from __future__ import annotations

import ast
import builtins
import io
import json
import linecache
import os
import sys
import types
import warnings
from typing import Any, NoReturn

from expert_cli.evaluation.verifiers.sandbox.python_pair.of_answer import (
    RECURSION,
    fault,
    own_part,
    shared_classes,
    streams,
)
from expert_cli.evaluation.verifiers.sandbox.python_pair.operators import HANDLE
from expert_cli.evaluation.verifiers.sandbox.python_pair.peer import FORGED, Peer
from expert_cli.evaluation.verifiers.sandbox.python_pair.remote_types import RemoteType, judge

FAULTS = ("wrong", "empty", "invalid", "refused", "too_large")
"""What becomes of an answer that is not loaded."""


class TestsHost:
    """The side of the tests: what they hand over may be called, and of objects of their own classes all but what is private."""

    trusts = False

    def __init__(self) -> None:
        """Take stderr, which is nobody else's from now on."""
        self._verdict = os.dup(2)
        os.dup2(0, 2)
        sys.stderr = io.StringIO()

    def may(self, thing: Any, name: str, *, change: bool) -> bool:
        """Whether an attribute is one of an object of the tests; what they do is not changed."""
        kind = thing if isinstance(thing, type) else type(thing)
        if name.startswith("__"):
            return False
        if change:
            return type(thing).__module__ == "__main__" and not callable(getattr(kind, name, None))
        if kind.__module__ == "unittest.mock":  # how often it was called, and methods that set that, are the tests'
            return not name.startswith("_") and not hasattr(sys.modules["unittest.mock"].NonCallableMock, name)
        return kind.__module__ == "__main__" or kind in (io.StringIO, io.BytesIO)

    def failed(self, error: BaseException) -> None:
        """End where an assertion failed in what was handed over: the answer could hide it."""
        if isinstance(error, AssertionError):
            self.tell(*verdict(error))

    def stop(self, why: str, error: BaseException | None = None) -> NoReturn:
        """Tell what became of the answer's process."""
        if isinstance(error, MemoryError):
            self.tell("too_large", f"{error}" or "it ran out of memory")
        self.tell("gone" if error is None else "wrong", why)

    def printed(self) -> str:
        """Nothing: what the tests print is not for the answer."""
        return ""

    def tell(self, kind: str, why: str = "") -> NoReturn:
        """Write the verdict, and end."""
        os.write(self._verdict, json.dumps({"kind": kind, "why": why[:400]}).encode() + b"\n")
        os._exit(0)


def verdict(error: BaseException) -> tuple[str, str]:
    """Return what an error that ends the tests says of the answer: where, which line of the tests, and the error."""
    trace, line = error.__traceback__, 0
    while trace is not None:
        line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == "tests" else line
        trace = trace.tb_next
    named = isinstance(error, NameError | ImportError | MemoryError)
    kind = fault(error, 0)[0] if HANDLE in vars(error) or named else "wrong"
    try:
        text = str(error)
    except Exception as unsaid:  # noqa: BLE001  an object of the answer that is to be shown raises
        text = f"an object of the answer cannot be shown: {type(unsaid).__name__}"
    said = f"{type(error).__name__}: {text}" if text or not isinstance(error, AssertionError) else "does not hold"
    return kind, f"tests, line {line}: {linecache.getline('tests', line).strip()[:120]}: {said}" if line else said


class AnswerModule(types.ModuleType):
    """The module `answer`, for tests that import from it."""

    def __init__(self, peer: Peer) -> None:
        """Take the side that is asked."""
        super().__init__("answer")
        self.__dict__["peer"] = peer

    def __getattr__(self, name: str) -> Any:
        """Ask for a name."""
        if name.startswith("__"):
            raise AttributeError(name)
        value = self.__dict__["peer"].ask(0, "getattr", (name,))
        if isinstance(value, RemoteType) and name[0].isupper():
            judge(value)
        return value


def bind(space: dict[str, Any], tests: ast.Module, answer: AnswerModule) -> None:
    """Give the tests the answer's names that they use."""
    for name in dict.fromkeys(node.id for node in ast.walk(tests) if isinstance(node, ast.Name)):
        if name in space or hasattr(builtins, name) or name.startswith("__"):
            continue
        try:
            space[name] = getattr(answer, name)
        except Exception:  # noqa: BLE001, S112  what is not there is told by the line that uses it
            continue


def run(program: dict[str, str], peer: Peer) -> None:
    """Run the tests, also those that only stand in functions `test_...` and in test cases."""
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    space = vars(module)
    exec(compile(ast.Module(own_part(program["prefix"]), []), "prefix", "exec"), space)  # noqa: S102  the case's own
    peer.shared = shared_classes(program["prefix"], space)
    linecache.cache["tests"] = (0, None, program["tests"].splitlines(True), "tests")
    tests = ast.parse(program["tests"])
    answer = sys.modules["answer"] = AnswerModule(peer)
    bind(space, tests, answer)
    peer.exits = any(isinstance(node, ast.Name) and node.id == "SystemExit" for node in ast.walk(tests))
    try:
        exec(compile(tests, "tests", "exec"), space)  # noqa: S102  the case's own
    except SystemExit as error:
        if error.code or HANDLE in vars(error):
            raise AssertionError(f"the tests end with {error.code}") from error
    for name, function in [*space.items()]:
        if name.startswith("test") and isinstance(function, types.FunctionType) and not function.__code__.co_argcount:
            function()
    if "unittest" in sys.modules:
        from unittest import TextTestRunner, defaultTestLoader

        done = TextTestRunner(io.StringIO()).run(defaultTestLoader.loadTestsFromModule(module))
        for test, text in (*done.failures, *done.errors):
            raise AssertionError(f"{test.id()}: {text.strip().splitlines()[-1]}")


def main() -> None:
    """Wait for the answer, run the tests, tell."""
    sys.setrecursionlimit(RECURSION)
    reader, writer = streams()
    warnings.simplefilter("ignore")
    os.write(2, b"ready\n")
    host = TestsHost()
    program = json.loads(reader.readline())
    peer = Peer(reader, writer, host)
    loaded = peer.receive()
    if loaded != ["loaded"]:
        kind, why = loaded if len(loaded) == 2 else ("", "")
        host.tell(*((kind, str(why)) if kind in FAULTS else ("refused", FORGED)))
    try:
        run(program, peer)
    except BaseException as error:  # noqa: BLE001  whatever the tests raise
        host.tell(*verdict(error))
    host.tell("correct")
