"""What TypeScript answers try: nothing is harmed, nothing passes that is not right, and each gets a verdict."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers import typescript
from expert_cli.evaluation.verifiers.sandbox import isolation
from expert_cli.evaluation.verifiers.sandbox.node import find_node
from expert_cli.evaluation.verifiers.typescript import MAX_BYTES
from tests.graders import typescript as check
from tests.processes import TYPESCRIPT_SERVERS, none_left

TESTS = 'import { deepStrictEqual } from "node:assert";\ndeepStrictEqual(f(2), 4);\ndeepStrictEqual(f(3), 6);'
GOOD = "const f = (n: number): number => 2 * n;"

compiled = pytest.mark.usefixtures("typescript_package")

# Texts too long for the rows of tests/unit/evaluation/hostile/typescript.jsonl.
LONG: dict[str, tuple[str, set[str]]] = {
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
def test_long_answers_get_a_verdict_and_leave_no_process() -> None:
    with none_left(*TYPESCRIPT_SERVERS):
        for name, (answer, kinds) in LONG.items():
            verdict = check(answer, TESTS, timeout_s=10)
            assert verdict.kind in kinds, (name, verdict)
            assert verdict.detail.isprintable()
            assert len(verdict.detail) <= 200


@compiled
def test_the_program_sees_no_global_that_reaches_outside() -> None:
    seen = "const seen = bad.filter((name) => (globalThis as any)[name] !== undefined);"
    bad = ["fs", "net", "http", "os", "vm", "child_process", "worker_threads", "fetch", "WebSocket", "secret"]
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
        "  Reflect.set(EventEmitter.prototype, name, function (this: any, ...items: any[]) {\n"
        "    if (this?.reallyExit !== undefined) seen.push(name);\n"
        "    return Reflect.apply(kept as any, this, items);\n  }, {});\n"
        "  try { (EventEmitter.prototype as any)[name] = 1; } catch { }\n}\n"
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
