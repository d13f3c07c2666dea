"""Judges TypeScript answers by deno: its parser reads them, its compiler checks their types, and the case's tests run against
them in a process that can do no harm.

Answer and tests are two modules over one frozen language, so that no name or change of the answer reaches the tests but what
they call. Types are not held to be strict: 91 of MBXP's 831 solutions, which all pass their tests, break the strict rules.
"""

from __future__ import annotations

import json
import re
import secrets
import subprocess
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from expert_cli.evaluation.verifiers.case import Case, Example, Grade, Stopped, plain, readable
from expert_cli.evaluation.verifiers.sandbox.child_process import START_S, reply_of, require_packages, run_program

END, TYPE_CHECK_S = "export {};", 2.0
"""What makes a module of a text; the least time that a type check may take, beyond what deno needs to start."""
READER, RUNNER = (Path(__file__).parent / "sandbox" / f"typescript_{name}.js" for name in ("reader", "runner"))
MODULES = [
    "assert", "assert/strict", "buffer", "crypto", "events", "path", "perf_hooks", "querystring", "string_decoder",
    "timers", "timers/promises", "url", "util"
]  # fmt: skip
"""What a program may import, with or without `node:`."""
GLOBALS = """
Object Function Array Number Boolean String Symbol BigInt Date Promise RegExp Error AggregateError EvalError RangeError
ReferenceError SuppressedError SyntaxError TypeError URIError Math JSON Intl Reflect Proxy Atomics Iterator globalThis Map Set
WeakMap WeakSet WeakRef FinalizationRegistry DisposableStack AsyncDisposableStack ArrayBuffer SharedArrayBuffer DataView
Int8Array Uint8Array Uint8ClampedArray Int16Array Uint16Array Int32Array Uint32Array BigInt64Array BigUint64Array
Float16Array Float32Array Float64Array parseFloat parseInt isNaN isFinite decodeURI decodeURIComponent encodeURI
encodeURIComponent escape unescape eval Infinity NaN undefined
global Buffer URL URLSearchParams TextEncoder TextDecoder AbortController AbortSignal Event EventTarget DOMException atob btoa
crypto performance structuredClone queueMicrotask setTimeout setInterval setImmediate clearTimeout clearInterval clearImmediate
"""
"""What a program sees, of the language and of Node. Nothing of it reaches a file, the network or another process."""
KEPT = {*GLOBALS.split(), "console", "require"} - {"Event", "Iterator"}
"""Names that always mean the same in tests, whatever an answer declares by them: its `class Map` would judge itself. The two
that are left out are made rather than used."""
CONFIG = {
    "compilerOptions": {"strict": False, "noImplicitOverride": False, "lib": ["es2023", "dom", "dom.iterable"]},
    "imports": {name: f"node:{name}" for name in MODULES},
    "lint": {"plugins": [f"./{READER.name}"], "rules": {"tags": [], "include": ["judge/read"]}},
}
OURS = {file.name: file.read_text(encoding="utf-8") for file in (READER, RUNNER)} | {"deno.json": json.dumps(CONFIG)}
READ = "lint --json --config deno.json"
CHECK = "check --config deno.json --no-remote --no-npm --no-lock"
RUN = "run --no-config --import-map deno.json --no-remote --no-npm --no-lock --no-prompt --cached-only "
RUN += f"--v8-flags=--max-old-space-size=256,--disallow-code-generation-from-strings {RUNNER.name}"
Source = Mapping[str, Any]
"""A text as deno's parser reads it. text: without its comments, which can tell a compiler what not to check. names: what it
declares at its top, and whether that is a value. asks: the modules it asks for, None for what it would compute.
"""
Program = tuple[str, ...]
"""An answer with its tests: as they are given, or as two modules that may run, and the names of those that they ask for."""
_KNOWN: dict[Program, Program | Grade] = {}
"""What became of an answer with its tests, before they run."""


class TypescriptCase(Case):
    """`tests`, a module that throws if the answer is wrong."""

    starts = "answer"
    fences = frozenset({"typescript", "ts", "tsx", "mts", "cts", "javascript", "js", "jsx", "mjs", "cjs"})
    example = Example(
        {"prompt": "Double n.", "tests": "if (f(2) !== 4) throw 1;"}, "const f = (n) => 2 * n;", "const f = (n) => n;"
    )

    tests: str | None  # it sees all names at the answer's top; null: the answer must compile, and end

    @classmethod
    def prepare(cls, asked: Sequence[tuple[Case, str]], timeout_s: float) -> None:
        """Check the types of many answers at once."""
        programs = []
        for case, answer in asked:
            with suppress(Stopped):
                readable(answer)
                programs += [(answer, case.tests or "")] if isinstance(case, cls) else []
        if len(_KNOWN) > 10_000:  # a trainer asks for as long as it runs
            _KNOWN.clear()
        if programs:
            _KNOWN.update(_checked([*dict.fromkeys(programs)], max(timeout_s, TYPE_CHECK_S)))

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:  # noqa: ARG002  a case names none
        """Judge an answer by `tests`, else by whether it compiles and ends; starting counts for none of the time."""
        if (answer, self.tests or "") not in _KNOWN:
            self.prepare([(self, answer)], timeout_s)
        found = _KNOWN[answer, self.tests or ""]
        return found if isinstance(found, Grade) else _run(found, timeout_s)

    def result_key(self, answer: str, file: Path | None, timeout_s: float) -> Hashable:  # noqa: ARG002
        """Return the program without comments: what it gives no one knows without the tests."""
        readable(answer)
        source = _read([answer], max(timeout_s, TYPE_CHECK_S))[answer]
        if isinstance(source, Grade):
            raise Stopped(source.kind, source.detail)
        return plain(source["text"].removesuffix(END)) or None


def _checked(programs: Sequence[Program], limit_s: float) -> dict[Program, Program | Grade]:
    """Return what becomes of each, checked at once; where deno does not come to an end, in two halves."""
    try:
        read = _read([*dict.fromkeys(text for one in programs for text in one)], limit_s)
        made = {one: _modules(one, *(read[text] for text in one)) for one in programs}
        faults = _faults([*dict.fromkeys(one for one in made.values() if not isinstance(one, Grade))], limit_s)
    except Stopped as stopped:
        if len(programs) == 1:
            return {programs[0]: stopped.verdict}
        half = len(programs) // 2
        return _checked(programs[:half], limit_s) | _checked(programs[half:], limit_s)
    return {one: found if isinstance(found, Grade) else faults.get(found, found) for one, found in made.items()}


def _read(texts: Sequence[str], limit_s: float) -> dict[str, Source | Grade]:
    """Return what deno's parser, which loads nothing, says of texts. Raises `Stopped`."""
    # what is open at the end of a text does not swallow its last line, which the parser let pass
    files = {f"{number}.ts": f"{text}\n{END}" for number, text in enumerate(texts)}
    output, _, _ = _deno(f"{READ} {' '.join(files)}", files, limit_s)
    try:
        reply = json.loads(output)
    except ValueError as error:
        raise Stopped("too_large", "deno's parser gave up on it") from error
    found: dict[str, Source | Grade] = dict.fromkeys(files, Grade("invalid", "deno's parser cannot read it"))
    for one in reply["errors"]:
        found[Path(one["file_path"]).name] = Grade("invalid", one["message"].splitlines()[0])
    for one in reply["diagnostics"]:
        found[Path(one["filename"]).name] = json.loads(one["message"])
    return dict(zip(texts, found.values(), strict=True))


def _modules(program: Program, answer: Source | Grade, tests: Source | Grade) -> Program | Grade:
    """Return the two modules: the tests import the answer's names, exported or not, that they do not declare. Lines stay."""
    if isinstance(answer, Grade):
        return answer
    if isinstance(tests, Grade):
        return Grade("invalid", f"in the tests, {tests.detail}")
    asked = {name and name.removeprefix("node:") for name in (*answer["asks"], *tests["asks"])}
    if refused := asked.difference(MODULES):
        return Grade("refused", f"it asks for {refused.pop() or 'a module that it computes'}")
    if not answer["text"].removesuffix(END).strip():
        return Grade("empty", "nothing but comments")
    own = KEPT.union(tests["names"])
    shared = {name: "" if value else "type " for name, value in answer["names"].items() if name not in own}
    exported = ", ".join(f"{kind}{name} as __answer_{name}" for name, kind in shared.items())
    imported = ", ".join(f"{kind}__answer_{name} as {name}" for name, kind in shared.items())
    tests_code = f'import {{ {imported} }} from "./answer.ts"; {program[1]}\n{END}'
    return f"{answer['text']}\nexport {{ {exported} }};", tests_code, *asked


def _faults(programs: Sequence[Program], limit_s: float) -> dict[Program, Grade]:
    """Return the first fault in the types of those that have one; no program knows the name of its folder. Raises `Stopped`."""
    if not programs:
        return {}
    files = {
        f"{n}/{of}.ts": text
        for n, one in enumerate(programs)
        for of, text in zip(("answer", "tests"), one, strict=False)
    }
    output, status, folder = _deno(f"{CHECK} {' '.join(files)}", files, limit_s, stderr=subprocess.STDOUT)
    at = rf"^(TS\d+ \[ERROR\]: .*?$).*?^    at {re.escape(folder.as_uri())}/(\d+)/(answer|tests)\.ts:(\d+):\d+$"
    if status != 0 and "\nerror: Type checking failed." not in output:
        broken = re.search("^error: (SyntaxError: .*)", output, re.M)
        raise Stopped("invalid", broken[1]) if broken else Stopped("too_large", "deno's compiler gave up on it")
    found: dict[Program, Grade] = {}
    for message, number, module, line in sorted(
        re.findall(at, output, re.M | re.S), key=lambda fault: fault[2] == "tests"
    ):
        if not message.startswith("TS1205"):  # a type is exported once more
            told = f"{'in the tests, ' * (module == 'tests')}line {line}: {message}"
            found.setdefault(programs[int(number)], Grade("invalid", told))
    return found


def _run(program: Program, timeout_s: float) -> Grade:
    """Run an answer and its tests."""
    nonce, (answer, tests, *names) = secrets.token_hex(16), program
    asked = json.dumps({"nonce": nonce, "names": names, "globals": GLOBALS.split()})
    output, status, _ = _deno(RUN, {"answer.ts": answer, "tests.ts": tests}, timeout_s, asked=asked)
    reply = reply_of(output, status, nonce)
    if reply["kind"] == "correct" and status != 0:
        return Grade("wrong", "it failed when its tests were over")
    return Grade(**reply)


def _deno(
    words: str, files: Mapping[str, str], limit_s: float, *, stderr: int = subprocess.DEVNULL, asked: str = ""
) -> tuple[str, int, Path]:
    """Run deno as `run_program` does, in a folder with `files` and ours. Raises `Stopped`, EnvironmentProblem."""
    require_packages("deno")
    import deno

    path, own = deno.find_deno_bin(), "/proc/self/maps"  # which tells its parser where its stack ends
    how: dict[str, Any] = {"env": {"DENO_DIR": "cache", "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}, "stderr": stderr}
    limit_s += 0 if asked else START_S
    return run_program([path, *words.split()], [path, ".", own], limit_s, {**files, **OURS}, asked=asked, **how)
