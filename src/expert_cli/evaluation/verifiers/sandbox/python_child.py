"""Runs one Python answer: `python -I -S python_child.py` in the sandbox reads a line of JSON and writes the verdict as a line.

{"program", "tests", "function", "args", "nonce"}: the tests run with the answer's names, and the nonce is written after them.
Without tests, the function is called with each of the args. The answer's own output is discarded.
"""

from __future__ import annotations

import io
import json
import os
import sys
import traceback
import types
from collections.abc import Mapping
from typing import Any


def main() -> None:
    """Write "ready", read the answer and the tests or calls, and write the verdict."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    print("ready", file=out, flush=True)
    asked = json.loads(sys.stdin.readline())
    sys.stdin, sys.stdout, sys.stderr = io.StringIO(), io.StringIO(), io.StringIO()
    reply = judged(asked)
    print(f"\n{asked['nonce']}{json.dumps(reply)}", file=out, flush=True)
    os._exit(0)


def judged(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"kind", "why"} for tests, {"results"} for calls."""
    answer = sys.modules["answer"] = types.ModuleType("answer")
    try:
        code = compile(asked["program"], "answer", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return {"kind": "invalid", "why": told(error)}
    try:
        exec(code, vars(answer))  # noqa: S102
        if not asked["tests"]:
            function = eval(asked["function"], vars(answer))  # noqa: S307  of the case: a name, or Solution().name
            # a result that is not JSON is wrong; a later call may change one that is
            return {"results": [json.loads(json.dumps(function(*args))) for args in asked["args"]]}
        run_tests(asked["tests"], answer)
    except MemoryError:
        return {"kind": "too_large", "why": "it took more memory than allowed"}
    except PermissionError as error:
        return {"kind": "refused", "why": told(error)}
    except BaseException as error:  # noqa: BLE001  SystemExit, too
        lacks = isinstance(error, NameError | ImportError) and not told(error).startswith("tests")
        return {"kind": "invalid" if lacks else "wrong", "why": told(error)}
    return {"kind": "correct", "why": ""}


def run_tests(text: str, answer: types.ModuleType) -> None:
    """Run the tests, then the test functions and unittest cases that they define."""
    tests = types.ModuleType("tests")
    vars(tests).update({name: value for name, value in vars(answer).items() if not name.startswith("__")})
    exec(compile(text, "tests", "exec"), vars(tests))  # noqa: S102
    for name, value in list(vars(tests).items()):
        is_of_case = isinstance(value, types.FunctionType) and vars(answer).get(name) is not value
        waiting = value() if is_of_case and name.startswith("test") else None
        if isinstance(waiting, types.GeneratorType):
            list(waiting)
        if isinstance(waiting, types.CoroutineType):
            import asyncio  # takes longer than most tests

            asyncio.run(waiting)
    if unittest := sys.modules.get("unittest"):
        unittest.defaultTestLoader.loadTestsFromModule(tests).debug()


def told(error: BaseException) -> str:
    """Return the place in tests or answer where an error was raised, and its message."""
    frames = (frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in ("tests", "answer"))
    place = next((f"{frame.filename}, line {frame.lineno}: " for frame in frames), "")
    return place + traceback.format_exception_only(error)[-1].strip()


if __name__ == "__main__":
    main()
