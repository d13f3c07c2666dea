"""TypeScript answers are compiled and run; whatever they try, nothing is harmed and each gets a verdict."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from expert_cli.evaluation.verifiers import node, typescript
from expert_cli.evaluation.verifiers.node import Node, find_node, find_typescript
from expert_cli.evaluation.verifiers.typescript import MAX_BYTES, MAX_DEPTH, check, parse_fault

ROOT = Path(__file__).parents[4]
DATA = ROOT / "experts" / "expert-typescript" / "datasets" / "valid.jsonl"
TESTS = 'import { deepStrictEqual } from "node:assert";\ndeepStrictEqual(f(2), 4);\ndeepStrictEqual(f(3), 6);'
GOOD = "const f = (n: number): number => 2 * n;"

compiled = pytest.mark.skipif(
    find_node() is None or find_typescript() is None,
    reason="answers were only parsed: node or the npm package typescript is missing",
)

JUDGED: dict[str, tuple[str, str]] = {
    "right": (GOOD, "correct"),
    "function": ("function f(n: number): number { return n + n; }", "correct"),
    "exported": ("export const f = (n: number): number => n << 1;\nexport default f;", "correct"),
    "implicit any": ("const f = (n) => 2 * n;", "correct"),
    "modules that do nothing outside": (
        'import { EventEmitter } from "node:events";\nimport * as util from "util";\nconst { format } = require("util");\n'
        f'util.format("%d", 1);\nformat("");\nnew EventEmitter().emit("a");\n{GOOD}',
        "correct",
    ),
    "what node gives": (
        "const bytes: Buffer = Buffer.from('a');\nconst later: NodeJS.Timeout = setTimeout(() => bytes, 1);\n"
        f"console.log(process.env.HOME, new URL('http://a.b/c').host, structuredClone([1]), performance.now());\n{GOOD}",
        "correct",
    ),
    "waits at the top": ("const two = await Promise.resolve(2);\nconst f = (n: number) => two * n;", "correct"),
    "other result": ("const f = (n: number): number => n * n;", "wrong"),
    "throws": ("const f = (n: number): number => { throw new Error('no'); };", "wrong"),
    "type error": ("const f = (n: number): string => 2 * n;", "invalid"),
    "type error in the tests": ("const f = (n: string): number => 4;", "invalid"),
    "forms that tree-sitter does not know": (
        f"type A<in out T> = {{ a: T }};\nexport type B = A<1>;\n{GOOD}",
        "correct",
    ),
    "unknown name": ("const f = (n: number) => double(n);", "invalid"),
    "other name": ("const g = (n: number) => 2 * n;", "invalid"),
    "unknown package": (f"import _ from 'lodash';\n_.a();\n{GOOD}", "invalid"),
    "python": ("def f(n):\n    return 2 * n", "invalid"),
    "words": ("The function doubles its argument.", "invalid"),
    "nothing": ("", "empty"),
    "blanks": (" \n\t", "empty"),
    "a comment": ("// f doubles\n/* its argument */", "empty"),
}


@compiled
@pytest.mark.parametrize(("answer", "kind"), JUDGED.values(), ids=JUDGED)
def test_answers_are_run(answer: str, kind: str) -> None:
    assert check(answer, TESTS, timeout_s=5).kind == kind


# What a model may write to get through or to break the judge. {port}: a server that must not be reached. {folder}: one
# that must stay as it is.
HOSTILE: dict[str, tuple[str, set[str]]] = {
    # to pass without being right
    "leaves": ("process.exit(0);", {"refused"}),
    "leaves through the module": ("import process from 'node:process'; process.exit(0);", {"refused"}),
    "leaves when asked": ("const f = (n: number): number => process.reallyExit(0);", {"wrong"}),
    "returns at the top": ("return;", {"invalid"}),
    "never comes to the tests": ("await new Promise(() => undefined);", {"wrong"}),
    "opens a comment": ("/*", {"invalid"}),
    "opens a text": ("const text = `", {"invalid"}),
    "opens a block": ("if (false) {", {"invalid"}),
    "leaves an if open": ("if (false)", {"invalid"}),
    "its own assert": (f"const deepStrictEqual = () => undefined;\n{GOOD}", {"invalid"}),
    "changes assert": (
        "import assert from 'node:assert'; assert.deepStrictEqual = () => undefined; const f = (n: number) => 0;",
        {"wrong"},
    ),
    "changes assert's prototype": (
        "import assert from 'assert'; Object.setPrototypeOf(assert, {}); const f = (n: number) => 0;",
        {"wrong"},
    ),
    "changes the language": ("Object.is = () => true; const f = (n: number) => 0;", {"wrong"}),
    "says that it passed": ("console.log(JSON.stringify({ kind: 'correct' })); const f = (n: number) => 0;", {"wrong"}),
    "writes that it passed": ("process.stdout.write('ready\\n{}\\n'); const f = (n: number) => 0;", {"wrong"}),
    "looks for the judge": ("const f = (n: number) => eval('secret');", {"refused"}),
    "no type check": ("// @ts-nocheck\nconst f = (n: number): number => '4';", {"wrong"}),
    "throws nothing": ("throw null;", {"wrong"}),
    "throws a trap": ("throw new Proxy(new Error(''), { get() { for (;;); } });", {"timeout", "wrong"}),
    "throws later": (f"setTimeout(() => {{ throw new Error('late'); }}, 20);\n{GOOD}", {"wrong"}),
    "rejects later": (f"Promise.reject(new Error('late'));\n{GOOD}", {"wrong"}),
    # files, network, processes
    "reads a file": ("import { readFileSync } from 'fs'; readFileSync('/etc/passwd');", {"refused"}),
    "writes a file": ("require('node:fs').writeFileSync('{folder}/harmed', '');", {"refused"}),
    "a module by a made-up name": ("require(['f', 's'].join('')).writeFileSync('{folder}/harmed', '');", {"refused"}),
    "a module later": ("const m: any = await import('node:' + 'fs'); m.rmSync('{folder}');", {"refused"}),
    "a module as a global": ("(globalThis as any).fs.writeFileSync('{folder}/harmed', '');", {"wrong"}),
    "a module of the module": ("(globalThis as any).module.constructor._load('fs');", {"wrong"}),
    "code from text": ("new Function('return import(\"node:fs\")')();", {"refused"}),
    "code from text, by the back door": ("(() => 0).constructor('return process')();", {"refused", "invalid"}),
    "native bindings": ("process.binding('fs');", {"wrong"}),
    "a file of the machine as a type": (f'/// <reference path="/etc/passwd" />\n{GOOD}', {"correct", "invalid"}),
    "a file of the machine as a module": ("import a from '/etc/hostname'; a();", {"invalid"}),
    "a process": ("import { execSync } from 'child_process'; execSync('touch {folder}/harmed');", {"refused"}),
    "a fork bomb": ("for (;;) require('child_process').fork(__filename);", {"refused", "invalid"}),
    "threads": ("import { Worker } from 'worker_threads'; for (;;) new Worker('', { eval: true });", {"refused"}),
    "a cluster": ("import cluster from 'node:cluster'; for (;;) cluster.fork();", {"refused"}),
    "kills the judge": ("process.kill(-1, 'SIGKILL');", {"refused"}),
    "a connection": ("import net from 'net'; net.connect({port}, '127.0.0.1');", {"refused"}),
    "a request": ("await fetch('http://127.0.0.1:{port}/');", {"wrong"}),
    "a socket of the web": ("new WebSocket('ws://127.0.0.1:{port}/');", {"wrong"}),
    "a module from afar": ("await import('http://127.0.0.1:{port}/a.js' as string);", {"invalid"}),
    # time and memory
    "a loop": ("for (;;);", {"timeout"}),
    "a loop of promises": ("(async () => { for (;;) await null; })();", {"timeout"}),
    "a timer for ever": (f"setInterval(() => undefined, 10);\n{GOOD}", {"timeout"}),
    "a slow pattern": (f"/^(a+)+$/.test('a'.repeat(40) + 'b');\n{GOOD}", {"timeout"}),
    "recursion": ("const f = (n: number): number => f(n + 1);", {"wrong"}),
    "a gigabyte of text": ("Buffer.alloc(2 ** 30, 120).toString('latin1');", {"too_large"}),
    "a text too long": ("let a = 'x'; for (;;) a += a;", {"too_large"}),
    "much memory": ("const a: any[] = []; for (;;) a.push(new Array(1e5).fill(1));", {"too_large"}),
    "much memory outside the heap": (
        "const a: any[] = []; for (;;) a.push(new Uint8Array(1e8).fill(1));",
        {"too_large"},
    ),
    "much output": (
        "for (let i = 0; i < 1e5; i++) console.log('x'.repeat(1000)); const f = (n: number) => 0;",
        {"wrong"},
    ),
    "a long complaint": ("throw new Error('\\u0007x'.repeat(1e6));", {"wrong"}),
    "types for ever": ("type A<T> = { a: A<A<T>> }; const a: A<1> = 1 as A<2>;", {"invalid"}),
    "types without number": (
        "type D = 0|1|2|3|4|5|6|7|8|9; type M = `${D}${D}${D}${D}${D}${D}`; const m: M = '';",
        {"invalid"},
    ),
    # texts
    "control characters": ("const f = \x00\x1b[2J(n: number) => 2 * n;", {"invalid"}),
    "half a surrogate pair": ("const f = '\ud800';", {"invalid"}),
    "brackets": ("(" * 200_000, {"invalid", "too_large"}),
    "brackets, closed": ("[" * 5_000 + "]" * 5_000 + ";", {"too_large"}),
    "a long sum": ("const s = " + "1+" * 50_000 + "1;", {"too_large"}),
    "a megabyte of comment": ("/*" + "x" * (MAX_BYTES - 500) + "*/\nconst f = (n: number) => 0;", {"wrong"}),
    "more than a megabyte": ("//" + "x" * MAX_BYTES, {"too_large"}),
}


@pytest.fixture(scope="module")
def connections() -> Iterator[tuple[int, list[str]]]:
    """A server's port, and what was heard on it."""
    heard: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        over = threading.Event()

        def listen() -> None:
            while not over.is_set():
                try:
                    connection, address = server.accept()
                except TimeoutError:
                    continue
                heard.append(str(address))
                connection.close()

        thread = threading.Thread(target=listen)
        thread.start()
        yield server.getsockname()[1], heard
        over.set()
        thread.join()


@compiled
@pytest.mark.parametrize(("answer", "kinds"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_answers_get_a_verdict(
    answer: str, kinds: set[str], tmp_path: Path, connections: tuple[int, list[str]]
) -> None:
    port, heard = connections
    (tmp_path / "canary").write_text("alive", encoding="utf-8")
    answer = answer.replace("{port}", str(port)).replace("{folder}", tmp_path.as_posix())
    if " f =" not in answer and "invalid" not in kinds:
        answer = f"{answer}\n{GOOD}"
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    verdict = check(answer, TESTS, timeout_s=0.7 if kinds & {"timeout"} else 10)
    assert verdict.kind in kinds, verdict
    assert verdict.detail.isprintable()
    assert len(verdict.detail) <= 200
    assert heard == []
    assert [path.name for path in tmp_path.iterdir()] == ["canary"]
    # The compiler's process stays, or is a new one; no program's does.
    assert len({child.pid for child in psutil.Process().children(recursive=True)} - before) <= 1


@compiled
def test_the_program_sees_no_global_that_reaches_outside() -> None:
    seen = "const seen = bad.filter((name) => (globalThis as any)[name] !== undefined);"
    bad = ["fs", "net", "http", "os", "vm", "child_process", "worker_threads", "module", "fetch", "WebSocket", "secret"]
    tests = 'import { deepStrictEqual } from "node:assert";\ndeepStrictEqual(seen, []);'
    assert check(f"const bad: string[] = {json.dumps(bad)};\n{seen}", tests, timeout_s=5).passed


@compiled
def test_even_a_program_that_gets_at_the_files_is_kept_from_them(
    tmp_path: Path,
) -> None:
    canary = tmp_path / "canary"
    canary.write_text("alive", encoding="utf-8")
    for act in (f"require('fs').readFileSync('{canary.as_posix()}')", "require('child_process').execSync('true')"):
        request = {"code": act, "typescript": False, "allowed": ["fs", "child_process"]}
        found = find_node()
        assert found is not None
        assert typescript._run(found, request, 5).kind == "refused"


@compiled
@pytest.mark.skipif(not node._walls(), reason="this system cannot shut a process off from the network")
def test_even_a_program_that_gets_at_the_network_reaches_nobody(connections: tuple[int, list[str]]) -> None:
    port, heard = connections
    act = f"await new Promise((_, no) => require('net').connect({port}, '127.0.0.1', () => no('open')).on('error', no))"
    found = find_node()
    assert found is not None
    verdict = typescript._run(found, {"code": act, "typescript": False, "allowed": ["net"]}, 5)
    assert verdict.kind == "wrong"
    assert "ENETUNREACH" in verdict.detail
    assert heard == []


@compiled
def test_the_committed_rows_pass_and_fail_when_their_tests_are_turned_round() -> None:
    rows = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()][::40]
    for row in rows:
        assert check(row["output"], row["test"], timeout_s=10).passed
        turned = row["test"] + '\nimport { fail } from "node:assert";\nfail("turned round");'
        assert check(row["output"], turned, timeout_s=10).kind == "wrong"


@compiled
def test_what_tests_and_answer_share_cannot_be_changed() -> None:
    answer = "import assert from 'assert';\nassert.deepStrictEqual = () => undefined;\nconst f = (n: number) => 0;"
    verdict = check(answer, "import same from 'assert';\nsame.deepStrictEqual(f(2), 4);", timeout_s=5)
    assert verdict.kind == "wrong"
    assert "read only" in verdict.detail


@pytest.mark.parametrize("compiler", [pytest.param(True, marks=compiled), False])
def test_the_tests_do_not_close_what_the_answer_opens(compiler: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiler:
        monkeypatch.setattr(typescript, "find_typescript", lambda: None)
    for opened, tests in (
        ("/*", f"{TESTS}\n/* end */"),
        ("const t = `", f"{TESTS}\n`;"),
        ("if (false) {", f"{TESTS}}}"),
    ):
        assert check(f"const f = (n: number) => 0;\n{opened}", tests, timeout_s=5).kind == "invalid"


@compiled
def test_an_answer_may_continue_what_the_case_begins() -> None:
    prefix = "import * as math from 'mathjs'\nconst f = function (n: number): number {\n"
    assert check("  return 2 * n;\n}", TESTS, prefix=prefix, timeout_s=5).passed
    assert check("  return n;\n}", TESTS, prefix=prefix, timeout_s=5).kind == "wrong"
    verdict = check("  return '';\n}", TESTS, prefix=prefix, timeout_s=5)
    assert verdict.detail.startswith("line 1: TS2322")
    assert check("  return math.add(n, n);\n}", TESTS, prefix=prefix, timeout_s=5).kind == "invalid"


@compiled
def test_without_tests_an_answer_must_compile_and_end() -> None:
    assert check("type A = { a: number };", None, timeout_s=5).passed
    assert check("const a: A = 1;", None, timeout_s=5).kind == "invalid"
    assert check("throw new Error('no');", None, timeout_s=5).kind == "wrong"


@compiled
def test_the_compiler_comes_back_after_it_was_ended() -> None:
    found = find_node()
    assert found is not None
    typescript._checker(found).stop()
    assert check(GOOD, TESTS, timeout_s=5).passed


def test_without_node_no_answer_is_correct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typescript, "find_node", lambda: None)
    verdict = check(GOOD, TESTS, timeout_s=5)
    assert verdict.kind == "parsed_only"
    assert not verdict.passed
    assert verdict.detail == "only parsed: Node.js 20 or later is missing"
    assert check("const f = (", TESTS, timeout_s=5).kind == "invalid"


def test_without_a_compiler_an_old_node_parses_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typescript, "find_node", lambda: Node("node", (20, 19)))
    monkeypatch.setattr(typescript, "find_typescript", lambda: None)
    assert check(GOOD, TESTS, timeout_s=5).kind == "parsed_only"


@pytest.mark.skipif(
    (find_node() or Node("", (0, 0))).version < (22, 13), reason="this node cannot run TypeScript by itself"
)
def test_without_a_compiler_a_new_node_runs_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typescript, "find_typescript", lambda: None)
    verdict = check(GOOD, TESTS, timeout_s=5)
    assert verdict.passed
    assert verdict.detail.startswith("not type-checked")
    assert check("const f = (n: number): number => n;", TESTS, timeout_s=5).kind == "wrong"


@pytest.mark.parametrize(
    ("version", "strips", "flag"),
    [
        ((20, 0), False, "--experimental-permission"),
        ((22, 12), False, "--experimental-permission"),
        ((22, 13), True, "--permission"),
        ((23, 1), False, "--experimental-permission"),
        ((23, 5), True, "--permission"),
        ((26, 0), True, "--permission"),
    ],
)
def test_what_a_node_of_a_version_can_do(version: tuple[int, int], strips: bool, flag: str) -> None:
    found = Node("node", version)
    assert (found.strips_types, found.permission_flags) == (strips, [flag])


def test_parsing_takes_no_longer_than_the_text() -> None:
    start = time.process_time()
    for text in ("(" * 300_000, "a" * 300_000, "<" * 300_000, "`${" * 100_000, "1+" * 100_000 + "1"):
        parse_fault(text)
    assert time.process_time() - start < 20
    assert parse_fault("[" * (MAX_DEPTH // 4) + "]" * (MAX_DEPTH // 4)) == ""
