"""A process that judges: it runs answers on what it was sent, and can be ended at any time.

`Worker` is the side of the parent; `main` runs in the process, a fresh interpreter with an empty environment. The two talk in
lines of JSON. Before the first question the process gives up what judging does not need: opening files, writing files, more
memory. One that was ended is replaced with the next question.
"""

from __future__ import annotations

import json
import os
import pkgutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from expert_cli.errors import InputError
from expert_cli.evaluation.verdict import Kind
from expert_cli.evaluation.verifiers.sandbox.isolation import Stopped, require_packages, require_ready, start
from expert_cli.utils.subprocesses import JsonLinesWorker, LineProcess

ADDRESS_SPACE_BYTES = 3 << 30
GRACE_S = 1.0
"""What keeps its own time limit answers within this; what does not is ended."""
Ask = Callable[[Mapping[str, Any], float], dict[str, Any]]


def interpreter(entry: str, *arguments: str) -> list[str]:
    """Return the command of a fresh interpreter that runs a function of this very package, "module:function"."""
    module, function = entry.split(":")
    code = "import sys; sys.path.insert(0, sys.argv[1]); import expert_cli; del sys.path[:1], sys.argv[1]; "
    code += f"from {module} import {function}; {function}()"
    return [sys.executable, "-I", "-c", code, str(Path(__file__).parents[4]), *arguments]


class Worker:
    """Processes that answer by one function of ours, as many as threads ask at once."""

    def __init__(
        self, entry: str, *packages: str, broken: Kind = "invalid", arguments: Callable[[], Sequence[Any]] = list
    ) -> None:
        """Start nothing yet. entry: "module:function" of this package; what it returns answers each question.

        broken: the verdict on an answer with which a process ends. arguments: of the function, for every process anew.
        """
        self._entry, self._packages, self._broken, self._arguments = entry, packages, broken, arguments
        self._processes = JsonLinesWorker(self._start)

    def _start(self) -> LineProcess:
        process = start(interpreter(f"{__name__}:main", self._entry), tempfile.gettempdir(), sys.maxsize)
        process.send(json.dumps(self._arguments()))
        return require_ready(process, "{}", "the process that judges answers does not start")

    @contextmanager
    def asked(self) -> Iterator[Ask]:
        """Give what asks one process with a question and its time. It raises `Stopped` where an answer is at fault, InputError
        where a case is. Raises EnvironmentProblem where a package is missing, or no process starts.
        """
        require_packages(*self._packages)
        with self._processes.taken() as exchange:

            def ask(question: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
                try:
                    reply = exchange(question, timeout_s + GRACE_S)
                except TimeoutError as error:
                    raise Stopped("timeout", f"not done after {timeout_s:g} s") from error
                except EOFError as error:
                    raise Stopped(self._broken, f"the engine broke off (exit code {error})") from error
                if "stopped" in reply:
                    raise Stopped(*reply["stopped"])
                if "fault" in reply:
                    raise InputError(*reply["fault"])
                return reply

            yield ask


def main() -> None:
    """Answer a line with a line until stdin ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # an engine that prints must not be taken for a reply
    answer = pkgutil.resolve_name(sys.argv[1])(*json.loads(sys.stdin.readline()))
    set_rlimits(getattr(answer, "sockets", 0))
    print("{}", file=replies, flush=True)
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Stopped as stopped:
            reply = {"stopped": [stopped.kind, stopped.detail]}
        except InputError as error:
            reply = {"fault": [error.message, error.hint]}
        print(json.dumps(reply), file=replies, flush=True)


def set_rlimits(sockets: int = 0) -> None:
    """Set what limits the system has: no further file but so many sockets, no byte written to one, no core, bounded memory."""
    try:
        import resource
    except ImportError:  # Windows
        return
    lowest_free = os.dup(0)
    os.close(lowest_free)
    wanted = {"NOFILE": lowest_free + sockets, "FSIZE": 0, "CORE": 0, "AS": ADDRESS_SPACE_BYTES}
    for name, value in wanted.items():
        limit = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(limit)[1]
        if hard == resource.RLIM_INFINITY or value <= hard:
            resource.setrlimit(limit, (value, value))
