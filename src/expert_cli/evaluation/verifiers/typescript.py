"""Judges TypeScript answers by deno: its parser reads them, its compiler checks their types, and the case's tests run against
them in a process that can do no harm.

Answer and tests are two modules over one frozen language, so that no name or change of the answer reaches the tests but what
they call. Types are held to what `tsc` asks for by itself (not strict): of MBXP's 831 solutions, which all pass their tests, 36
break these rules and 91 the strict ones. So deno reads a configuration of ours, and no other.
"""

from __future__ import annotations

import json
import re
import secrets
import signal
import subprocess
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import Field

from expert_cli.evaluation.verifiers.case import Case, Example, Grade
from expert_cli.evaluation.verifiers.sandbox import child_process
from expert_cli.evaluation.verifiers.sandbox.child_process import START_S, Stopped, readable
from expert_cli.utils.subprocesses import LineProcess

MAX_OUTPUT_BYTES, MAX_KNOWN, END = 64_000_000, 10_000, "export {};"
TYPE_CHECK_S = 2.0
"""The least time that a type check may take, beyond what deno needs to start."""
SANDBOX = Path(__file__).parent / "sandbox"
READER, RUNNER = SANDBOX / "typescript_reader.js", SANDBOX / "typescript_runner.js"
NAMES: Mapping[str, list[str]] = json.loads((SANDBOX / "typescript_names.json").read_text(encoding="utf-8"))
"""modules: what a program may import, with or without `node:`; language, node: the globals that it sees. Nothing of it reaches
a file, the network or another process.
"""
KEPT = {*NAMES["language"], *NAMES["node"], "console", "process", "require", "module", "exports"} - {
    "Event",
    "Iterator",
}
"""Names that always mean the same in tests, whatever an answer declares by them: its `class Map` would judge itself. The two
that are left out are made rather than used."""
CONFIG = {
    "compilerOptions": {"strict": False, "noImplicitOverride": False, "lib": ["es2023", "dom", "dom.iterable"]},
    "imports": {name: f"node:{name}" for name in NAMES["modules"]},
    "lint": {"plugins": [f"./{READER.name}"], "rules": {"tags": [], "include": ["judge/read"]}},
}
OURS = {file.name: file.read_text(encoding="utf-8") for file in (READER, RUNNER)} | {"deno.json": json.dumps(CONFIG)}
READ = "lint --json --config deno.json"
CHECK = "check --config deno.json --no-remote --no-npm --no-lock"
RUN = "run --no-config --import-map deno.json --no-remote --no-npm --no-lock --no-prompt --cached-only "
RUN += f"--v8-flags=--max-old-space-size=256,--disallow-code-generation-from-strings {RUNNER.name}"
_WORD = re.compile(r"""(["'`/])((?:\\.|(?!\1)[^\\])*)\1|([\w$]+|[^\w\s])""", re.S)
T = TypeVar("T")
R = TypeVar("R")


class Program(NamedTuple):
    """What is judged together."""

    prefix: str
    answer: str
    tests: str

    @property
    def modules(self) -> tuple[str, str]:
        """The texts that are read: what is open at the end of one does not swallow its last line, which the parser let pass."""
        return f"{self.prefix}{self.answer}\n{END}", f"{self.tests}\n{END}"

    def fault(self, module: str, line: int, message: str) -> Grade:
        """Return the verdict on what is wrong in a line of a module; lines count from where the answer begins."""
        where = f"line {line - self.prefix.count(chr(10))}" if module == "answer" else f"in the tests, line {line}"
        return Grade("invalid", f"{where}: {message}")


class Source(NamedTuple):
    """A text as deno's parser reads it.

    text: without its comments. names: what it declares at its top, and whether that is a value. modules: what it asks for, None
    for what it would compute. alone: it declares what is not its own, which a program checked beside it would see. fault: line
    and words, where it does not parse.
    """

    text: str = ""
    names: Mapping[str, bool] = {}
    modules: Sequence[str | None] = ()
    alone: bool = False
    fault: tuple[int, str] | None = None


class Checked(NamedTuple):
    """A program that may run: its two modules and what they import."""

    program: Program
    answer: str
    tests: str
    modules: tuple[str, ...]
    alone: bool


_KNOWN: dict[Program, Checked | Grade] = {}


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

    def for_dummy(self, *, first: bool) -> TypescriptCase | None:
        """Return the first case, which tells for all, without its prefix: what that leaves open would be a fault of its own."""
        return self.model_copy(update={"prefix": ""}) if first else None

    @classmethod
    def prepare(cls, asked: Sequence[tuple[Case, str]], timeout_s: float) -> None:
        """Check the types of many answers at once."""
        programs = []
        for case, answer in asked:
            with suppress(Stopped):
                readable(answer)
                programs += [case.program(answer)] if isinstance(case, cls) else []
        _check(programs, timeout_s)

    def program(self, answer: str) -> Program:
        """Return what is judged."""
        return Program(self.prefix, answer, self.tests or "")

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:  # noqa: ARG002  a case names none
        """Judge `prefix` + `answer` by `tests`, else by whether it compiles and ends; starting counts for none of the time."""
        program = self.program(answer)
        try:
            readable(answer)
            found = _KNOWN.get(program)
            if found is None or (isinstance(found, Grade) and found.kind == "timeout"):  # others may have had its time
                _check([program], timeout_s)
                found = _KNOWN[program]
            return _run(found, timeout_s) if isinstance(found, Checked) else found
        except Stopped as stopped:
            return stopped.verdict

    def result_key(self, answer: str, file: Path | None, timeout_s: float) -> Hashable:  # noqa: ARG002
        """Return the program without comments and spacing: what it gives no one knows without the tests."""
        readable(answer)
        whole = self.program(answer).modules[0]
        return tuple(_WORD.findall(_read([whole], timeout_s)[whole].text.removesuffix(END))) or None


def _check(programs: Sequence[Program], timeout_s: float) -> None:
    """Find out of each program whether it may run."""
    if len(_KNOWN) > MAX_KNOWN:
        _KNOWN.clear()
    limit_s = max(timeout_s, TYPE_CHECK_S)
    read = _each(_read, [*dict.fromkeys(text for one in programs for text in one.modules)], limit_s)
    made = {one: _modules(one, *(read[text] for text in one.modules)) for one in programs}
    ready = [one for one in made.values() if isinstance(one, Checked)]
    for group in ([one for one in ready if not one.alone], *([one] for one in ready if one.alone)):
        made |= {one.program: found for one, found in _each(_typed, group, limit_s).items()}
    _KNOWN.update(made)


def _modules(program: Program, answer: Source | Grade, tests: Source | Grade) -> Checked | Grade:
    """Return the two modules: what the tests use of the answer's names they import, exported or not. Lines stay."""
    if isinstance(answer, Grade) or isinstance(tests, Grade):
        return answer if isinstance(answer, Grade) else Grade("invalid", "the tests are no program")
    for module, source in (("answer", answer), ("tests", tests)):
        if source.fault:
            return program.fault(module, *source.fault)
        for name in source.modules:
            if name is None or name.removeprefix("node:") not in NAMES["modules"]:
                return Grade("refused", f"it asks for the module {name or 'that it computes'}")
    if not answer.text.removesuffix(END).strip():
        return Grade("empty", "nothing but comments")
    used = set(re.findall(r"[\w$]+", program.tests)).difference(tests.names, KEPT)
    shared = {name: "" if value else "type " for name, value in answer.names.items() if name in used}
    exported = ", ".join(f"{kind}{name} as __answer_{name}" for name, kind in shared.items())
    imported = ", ".join(f"{kind}__answer_{name} as {name}" for name, kind in shared.items())
    head = f'import {{ {imported} }} from "./answer.ts"; '
    asked = tuple({name.removeprefix("node:") for name in (*answer.modules, *tests.modules) if name})
    code = f"{answer.text}\nexport {{ {exported} }};", head + program.modules[1]
    return Checked(program, *code, asked, answer.alone)


def _each(ask: Callable[[Sequence[T], float], dict[T, R]], items: Sequence[T], limit_s: float) -> dict[T, R | Grade]:
    """Ask about all at once; where deno does not come to an end, about each half."""
    try:
        return {**ask(items, limit_s)} if items else {}
    except Stopped as stopped:
        if len(items) == 1:
            return {items[0]: stopped.verdict}
    half = len(items) // 2
    return _each(ask, items[:half], limit_s) | _each(ask, items[half:], limit_s)


def _read(texts: Sequence[str], limit_s: float) -> dict[str, Source]:
    """Return what deno's parser, which loads nothing, says of texts. Raises `Stopped`."""
    files = {f"{number}.ts": text for number, text in enumerate(texts)}
    with _deno(f"{READ} {' '.join(files)}", files, limit_s) as (child, _):
        output, _ = _all(child, START_S + limit_s)
    try:
        reply = json.loads(output)
    except ValueError as error:
        raise Stopped("too_large", "deno's parser gave up on it") from error
    found = dict.fromkeys(files, Source(fault=(1, "it keeps deno's parser from reading it")))
    for one in reply["errors"]:
        message, *_, at = one["message"].splitlines()
        found[Path(one["file_path"]).name] = Source(fault=(int(at.split(":")[-2]), message))
    for one in reply["diagnostics"]:
        found[Path(one["filename"]).name] = Source(**json.loads(one["message"]))
    return dict(zip(texts, found.values(), strict=True))


def _typed(items: Sequence[Checked], limit_s: float) -> dict[Checked, Checked | Grade]:
    """Return each program, or what its types have against it. Raises `Stopped`.

    Where a fault lies is told by the folder, whose name no program knows: none can write what looks like another one's fault.
    """
    files: dict[str, str] = {}
    for number, one in enumerate(items):
        files |= {f"{number}/answer.ts": one.answer, f"{number}/tests.ts": one.tests}
    with _deno(f"{CHECK} {' '.join(files)}", files, limit_s, subprocess.STDOUT) as (child, folder):
        output, status = _all(child, START_S + limit_s)
    at = rf"^(TS\d+) \[ERROR\]: (.*?)\n    at {re.escape(folder.as_uri())}/(\d+)/(answer|tests)\.ts:(\d+):\d+$"
    faults = [fault for fault in re.findall(at, output, re.M | re.S) if fault[0] != "TS1205"]  # a type re-exported
    if status != 0 and "\nerror: Type checking failed." not in output:
        broken = re.search("^error: (SyntaxError: .*)", output, re.M)
        raise Stopped("invalid", broken[1]) if broken else Stopped("too_large", "deno's compiler gave up on it")
    found: dict[Checked, Checked | Grade] = {one: one for one in items}
    for code, message, number, module, line in sorted(faults, key=lambda fault: fault[3] == "tests"):
        one = items[int(number)]
        given = module == "answer" and int(line) <= one.program.prefix.count("\n")  # by the case
        if found[one] is one and not given:
            found[one] = one.program.fault(module, int(line), f"{code}: {message.partition(chr(10))[0]}").of_a_program
    return found


def _run(one: Checked, timeout_s: float) -> Grade:
    """Run an answer and its tests."""
    nonce = secrets.token_hex(16)
    asked = {"nonce": nonce, "names": one.modules, "language": NAMES["language"], "node": NAMES["node"]}
    with _deno(RUN, {"answer.ts": one.answer, "tests.ts": one.tests}, timeout_s) as (child, _):
        if child.receive(START_S, child_process.MEMORY_BYTES) != b"ready\n":
            return Grade("invalid", "deno does not load it").of_a_program
        child.send(json.dumps(asked), last=True)
        output, status = _all(child, timeout_s)
    replies = [json.loads(line[len(nonce) :]) for line in output.splitlines() if line.startswith(nonce)]
    if not replies:
        return (
            Grade("wrong", "it ended before its tests did") if status in (0, 1) else Grade("too_large", "out of memory")
        )
    verdict = Grade(**replies[-1])
    return Grade("wrong", "it failed when its tests were over") if verdict.passed and status != 0 else verdict


def _deno(
    words: str, files: Mapping[str, str], limit_s: float, errors: int = subprocess.DEVNULL
) -> AbstractContextManager[tuple[LineProcess, Path]]:
    """Start deno behind walls in a folder with `files` and ours. Raises EnvironmentProblem."""
    child_process.require_packages("deno")
    import deno

    path, own = deno.find_deno_bin(), "/proc/self/maps"  # which tells its parser where its stack ends
    how = {"env": {"DENO_DIR": "cache", "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}, "stderr": errors}
    command = [path, *words.split()]
    return child_process.program(
        command, [path, ".", own], limit_s, {**files, **OURS}, max_bytes=MAX_OUTPUT_BYTES, **how
    )


def _all(child: LineProcess, limit_s: float) -> tuple[str, int]:
    """Return what a process writes up to its end, and its exit status."""
    output, status = child_process.read_all(child, limit_s, child_process.MEMORY_BYTES), child.exit_code()
    if status == -signal.SIGKILL:  # the limit of processor time
        raise TimeoutError
    return output.decode(errors="replace"), status
