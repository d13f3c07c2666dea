"""The process of a Python answer: reads {"prefix", "answer"}, runs them as the module `answer`, and does what the process of
the tests asks of it (`peer.py`). Nothing here is a secret, or decides anything: the program may do with its process what it
likes, and what it writes are values to the tests.
"""

from __future__ import annotations

import ast
import errno
import io
import json
import os
import sys
import types
import warnings
from contextlib import suppress
from typing import Any, BinaryIO, NoReturn

from expert_cli.evaluation.verifiers.sandbox.python_pair.peer import Peer

RECURSION = 5_000
"""Calls within calls: structures are handed over by as many as they are deep."""
WALLS = (errno.EPERM, errno.EACCES, errno.EFBIG, errno.EROFS)
"""What the system answers where a wall stands."""


class AnswerHost:
    """The side of the answer: it may be asked for anything."""

    trusts = True

    def may(self, thing: Any, name: str, *, change: bool) -> bool:  # noqa: ARG002
        """Everything."""
        return True

    def failed(self, error: BaseException) -> None:
        """Nothing."""

    def stop(self, why: str, error: BaseException | None = None) -> NoReturn:  # noqa: ARG002
        """Leave: the tests have come to an end."""
        os._exit(0)

    def printed(self) -> str:
        """Return and forget what was printed."""
        stream = sys.stdout
        if not isinstance(stream, io.StringIO):
            return ""
        text = stream.getvalue()
        stream.seek(0)
        stream.truncate()
        return text


def streams() -> tuple[BinaryIO, BinaryIO]:
    """Return stdin and stdout, which are nobody else's from now on, and say on stderr that this process is ready."""
    reader, writer = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number in (0, 1):
        os.dup2(nothing, number)
    sys.stdin, sys.stdout, sys.argv = io.StringIO(), io.StringIO(), [""]
    return reader, writer


def fault(error: BaseException, skipped: int) -> tuple[str, str]:
    """Return what a program that does not come to its end counts as, and why. skipped: lines that stand before the answer."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == "answer" else line
        trace = trace.tb_next
    where = f"line {line - skipped}: " if line is not None and line > skipped else ""
    kind = "wrong"
    if isinstance(error, MemoryError | RecursionError):
        kind = "too_large"
    elif isinstance(error, OSError) and error.errno in WALLS:
        kind = "refused"
    elif isinstance(error, SyntaxError | NameError | ImportError):
        kind = "invalid"
    said = error.msg if isinstance(error, SyntaxError) else error
    return kind, f"{where}{type(error).__name__}: {said}"


def load(prefix: str, answer: str) -> tuple[types.ModuleType | None, list[str]]:
    """Run a program; return its module, and what to say of it: ["loaded"], or a kind and why."""
    warnings.simplefilter("ignore")
    module, skipped = types.ModuleType("answer"), prefix.count("\n")
    sys.modules["answer"] = module
    try:
        if not ast.parse(prefix + answer).body:
            return None, ["empty", "nothing but comments"]
        code = compile(prefix + answer, "answer", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return None, ["invalid", fault(error, skipped)[1]]
    except (MemoryError, RecursionError):
        return None, ["too_large", "it is nested too deep"]
    try:
        exec(code, vars(module))  # noqa: S102  that is what this process is for
    except SystemExit:
        return None, ["wrong", "it ended before its tests did"]
    except BaseException as error:  # noqa: BLE001  whatever a program raises
        return None, [*fault(error, skipped)]
    return module, ["loaded"]


def own_part(prefix: str) -> list[ast.stmt]:
    """Return the statements of a prefix that an answer does not continue, and its imports."""
    for ending in ("", "\n    pass", "    pass", "pass"):
        try:
            body = ast.parse(prefix + ending).body
        except SyntaxError:
            continue
        return body[:-1] + [one for one in body[-1:] if isinstance(one, ast.Import | ast.ImportFrom)]
    return []


def shared_classes(prefix: str, space: dict[str, Any]) -> dict[str, type]:
    """Return the classes of the prefix's own part by their names."""
    names = [one.name for one in own_part(prefix) if isinstance(one, ast.ClassDef)]
    return {name: one for name in names if isinstance(one := space.get(name), type)}


def main() -> None:
    """Load, and serve."""
    sys.setrecursionlimit(RECURSION)
    reader, writer = streams()
    os.write(2, b"ready\n")
    program = json.loads(reader.readline())
    module, said = load(program["prefix"], program["answer"])
    with suppress(OSError):
        writer.write(json.dumps(said).encode() + b"\n")
        writer.flush()
    if module is not None:
        peer = Peer(reader, writer, AnswerHost(), module)
        peer.shared = shared_classes(program["prefix"], vars(module))
        peer.serve()
