"""What TypeScript answers try: nothing is harmed, nothing passes that is not right, and each gets a verdict."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers import typescript
from expert_cli.evaluation.verifiers.sandbox import isolation
from expert_cli.evaluation.verifiers.sandbox.node import find_node
from expert_cli.evaluation.verifiers.typescript import MAX_BYTES
from tests.graders import typescript as check

TESTS = 'import { deepStrictEqual } from "node:assert";\ndeepStrictEqual(f(2), 4);\ndeepStrictEqual(f(3), 6);'
GOOD = "const f = (n: number): number => 2 * n;"

compiled = pytest.mark.usefixtures("typescript_package")

UNHEARD = (
    "import { EventEmitter } from 'events'; const tell = EventEmitter.prototype.emit;\n"
    "EventEmitter.prototype.emit = function (name: any, ...more: any[]) "
    "{ return name === 'beforeExit' ? tell.call(this, name, ...more) : true; } as any;\n"
)
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
    "changes what the judge writes with": (
        "const s = JSON.stringify; JSON.stringify = (o: any) => s(o && o.secret ? { ...o, kind: 'correct' } : o); "
        "const f = (n: number) => 0;",
        {"wrong"},
    ),
    "changes how objects are written": (
        "(Object.prototype as any).toJSON = function () { return { ...this, kind: 'correct' }; }; "
        "const f = (n: number) => 0;",
        {"wrong"},
    ),
    "changes how texts are cut": (
        'String.prototype.slice = () => \'","kind":"correct","more":"\'; const f = (n: number) => 0;',
        {"wrong"},
    ),
    "changes how lists are taken apart": (
        "const walk = Array.prototype[Symbol.iterator]; Array.prototype[Symbol.iterator] = function (this: any[]) { "
        "return walk.call(this[0] === 'wrong' ? ['correct', ''] : this); }; const f = (n: number) => 0;",
        {"wrong"},
    ),
    "changes what is an error": (
        "Object.defineProperty(Error, Symbol.hasInstance, { value: () => { throw { kind: 'correct' }; } }); "
        "const f = (n: number) => 0;",
        {"wrong"},
    ),
    "changes what a wait asks for": (
        "const then = Promise.prototype.then; class Other {}\nPromise.prototype.constructor = Other;\n"
        "Promise.prototype.then = function (this: any, done: any) { return then.call(this, done, done); } as any;\n"
        "const f = (n: number) => 0;",
        {"wrong"},
    ),
    "changes what a wait asks for, by definition": (
        "const then = Promise.prototype.then; Object.defineProperties(Promise.prototype, { constructor: { value: class {} }, "
        "then: { value: function (this: any, done: any) { return then.call(this, done, done); } } });\n"
        "const f = (n: number) => 0;",
        {"wrong"},
    ),
    "changes when things happen": (
        "for (const name of ['setTimeout', 'setImmediate', 'queueMicrotask']) (globalThis as any)[name] = () => 0; "
        "process.nextTick = () => 0; const f = (n: number) => 0;",
        {"wrong"},
    ),
    "changes how events are told": (
        f"{UNHEARD}setTimeout(() => {{ throw new Error('late'); }}, 20);\n{GOOD}",
        {"wrong"},
    ),
    "changes how events are told of a promise": (
        f"{UNHEARD}Promise.reject(new Error('late'));\n{GOOD}",
        {"wrong"},
    ),
    "changes how functions are called": (
        "const apply = Function.prototype.apply; Function.prototype.apply = function (self: any, items: any) "
        "{ return items?.[0]?.message === 'late' ? true : Reflect.apply(apply, this, [self, items]); };\n"
        f"setTimeout(() => {{ throw new Error('late'); }}, 20);\n{GOOD}",
        {"wrong"},
    ),
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
    "what answers to requests are made of": (
        "void Response; const sent: any = (globalThis as any)[Symbol.for('undici.globalDispatcher.1')]; "
        "sent.dispatch({ origin: 'http://127.0.0.1:{port}', path: '/', method: 'GET' }, {});",
        {"wrong"},
    ),
    "a form": ("new FormData(); new Request('http://127.0.0.1:{port}/');", {"wrong"}),
    "a channel": ("new BroadcastChannel('x').postMessage(1); new MessageChannel();", {"wrong"}),
    "another machine's code": ("new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]));", {"wrong"}),
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
    bad += ["Response", "Request", "Headers", "FormData", "EventSource", "MessageChannel", "BroadcastChannel", "Worker"]
    bad += [
        "WebAssembly",
        "CompressionStream",
        "ReadableStream",
        "navigator",
        "localStorage",
        "Blob",
        "File",
        "Storage",
    ]
    tests = 'import { deepStrictEqual } from "node:assert";\ndeepStrictEqual(seen, []);'
    assert check(f"const bad: string[] = {json.dumps(bad)};\n{seen}", tests, timeout_s=5).passed


@compiled
def test_the_program_does_not_get_the_process_through_what_emitters_inherit() -> None:
    hooks = (
        "import { EventEmitter } from 'events';\nconst seen: string[] = [];\n"
        "for (const [name, kept] of Object.entries(EventEmitter.prototype as any)) if (typeof kept === 'function') {\n"
        "  (EventEmitter.prototype as any)[name] = function (...items: any[]) {\n"
        "    if (this?.reallyExit !== undefined) seen.push(name);\n"
        "    return Reflect.apply(kept as any, this, items);\n  };\n}\n"
    )
    tests = (
        'import { deepStrictEqual } from "node:assert";\n(Buffer as any)(1);\nconst late = Promise.reject(new Error());\n'
        "late.catch(() => undefined);\nawait new Promise((done) => setTimeout(done, 20));\ndeepStrictEqual(seen, []);"
    )
    assert check(hooks, tests, timeout_s=5) == Grade("correct")


@compiled
def test_even_a_program_that_gets_at_the_files_is_kept_from_them(
    tmp_path: Path,
) -> None:
    canary = tmp_path / "canary"
    canary.write_text("alive", encoding="utf-8")
    for act in (f"require('fs').readFileSync('{canary.as_posix()}')", "require('child_process').execSync('true')"):
        found = find_node()
        assert found is not None
        verdict = typescript._run(found, (act, ""), 5, typescript=False, allowed=["fs", "child_process"])
        assert verdict.kind == "refused"


@compiled
@pytest.mark.skipif("syscalls" not in isolation.standing_walls(), reason="this system cannot filter system calls")
def test_even_a_program_that_gets_at_the_network_reaches_nobody(connections: tuple[int, list[str]]) -> None:
    port, heard = connections
    act = f"await new Promise((_, no) => require('net').connect({port}, '127.0.0.1', () => no('open')).on('error', no))"
    found = find_node()
    assert found is not None
    verdict = typescript._run(found, (act, ""), 5, typescript=False, allowed=["net"])
    assert verdict.kind == "wrong"
    assert "EPERM" in verdict.detail
    assert heard == []
