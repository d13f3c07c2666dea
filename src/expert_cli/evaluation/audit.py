"""Finds faults in an expert's training rows and cases by running and comparing them. `CHECKS` has an entry for each kind.

Candidates for near duplicates share 3 of their 7 smallest shingle hashes (Broder 1997); two rows of similarity 0.8 do so with a
probability of 99.5 %. A row is then compared exactly with the first and the last earlier row that has the same three hashes.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from heapq import nsmallest
from itertools import combinations
from pathlib import Path
from typing import Any

from expert_cli.config.plan import Plan
from expert_cli.data.rows import Row, asked_hash
from expert_cli.data.select import select_rows
from expert_cli.data.sources import LocatedData, locate_data
from expert_cli.errors import ExpertError, InputError
from expert_cli.evaluation.cases import EvalCase, read_cases, spread
from expert_cli.evaluation.extract import extract
from expert_cli.evaluation.grade import given_by
from expert_cli.evaluation.verifiers.case import EMPTY, Stopped, detail_line
from expert_cli.evaluation.verifiers.registry import VERIFIERS
from expert_cli.evaluation.verifiers.registry import verifier as registered
from expert_cli.hardware.machine import has_package
from expert_cli.inference.sql_grammar import compiler, tables_of
from expert_cli.utils.reporter import NullReporter, Reporter, late_progress
from expert_cli.utils.text import normalize

NEAR, WIDTH, HASHES, SHARED = 0.8, 5, 7, 3
MAX_EXAMPLES = 5
PROGRAMS = 200
"""The number of answers that are parsed if answers are programs, spread evenly over the rows."""
TIMEOUT_S = 10.0
SYNTAX = ("syntax error", "incomplete", "unrecognized", "one statement")
"""Errors of SQLite that no set of tables can fix."""
PARSED = ("cypher", "json", "python", "typescript")
"""Verifiers whose cases can run or parse any answer, even the answer to another case."""
VALUES = ("json", "number", "choice", "exact")
"""Verifiers of values: two different answers to one question contradict each other."""
CHECKS: dict[str, tuple[str, str, str]] = {
    "unreadable": ("error", "rows", "the row cannot be used in training: a text is missing, empty or not a text"),
    "does_not_run": ("error", "rows", "the answer does not parse, or names what its tables do not have"),
    "prompt_in_answer": ("error", "rows", "the answer continues with another prompt, or ends with its own prompt"),
    "too_long": ("error", "rows", "the answer alone has max_seq_length tokens or more"),
    "contradiction": ("error", "rows", "one question has answers with different labels or values"),
    "leak": ("error", "rows", "question and input are those of a case, ignoring letter case and white space"),
    "case_fails": ("error", "cases", "the case judges its own expected answer as not right"),
    "case_empty": ("error", "cases", "the expected query returns no rows, so any query without rows is right"),
    "duplicate": ("warning", "rows", "equal to an earlier row, ignoring letter case and white space"),
    "near_duplicate": ("warning", "rows", "nearly equal to an earlier row, in question with answer and in the input"),
}
"""For each check its severity (an error makes a row or case useless), what is counted, and its meaning."""
_CREATE = re.compile(r"\bCREATE\s+(?:\w+\s+)?(?:TABLE|VIEW)\b", re.IGNORECASE)
# Matches words that only begin another turn of a prompt, and control tokens, which do not occur in programs either.
_NEXT_TURN = re.compile(
    r"<\|[A-Za-z_]+\|>|<(?:start|end)_of_turn>|<｜[^｜]{1,30}｜>"
    r"|^### (?:Instruction|Input|Human|User|Question|Response):|^\[/?INST\]"
    r"|^(?:Human|User|Question): .*\n(?:Assistant|Answer):",
    re.MULTILINE,
)
_MIN_PROMPT_CHARACTERS = 12


@dataclass
class Audit:
    """The checked rows and cases, and the findings by check and place. not_checked: the reasons for skipped checks."""

    plan: Plan
    verifier: str
    files: list[str]
    case_files: list[str]
    rows: list[Row]
    cases: list[EvalCase]
    unreadable: int
    found: dict[str, dict[str, tuple[str, str]]] = field(default_factory=lambda: {name: {} for name in CHECKS})
    not_checked: dict[str, str] = field(default_factory=dict)

    def add(self, check: str, where: str, detail: str, text: str) -> None:
        """Record a finding; a place counts once for each check."""
        self.found[check].setdefault(where, (detail, text))

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows or cases by check. All unreadable rows count, not only the examples."""
        return {name: len(found) for name, found in self.found.items()} | {"unreadable": self.unreadable}

    @property
    def errors(self) -> int:
        """The number of errors. A row may count in several checks."""
        return sum(count for name, count in self.counts.items() if CHECKS[name][0] == "error")

    def as_json(self) -> dict[str, Any]:
        """Return the document of `audit --json` (docs/INTERFACE.md)."""
        counted, checks = {"rows": len(self.rows) + self.unreadable, "cases": len(self.cases)}, {}
        for name, count in self.counts.items():
            severity, of, meaning = CHECKS[name]
            told = {"severity": severity, "of": of, "meaning": meaning, "count": count}
            examples = [_example(*one) for one in [*self.found[name].items()][:MAX_EXAMPLES]]
            checks[name] = {**told, "share": count / max(1, counted[of]), "examples": examples}
        return {
            "expert": self.plan.run.expert,
            "manifest": str(self.plan.run.manifest),
            **{name: getattr(self, name) for name in ("verifier", "files", "case_files")},
            **counted,
            "errors": self.errors,
            "warnings": sum(self.counts.values()) - self.errors,
            "checks": checks,
            "not_checked": self.not_checked,
        }


def _example(where: str, told: tuple[str, str]) -> dict[str, Any]:
    file, _, line = where.rpartition(":")
    number = line.removeprefix("row ")
    place = {"file": file, "line": int(number)} if number.isdigit() else {"file": where, "line": None}
    return {**place, "detail": detail_line(told[0]), "text": detail_line(told[1])}


def audit_data(plan: Plan, case_files: Sequence[Path], verifier: str, limit: int | None, report: Reporter) -> Audit:
    """Run all checks on an expert's rows and cases. verifier: "": that of the cases. limit: number of rows, spread evenly."""
    cases = [case for path in case_files for case in read_cases(path)]
    located = locate_data(plan.run.data, report)
    data = replace(plan.run.data, validation=(), validation_share=0.0, schema_prompt=None)  # each bad row is reported
    selected = select_rows(data, LocatedData(located.train, ()), report, bad_share=1.0)
    rows = [*{row.where: row for row in selected.rows()}.values()]
    verifiers, bad = {case.case.verifier for case in cases}, selected.reports["train"]
    verifier = verifier or (verifiers.pop() if len(verifiers) == 1 else "")
    files = [str(path) for one in located.train for path in one.files]
    rows, of_cases = spread(rows, limit), [*map(str, case_files)]
    audit = Audit(plan, verifier, files, of_cases, rows, cases, bad.dropped.total())
    for where, reason in bad.examples:
        audit.add("unreadable", where, reason, "")
    _run_answers(audit, report)
    _run_cases(audit, report)
    _check_texts(audit)
    _check_lengths(audit)
    _check_repeats(audit, report)
    return audit


def _run_answers(audit: Audit, report: Reporter) -> None:
    """Run or parse the answers of rows if no expected result is needed; results are not compared."""
    kind, left = registered(audit.verifier), Counter[str]()
    fault_of = partial(_fault, audit, _parsing_case(audit), _uncompiled(audit))
    rows = spread(audit.rows, PROGRAMS) if kind and kind.starts else audit.rows
    with late_progress(report, "judging", len(rows), "answers") as show:
        for done, row in enumerate(rows, start=1):
            show(done)
            try:
                if fault := fault_of(row):
                    audit.add("does_not_run", row.where, fault, row.answer)
            except Stopped as stopped:
                left[f"{stopped.kind}: {stopped.detail}"] += 1
            except InputError as error:  # from the row's database
                audit.add("does_not_run", row.where, error.message, row.answer)
    left[f"of programs {PROGRAMS} are parsed"] = len(audit.rows) - len(rows)
    if count := left.total():
        reasons = "; ".join(f"{n:,} ({reason})" for reason, n in (+left).most_common(3))
        audit.not_checked["does_not_run"] = f"{count:,} of {len(audit.rows):,} answers are not run: {reasons}"


def _parsing_case(audit: Audit) -> EvalCase | None:
    """Return a case that can run or parse any answer; None if there is none."""
    one = next((one for one in audit.cases if one.case.verifier == audit.verifier in PARSED), None)
    return one and replace(one, case=one.case.model_copy(update={"perturb": None}))


def _uncompiled(audit: Audit) -> str:
    """Return why SQL is not compiled; "" if it is."""
    decoding = audit.plan.loaded.manifest.training.decoding
    dialects = {decoding and decoding.grammar_type, *(getattr(one.case, "dialect", "") for one in audit.cases)}
    if dialects & {"sql-postgres", "postgresql"}:
        return "queries in PostgreSQL's dialect are not compiled"
    return "" if has_package("apsw") else 'apsw is not installed: pip install "expert-cli[evaluate]"'


def _fault(audit: Audit, one: EvalCase | None, uncompiled: str, row: Row) -> str:
    """Return the reason why an answer cannot be right, "" if it may be right. Raises Stopped if this cannot be decided."""
    if not row.messages:
        raise Stopped("parsed_only", "the answer in a whole text is not run")
    name = audit.verifier
    if name == "sql" and uncompiled:
        raise Stopped("parsed_only", uncompiled)
    if name == "sql":
        databases = audit.plan.run.data.schema_prompt
        file = databases.file_named(row.database) if databases and row.database else Path()
        question, below = row.question
        tables = compiler_for(file if file.is_file() else None, below) or compiler_for(None, question)
        fault = (tables or _without_tables())(extract(row.answer, VERIFIERS["sql"].fences))
        if tables is None and not any(words in fault for words in SYNTAX):
            raise Stopped("parsed_only", "neither a database nor CREATE TABLE in the row")
        return fault
    if one is None:
        raise Stopped("parsed_only", f"answers of {name or 'no verifier'} need a case to be judged")
    try:
        given = one.case.result_key(extract(row.answer, one.case.fences), one.file, TIMEOUT_S)
    except Stopped as stopped:
        if stopped.kind == "invalid" and name == "cypher" and "SyntaxError" not in stopped.detail:
            raise Stopped("parsed_only", "graphqlite cannot run it; the query may be right") from stopped
        if stopped.kind in ("refused", "timeout", "too_large"):
            raise
        return stopped.detail if stopped.kind == "invalid" else ""
    return "it does not parse" if given is None else ""


_without_tables = cache(partial(compiler, {}))  # one for all rows without tables


@lru_cache(maxsize=64)
def compiler_for(file: Path | None, text: str) -> Callable[[str], str] | None:
    """Return a function that says why SQLite cannot compile a query on a file or a text's tables; None: unreadable tables."""
    if file is not None:
        return compiler({}, file.resolve())
    tables = tables_of(text)
    return compiler(tables) if len(tables) >= max(1, len(_CREATE.findall(text))) else None


def _run_cases(audit: Audit, report: Reporter) -> None:
    unknown = sum(one.case.starts == "command" or not one.case.expected_text for one in audit.cases)
    if unknown:
        audit.not_checked["case_fails"] = f"{unknown:,} without an answer that is right: patterns, programs, commands"
    with late_progress(report, "running cases", len(audit.cases), "cases") as show:
        for done, one in enumerate(audit.cases, start=1):
            expected = "" if one.case.starts else one.case.expected_text
            try:
                verdict = one.case.verdict(expected, one.file, TIMEOUT_S) if expected else None
                if verdict and not verdict.passed:
                    audit.add("case_fails", one.where, f"{verdict.kind}: {verdict.detail}", expected)
                elif verdict and given_by(expected, one.case, one.file, TIMEOUT_S) == EMPTY:
                    audit.add("case_empty", one.where, CHECKS["case_empty"][2], expected)
            except InputError as error:
                audit.add("case_fails", one.where, error.message, expected or one.prompt)
            except ExpertError as error:
                audit.not_checked["case_fails"] = error.message
            show(done)


def _check_texts(audit: Audit) -> None:
    asked = defaultdict[bytes, list[EvalCase]](list)
    for case in audit.cases:
        asked[asked_hash(case.prompt, case.input)].append(case)
    for row in audit.rows:
        if row.messages and (fault := prompt_in_answer(row.question[0], row.answer)):
            audit.add("prompt_in_answer", row.where, fault, row.answer[-200:])
        question = row.question[0]
        ways = dict.fromkeys(
            (asked_hash(*row.question), asked_hash(question, row.input))
        )  # a case has no system message
        for case in [case for way in ways for case in asked.get(way, ())] if question.strip() else ():
            audit.add("leak", row.where, f"case {case.id} of {case.where}", question)


def prompt_in_answer(question: str, answer: str) -> str:
    """Return a message if an answer continues with another prompt, or ends with its own; else ""."""
    if marker := _NEXT_TURN.search(answer):
        return f"it holds {marker[0].splitlines()[0]!r}"
    question, answer = normalize(question), normalize(answer)
    if len(question) >= _MIN_PROMPT_CHARACTERS and len(answer) > len(question) and answer.endswith(question):
        return "it ends with its own question"
    return ""


def _check_lengths(audit: Audit) -> None:
    """Find answers of `max_seq_length` tokens or more. Answers with fewer bytes are not encoded."""
    from expert_cli.model.loading.base_model import fetch_model, places_of  # base_model imports torch only if needed
    from expert_cli.model.tokenizer import load_tokenizer

    run, limit = audit.plan.run, audit.plan.run.data.max_seq_length
    answers = (row for row in audit.rows if row.messages)
    long = [row for row in answers if len(row.answer.encode("utf-8", "surrogatepass")) >= limit]
    if not long:
        return
    try:
        here = places_of(run) | {"offline": True}
        base = fetch_model(run.model.name, sha256=run.model.sha256, report=NullReporter(), **here)
    except ExpertError:
        told = f"{len(long):,} long answers: the tokenizer of {run.model.name} is not on this machine"
        audit.not_checked["too_long"] = f"{told} (--base-model NAME: another)"
        return
    tokenizer = load_tokenizer(base.folder).backend
    tokenizer.no_truncation()
    tokenizer.no_padding()
    encoded = tokenizer.encode_batch([row.answer for row in long], add_special_tokens=False)
    for row, tokens in zip(long, map(len, encoded), strict=True):
        if tokens >= limit:
            told = f"the answer has {tokens:,} tokens, max_seq_length is {limit:,}"
            audit.add("too_long", row.where, told, row.answer)


def _check_repeats(audit: Audit, report: Reporter) -> None:
    first: dict[tuple[str, ...], Row] = {}
    groups: defaultdict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in audit.rows:
        said = tuple(map(normalize, (*row.question, row.answer)))
        if first.setdefault(said, row) is not row:
            audit.add("duplicate", row.where, f"as {first[said].where}", row.question[0])
        elif said[0]:
            groups[said[:2]].append(row)
    case = next((one.case for one in audit.cases if one.case.verifier == audit.verifier in VALUES), None)
    for group in groups.values():
        values = {given_by(row.answer, case, None, TIMEOUT_S) for row in group if case and len(group) > 1} - {None}
        for row in group if len(values) > 1 else ():
            other = group[0] if row is not group[0] else group[1]
            audit.add("contradiction", row.where, f"{other.where} answers: {other.answer}", row.answer)
    kept = list(first.values())
    for later, earlier in near_duplicates(list(first), report).items():
        audit.add("near_duplicate", kept[later].where, f"nearly {kept[earlier].where}", kept[later].question[0])


@lru_cache(maxsize=1 << 15)
def _pieces(text: str) -> frozenset[str]:
    return frozenset(text[at : at + WIDTH] for at in range(max(1, len(text) - WIDTH + 1)))


def _is_near(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) >= NEAR * len(one | other)


def near_duplicates(rows: Sequence[tuple[str, ...]], report: Reporter = NullReporter()) -> dict[int, int]:
    """Return the number of each near duplicate with that of the earlier row. A row: normalized question, input and answer."""
    first, last, near = dict[int, int](), dict[int, int](), dict[int, int]()
    with late_progress(report, "comparing rows", len(rows), "rows") as show:
        for number, (question, below, answer) in enumerate(rows):
            said = _pieces(question) | _pieces(answer)
            least = nsmallest(HASHES, {zlib.crc32(piece.encode("utf-8", "surrogatepass")) for piece in said})
            marks = [hash(some) for some in combinations(least, min(SHARED, len(least)))]
            for other in sorted({of[mark] for mark in marks for of in (first, last) if mark in of}):
                is_like = _is_near(said, _pieces(rows[other][0]) | _pieces(rows[other][2]))
                if is_like and _is_near(_pieces(below), _pieces(rows[other][1])):
                    near.setdefault(number, other)
            last |= dict.fromkeys(marks, number)
            for mark in marks:
                first.setdefault(mark, number)
            show(number + 1)
    return near
