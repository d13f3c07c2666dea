"""Runs a Python answer and its tests in two processes of their own, behind walls: what the answer does to its process, the
tests do not notice. They are joined by two pipes; the verdict comes over a third, which only the tests hold.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers.sandbox.isolation import (
    MEMORY_BYTES,
    namespace_isolation,
    require_ready,
    shut_in,
    start,
)
from expert_cli.evaluation.verifiers.sandbox.python_pair.peer import ENDED
from expert_cli.utils.subprocesses import LineProcess

MAX_RESULT_BYTES = 65_536
_FOLDER = Path(__file__).parent
_START = """
import sys, types
name = ""
for part in sys.argv[1].split("."):
    name = f"{name}.{part}".strip(".")
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
sys.modules[name].__path__ = [sys.argv[2]]
__import__(f"{name}.{sys.argv[3]}", fromlist=["main"]).main()
"""
"""Imports a module of this folder and nothing above it, which cannot be read from behind the walls."""


def judged(prefix: str, answer: str, tests: str, timeout_s: float) -> Grade:
    """Run `tests` with what `prefix` + `answer` defines. Raises EnvironmentProblem (Python does not start behind walls)."""
    with _pair(int(timeout_s) + 10) as (of_answer, of_tests, to_answer, to_tests):
        # The tests first: what comes after them comes from the answer.
        _write(to_tests, {"prefix": prefix, "tests": tests})
        _write(to_answer, {"prefix": prefix, "answer": answer})
        try:
            line = of_tests.receive(timeout_s, MEMORY_BYTES)
        except TimeoutError:
            return Grade("timeout", f"it ran for more than {timeout_s:g} s")
        except MemoryError:
            return Grade("too_large", "the tests took more memory than allowed")
        reply = json.loads(line or '{"kind": "too_large", "why": "the process of the tests ended"}')
        if reply["kind"] != "gone":
            return Grade(reply["kind"], reply["why"])
        if reply["why"] == ENDED and _status(of_answer) < 0:
            return Grade("too_large", "its process ended: out of memory, or of its stack")
        return Grade("wrong" if reply["why"] == ENDED else "refused", reply["why"])


@contextmanager
def _pair(cpu_s: int) -> Iterator[tuple[LineProcess, LineProcess, int, int]]:
    """Start both in an empty folder; with them, the ends of their pipes by which they are told what to run."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="expert-cli-", ignore_cleanup_errors=True))
        (from_tests, to_answer), (from_answer, to_tests) = os.pipe(), os.pipe()
        children = [
            _started("of_answer", folder, cpu_s, (from_tests, to_tests)),
            _started("of_tests", folder, cpu_s, (from_answer, to_answer)),
        ]
        os.close(from_tests)
        os.close(from_answer)
        for child in children:
            stack.callback(child.kill)
        for child in children:
            require_ready(child, "ready", f"{sys.executable} does not start under its limits", "expert-cli doctor")
        yield children[0], children[1], to_answer, to_tests


def _started(module: str, folder: str, cpu_s: int, streams: tuple[int, int]) -> LineProcess:
    program = [sys.executable, "-I", "-S", "-c", _START, __package__, str(_FOLDER), module]
    readable = [sys.prefix, sys.base_prefix, str(_FOLDER)]
    command = [*namespace_isolation(), *shut_in(program, readable, cpu_s)]
    return start(command, folder, MAX_RESULT_BYTES, streams)


def _write(end: int, program: dict[str, Any]) -> None:
    with suppress(OSError), os.fdopen(end, "wb") as pipe:
        pipe.write(json.dumps(program).encode() + b"\n")


def _status(process: LineProcess) -> int:
    """The exit status of a process that has closed its streams, negative for a signal, as far as it ends by itself."""
    with suppress(TimeoutError):
        while process.receive(1.0):
            pass
    return process.kill()
