"""TypeScript answers are compiled and run, and judged by their tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from expert_cli.evaluation.verifiers import typescript
from expert_cli.evaluation.verifiers.case import Grade
from expert_cli.evaluation.verifiers.typescript import TypescriptCase
from tests.graders import typescript as check

ROOT = Path(__file__).parents[4]
DATA = ROOT / "experts" / "expert-typescript" / "datasets" / "valid.jsonl"
TESTS = 'import { deepStrictEqual } from "node:assert";\ndeepStrictEqual(f(2), 4);\ndeepStrictEqual(f(3), 6);'
GOOD = "const f = (n: number): number => 2 * n;"

JUDGED: dict[str, tuple[str, str]] = {
    "right": (GOOD, "correct"),
    "exported": ("export const f = (n: number): number => n << 1;\nexport default f;", "correct"),
    "modules that do nothing outside": (
        'import { EventEmitter } from "node:events";\nimport * as util from "util";\nconst { format } = require("util");\n'
        f'util.format("%d", 1);\nformat("");\nnew EventEmitter().emit("a");\n{GOOD}',
        "correct",
    ),
    "what node gives": (
        "const bytes: Buffer = Buffer.from('a');\nconst later: NodeJS.Timeout = setTimeout(() => bytes, 1);\n"
        f"console.log(new URL('http://a.b/c').host, structuredClone([1]), performance.now());\n{GOOD}",
        "correct",
    ),
    "waits at the top": ("const two = await Promise.resolve(2);\nconst f = (n: number) => two * n;", "correct"),
    "what is not there": (f"process.exit(0);\n{GOOD}", "wrong"),
    "an import of a file, even of a type": (f"import type {{ Stats }} from 'fs';\n{GOOD}", "refused"),
    "an import that is computed": (f"const m = import('node:' + 'fs');\n{GOOD}", "refused"),
    "a file of the machine": (f"export * from '/etc/passwd';\n{GOOD}", "refused"),
    "left open at its end": (f"{GOOD}\nif (true) {{", "invalid"),
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
    "other result": ("const f = (n: number): number => n * n;", "wrong"),
    "throws": ("const f = (n: number): number => { throw new Error('no'); };", "wrong"),
    "type error": ("const f = (n: number): string => 2 * n;", "invalid"),
    "type error in the tests": ("const f = (n: string): number => 4;", "invalid"),
    "unknown package": (f"import _ from 'lodash';\n_.a();\n{GOOD}", "refused"),
    "nothing": ("", "empty"),
    "a comment": ("// f doubles\n/* its argument */", "empty"),
}


def case(tests: str) -> TypescriptCase:
    return TypescriptCase(verifier="typescript", tests=tests)


def test_answers_are_run() -> None:
    """Checked together: none of them is judged by another one's faults."""
    asked = case(TESTS)
    TypescriptCase.prepare([(asked, answer) for answer, _ in JUDGED.values()], 5)
    assert {name: asked.verdict(answer, None, 5).kind for name, (answer, _) in JUDGED.items()} == {
        name: kind for name, (_, kind) in JUDGED.items()
    }


def test_the_committed_rows_pass_and_fail_when_their_tests_are_turned_round() -> None:
    rows = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()][::40]
    turned = '\nimport { fail } from "node:assert";\nfail("turned round");'
    asked = [(case(row["test"] + more), row["output"]) for row in rows for more in ("", turned)]
    TypescriptCase.prepare(asked, 5)
    assert [one.verdict(answer, None, 10).kind for one, answer in asked] == ["correct", "wrong"] * len(rows)


def test_what_an_answer_declares_for_all_reaches_no_answer_beside_it() -> None:
    wide = "export {};\ndeclare global { interface Array<T> { twice(): T[] } }\nconst f = (n: number) => 2 * n;"
    asked = [(case(TESTS), wide), (case(TESTS), "const f = (n: number) => ([n].twice() ? 2 * n : 0);")]
    TypescriptCase.prepare(asked, 5)
    assert [one.verdict(answer, None, 5).kind for one, answer in asked] == ["refused", "invalid"]


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


def test_without_tests_an_answer_must_compile_and_end() -> None:
    assert check("type A = { a: number };", None, timeout_s=5).passed
    assert check("const a: A = 1;", None, timeout_s=5).kind == "invalid"
    assert check("throw new Error('no');", None, timeout_s=5).kind == "wrong"


def test_a_type_check_has_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typescript, "START_S", 0.0)
    monkeypatch.setattr(typescript, "TYPE_CHECK_S", 0.01)
    assert check(GOOD, f"{TESTS}\n", timeout_s=0.01) == Grade("timeout", "it took more than 0.01 s")
