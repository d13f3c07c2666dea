"""Judges queries by their rows, in the process of `worker.py`: an answer's against those of the expected queries."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from expert_cli.errors import InputError
from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers.contents import Engine, telling_contents
from expert_cli.evaluation.verifiers.query_text import (
    Dialect,
    orders_lists,
    orders_rows,
    orders_within,
    split,
    without_distinct,
)
from expert_cli.evaluation.verifiers.rows import Result, Row, Rule, judge_rows, rows_key
from expert_cli.evaluation.verifiers.sandbox.limits import GOLD_TIMEOUT_S, Stopped, readable
from expert_cli.evaluation.verifiers.ties import find_ties

LEAST_S = 0.05
MAX_LOOKS = 10
MOST_SOURCES, MOST_CASES = 16, 16
"""How many a process keeps."""
T = TypeVar("T")


@dataclass(frozen=True)
class Prepared:
    """A case: its contents, and what its expected queries return on each."""

    rule: Rule
    engines: Sequence[Engine]
    accepted: Sequence[tuple[Result, ...]]


class QueryJudge:
    """Answers "grade", "key" and "compile" for cases of one engine. What it lacks it says; "prepare" brings the files."""

    def __init__(self, open_source: Callable[[bytes], Engine], dialect: Dialect, max_bytes: int) -> None:
        """Keep how a file's content is opened (it raises InputError), and the language of its queries."""
        self._open, self._dialect, self._max_bytes = open_source, dialect, max_bytes
        self._sources = OrderedDict[str, Engine]()
        self._names: dict[str, str] = {}
        self._cases = OrderedDict[str, Prepared]()

    def __call__(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a verdict, a key or what is lacking. Raises `Stopped`, InputError."""
        case, name = question["case"], json.dumps(question["case"])
        if question["do"] == "prepare":
            for state, (path, content) in question["sent"].items():
                self._names[state] = path
                _keep(self._sources, state, self._opened(path, base64.b64decode(content)), MOST_SOURCES)
            _keep(self._cases, name, self._prepared(**case), MOST_CASES)
            return {}
        if name not in self._cases:
            return {"lacks": [state for state in case["files"] if state not in self._sources]}
        self._cases.move_to_end(name)
        prepared, deadline = self._cases[name], time.monotonic() + question["timeout_s"]
        statement = self._statement(prepared, question["answer"], deadline)
        if question["do"] == "compile":
            prepared.engines[0].prepare(statement, timeout_s=question["timeout_s"])
            return {}
        if question["do"] == "grade":
            grade = self._grade(prepared, statement, deadline)
            return {"kind": grade.kind, "detail": grade.detail, "reached": grade.reached}
        rows = [_run(engine, statement, deadline) for engine in prepared.engines]
        keys = [rows_key(prepared.rule, *one) for one in zip(rows, prepared.accepted, strict=True)]
        return {"key": hashlib.sha256(repr(keys).encode()).hexdigest(), "empty": not rows[0]}

    def _opened(self, path: str, content: bytes) -> Engine:
        try:
            return self._open(content)
        except (InputError, Stopped) as error:
            raise InputError(f"{path}: {error}", "correct the file that the case names") from error

    def _statement(self, prepared: Prepared, answer: str, deadline: float) -> str:
        """Return the one statement of an answer. Raises `Stopped`."""
        readable(answer, self._max_bytes)
        if "\0" in answer:
            raise Stopped("invalid", "the answer holds characters that are not text")
        statements = split(self._ruled(prepared.rule, answer), self._dialect)
        if not statements:
            raise Stopped("empty", "no query")
        if len(statements) > 1:
            for statement in statements[:MAX_LOOKS]:
                prepared.engines[0].prepare(statement, timeout_s=max(LEAST_S, deadline - time.monotonic()))
            raise Stopped("invalid", f"{len(statements)} statements, one query expected")
        return statements[0]

    def _ruled(self, rule: Rule, text: str) -> str:
        return without_distinct(text, self._dialect) if rule == "spider" else text

    def _grade(self, prepared: Prepared, statement: str, deadline: float) -> Grade:
        """Judge an answer: right if its rows are everywhere those of one expected query, the same one."""
        left = list(range(len(prepared.accepted[0])))
        for place, (engine, results) in enumerate(zip(prepared.engines, prepared.accepted, strict=True)):
            rows = _run(engine, statement, deadline)
            still = [query for query in left if _is_right(prepared.rule, rows, results[query])]
            if not still:
                grade = judge_rows(prepared.rule, rows, [results[query] for query in left])
                unknown = "" if place else engine.unknown(statement)
                if unknown:
                    return Grade("unknown_name", f"{unknown}; {grade.detail}")
                told = f"right on the first content, not on content {place + 1}: " if place else ""
                return Grade(grade.kind, told + grade.detail, reached=grade.reached)
            left = still
        return Grade("correct")

    def _prepared(self, files: Sequence[str], expected: str, rule: Rule, perturb: int) -> Prepared:
        """Run the expected queries on every content. Raises InputError where one fails."""
        queries = split(self._ruled(rule, expected), self._dialect)
        if not queries:
            raise InputError("no expected query", "write the query whose rows are right")
        engines = [self._sources[state] for state in files]
        accepted = []
        for engine, state in zip(engines, files, strict=True):
            try:
                accepted.append(tuple(self._result(engine, query) for query in queries))
            except Stopped as stopped:
                message = f"the expected query fails on {self._names[state]}: {stopped.detail}"
                raise InputError(message, f"correct the case's query: {expected[:200]}") from stopped
        made = telling_contents(engines[0], queries, self._dialect, perturb) if perturb else []
        accepted += [tuple(self._result(engine, query) for query in queries) for engine in made]
        return Prepared(rule, [*engines, *made], accepted)

    def _result(self, engine: Engine, query: str) -> Result:
        run = partial(engine.run, timeout_s=GOLD_TIMEOUT_S)
        lists = self._dialect != "cypher" or orders_lists(query)
        rows, ordered = run(query), orders_rows(query, self._dialect)
        ties = find_ties(query, self._dialect, rows, run, ordered_lists=lists) if ordered else None
        return Result(rows, ordered, lists, ties, orders_within(query, self._dialect))


def _keep(kept: OrderedDict[str, T], name: str, value: T, most: int) -> None:
    kept[name] = value
    if len(kept) > most:
        kept.popitem(last=False)


def _run(engine: Engine, statement: str, deadline: float) -> list[Row]:
    return engine.run(statement, timeout_s=max(LEAST_S, deadline - time.monotonic()))


def _is_right(rule: Rule, found: Sequence[Row], result: Result) -> bool:
    same = repr(found) == repr(result.rows)  # told at once, and true of most right answers
    return same or judge_rows(rule, found, (result,)).passed
