"""Runs one Python answer: `python -I -S python_child.py` behind walls. A line of JSON comes in, the verdict's line goes out.

{"program", "tests", "function", "args", "nonce"}: tests run where the answer's names are, and the nonce is written behind them;
without tests, what the function returns to each of the arguments. What the answer prints goes nowhere.
"""

from __future__ import annotations

import ast
import io
import json
import linecache
import os
import sys
import traceback
import types
from collections.abc import Mapping
from typing import Any


def main() -> None:
    """Say "ready", read what to run, and answer."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    print("ready", file=out, flush=True)
    asked = json.loads(sys.stdin.readline())
    sys.stdin, sys.stdout, sys.stderr = io.StringIO(), _Nowhere(), _Nowhere()
    reply = judged(asked)
    print(f"\n{asked['nonce']}{json.dumps(reply)}", file=out, flush=True)
    os._exit(0)


def judged(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"kind", "why"} of tests, {"results"} of calls."""
    answer = types.ModuleType("answer")
    sys.modules["answer"] = answer
    try:
        if not ast.parse(asked["program"]).body:
            return {"kind": "empty", "why": "no statement"}
        code = compile(asked["program"], "answer", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        return {"kind": "invalid", "why": f"{line}{type(error).__name__}: {getattr(error, 'msg', error)}"}
    try:
        exec(code, vars(answer))  # noqa: S102
        if not asked["tests"]:
            function = eval(asked["function"], vars(answer))  # noqa: S307  of the case: a name, or Solution().name
            results = [function(*args) for args in asked["args"]]
            json.dumps(results)  # what is no JSON is a wrong answer
            return {"results": results}
        run_tests(asked["tests"], answer)
    except MemoryError:
        return {"kind": "too_large", "why": "it took more memory than allowed"}
    except PermissionError as error:
        return {"kind": "refused", "why": told(error)}
    except BaseException as error:  # noqa: BLE001  SystemExit, too
        lacks = isinstance(error, NameError | ImportError) and told(error).startswith("answer")
        return {"kind": "invalid" if lacks else "wrong", "why": told(error)}
    return {"kind": "correct", "why": ""}


def run_tests(text: str, answer: types.ModuleType) -> None:
    """Run tests, and the functions and test cases among what they define."""
    tests = types.ModuleType("tests")
    vars(tests).update({name: value for name, value in vars(answer).items() if not name.startswith("__")})
    linecache.cache["tests"] = (len(text), None, text.splitlines(keepends=True), "tests")
    exec(compile(text, "tests", "exec"), vars(tests))  # noqa: S102
    for name, value in list(vars(tests).items()):
        if isinstance(value, types.FunctionType) and name.startswith("test") and name not in vars(answer):
            value()
    if unittest := sys.modules.get("unittest"):
        unittest.defaultTestLoader.loadTestsFromModule(tests).debug()


def told(error: BaseException) -> str:
    """Return the last line of the tests in an error's traceback, else that of the answer, and what the error says."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in ("tests", "answer")]
    last = max(enumerate(frames), key=lambda one: (one[1].filename == "tests", one[0]), default=(0, None))[1]
    place = f"{last.filename}, line {last.lineno}: {last.line or ''}" if last else "answer"
    return f"{place.removesuffix(': ')}: {''.join(traceback.format_exception_only(error)).strip()}"


class _Nowhere(io.TextIOBase):
    def write(self, text: str) -> int:
        return len(text)


if __name__ == "__main__":
    main()
