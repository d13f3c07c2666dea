"""Judges TypeScript answers with deno, which parses them, checks types, and runs them with the tests in a sandboxed process.

Answer and tests are two modules, and the globals are frozen, so an answer affects the tests only by the code that they call.
Types need not be strict: 91 of MBXP's 831 solutions, which all pass their tests, violate the strict rules.
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
"""END turns a text into a module. TYPE_CHECK_S: the shortest time limit of a type check, without deno's start."""
READER, RUNNER = (Path(__file__).parent / "sandbox" / f"typescript_{name}.js" for name in ("reader", "runner"))
MODULES = [
    "assert", "assert/strict", "buffer", "crypto", "events", "path", "perf_hooks", "querystring", "string_decoder",
    "timers", "timers/promises", "url", "util"
]  # fmt: skip
"""Modules that a program may import, with or without `node:`."""
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
"""Globals that a program may use. None of them gives access to files, the network or other processes."""
KEPT = {*GLOBALS.split(), "console", "require"} - {"Event", "Iterator"}
"""Globals that tests always get from the runtime, even if the answer declares the same name, because its own `class Map` could
fake results. Event and Iterator are left out, because programs declare classes of these names.
"""
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
"""A text as deno's parser sees it. text: without comments, which could switch off the type check. names: its top-level names,
and whether each is a value. asks: the modules that it imports, None for a computed name.
"""
Program = tuple[str, ...]
"""An answer and its tests: as given, or as two runnable modules followed by the modules they import."""
_KNOWN: dict[Program, Program | Grade] = {}
"""The results of checking answers with their tests, kept until they are run."""


class TypescriptCase(Case):
    """`tests`, a module that throws if the answer is wrong."""

    starts = "answer"
    fences = frozenset({"typescript", "ts", "tsx", "mts", "cts", "javascript", "js", "jsx", "mjs", "cjs"})
    example = Example(
        {"prompt": "Double n.", "tests": "if (f(2) !== 4) throw 1;"}, "const f = (n) => 2 * n;", "const f = (n) => n;"
    )

    tests: str | None  # it sees the answer's top-level names; null: the answer must compile and end

    @classmethod
    def prepare(cls, asked: Sequence[tuple[Case, str]], timeout_s: float) -> None:
        """Check the types of many answers at once."""
        programs = []
        for case, answer in asked:
            with suppress(Stopped):
                readable(answer)
                programs += [(answer, case.tests or "")] if isinstance(case, cls) else []
        if programs:
            _KNOWN.update(_checked([*dict.fromkeys(programs)], max(timeout_s, TYPE_CHECK_S)))

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:  # noqa: ARG002  a case names none
        """Grade an answer by `tests`, or, without any, by whether it compiles and ends. Start-up time does not count."""
        program = answer, self.tests or ""
        found = _KNOWN.pop(program, None) or _checked([program], max(timeout_s, TYPE_CHECK_S))[program]
        return found if isinstance(found, Grade) else _run(found, timeout_s)

    def result_key(self, answer: str, file: Path | None, timeout_s: float) -> Hashable:  # noqa: ARG002
        """Return the program without comments, because its result is not known without tests."""
        readable(answer)
        source = _read([answer], max(timeout_s, TYPE_CHECK_S))[answer]
        if isinstance(source, Grade):
            raise Stopped(source.kind, source.detail)
        return plain(source["text"].removesuffix(END)) or None


def _checked(programs: Sequence[Program], limit_s: float) -> dict[Program, Program | Grade]:
    """Check programs together; if deno does not finish, check them again in two halves."""
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
    """Parse texts with deno's linter, which loads no module. Raises `Stopped`."""
    # the appended line keeps an unclosed construct from swallowing the text's last line
    files = {f"{number}.ts": f"{text}\n{END}" for number, text in enumerate(texts)}
    output, _, _ = _deno(f"{READ} {' '.join(files)}", files, limit_s)
    try:
        reply = json.loads(output)
    except ValueError as error:
        raise Stopped("too_large", "deno's parser failed") from error
    found: dict[str, Source | Grade] = dict.fromkeys(files, Grade("invalid", "deno's parser cannot read it"))
    for one in reply["errors"]:
        found[Path(one["file_path"]).name] = Grade("invalid", one["message"].splitlines()[0])
    for one in reply["diagnostics"]:
        found[Path(one["filename"]).name] = json.loads(one["message"])
    return dict(zip(texts, found.values(), strict=True))


def _modules(program: Program, answer: Source | Grade, tests: Source | Grade) -> Program | Grade:
    """Return the two modules; the tests import all names of the answer that they do not declare. Line numbers do not change."""
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
    """Return the first type error of each program that has one. The folder's name is random. Raises `Stopped`."""
    if not programs:
        return {}
    files = {f"{n}/{of}.ts": one[m] for n, one in enumerate(programs) for m, of in enumerate(("answer", "tests"))}
    output, status, folder = _deno(f"{CHECK} {' '.join(files)}", files, limit_s, stderr=subprocess.STDOUT)
    at = rf"^(TS\d+ \[ERROR\]: .*?$).*?^    at {re.escape(folder.as_uri())}/(\d+)/(answer|tests)\.ts:(\d+):\d+$"
    if status != 0 and "\nerror: Type checking failed." not in output:
        broken = re.search("^error: (SyntaxError: .*)", output, re.M)
        raise Stopped("invalid", broken[1]) if broken else Stopped("too_large", "deno's compiler failed")
    found: dict[Program, Grade] = {}
    faults = re.findall(at, output, re.M | re.S)
    for message, number, module, line in sorted(faults, key=lambda fault: fault[2] == "tests"):
        if not message.startswith("TS1205"):  # "re-exporting a type", which is harmless here
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
    """Run deno by `run_program` in a folder with `files` and `OURS`. Raises `Stopped`, EnvironmentProblem."""
    require_packages("deno")
    import deno

    path, own = deno.find_deno_bin(), "/proc/self/maps"  # deno's parser reads it to find the end of its stack
    how: dict[str, Any] = {"env": {"DENO_DIR": "cache", "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}, "stderr": stderr}
    limit_s += 0 if asked else START_S
    return run_program([path, *words.split()], [path, ".", own], limit_s, {**files, **OURS}, asked=asked, **how)
