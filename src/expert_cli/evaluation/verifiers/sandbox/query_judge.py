"""Judges queries by their rows, in the worker's process: an answer's against those of the expected queries."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from expert_cli.errors import InputError
from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers import query_text
from expert_cli.evaluation.verifiers.query_text import Dialect, orders_rows, split
from expert_cli.evaluation.verifiers.rows import Result, Row, Rule, find_ties, is_right, judge_rows, rows_key, same
from expert_cli.evaluation.verifiers.sandbox.isolation import GOLD_TIMEOUT_S, Stopped, readable

LEAST_S = 0.05
MAX_LOOKS = 10
MOST_KEPT = 16
"""So many sources and cases a process keeps."""
TRIED, QUERY_S, MAKE_S = 4, 2.0, 30.0
"""Contents that are tried for each that is wanted; seconds for a query, and for all."""
T = TypeVar("T")


class Engine(ABC):
    """What runs queries on one content."""

    @abstractmethod
    def run(self, query: str, *, timeout_s: float) -> list[Row]:
        """Return the rows. Raises `Stopped`."""

    def prepare(self, query: str, *, timeout_s: float) -> None:
        """Find out whether a statement is allowed. Raises `Stopped`."""
        self.run(query, timeout_s=timeout_s)

    def unknown(self, query: str) -> str:  # noqa: ARG002  for one that does not refuse it itself
        """Return what a query names that is not there; "" for nothing."""
        return ""

    @abstractmethod
    def perturbed(self, queries: Sequence[str], number: int) -> tuple[Engine, Engine]:
        """Return the content of this number, and it once more: there, unordered rows come the other way round."""


class Prepared(NamedTuple):
    """A case: its contents, and what its expected queries return on each."""

    rule: Rule
    engines: Sequence[Engine]
    accepted: Sequence[tuple[Result, ...]]


class QueryJudge:
    """Answers "grade", "key" and "compile" for cases of one engine. What it lacks it says; "prepare" brings the files."""

    def __init__(self, open_source: Callable[[bytes], Engine], dialect: Dialect, max_bytes: int) -> None:
        """Keep how a file's content is opened (it raises InputError), and the language of its queries."""
        self._open, self._dialect, self._max_bytes = open_source, dialect, max_bytes
        self._sources = OrderedDict[str, tuple[str, Engine]]()
        self._cases = OrderedDict[str, Prepared]()

    def __call__(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a verdict, a key or what is lacking. Raises `Stopped`, InputError."""
        case, name = question["case"], json.dumps(question["case"])
        if question["do"] == "prepare":
            for state, (path, content) in question["sent"].items():
                try:
                    _keep(self._sources, state, (path, self._open(base64.b64decode(content))))
                except (InputError, Stopped) as error:
                    raise InputError(f"{path}: {error}", "correct the file that the case names") from error
            _keep(self._cases, name, self._prepared(**case))
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
        rows = [engine.run(statement, timeout_s=_left(deadline)) for engine in prepared.engines]
        keys = [rows_key(prepared.rule, *one) for one in zip(rows, prepared.accepted, strict=True)]
        return {"key": hashlib.sha256(repr(keys).encode()).hexdigest(), "empty": not rows[0]}

    def _statements(self, rule: Rule, text: str) -> list[str]:
        return split(query_text.without_distinct(text, self._dialect) if rule == "spider" else text, self._dialect)

    def _statement(self, prepared: Prepared, answer: str, deadline: float) -> str:
        """Return the one statement of an answer. Raises `Stopped`."""
        readable(answer, self._max_bytes)
        if "\0" in answer:
            raise Stopped("invalid", "the answer holds characters that are not text")
        statements = self._statements(prepared.rule, answer)
        if not statements:
            raise Stopped("empty", "no query")
        if len(statements) > 1:
            for statement in statements[:MAX_LOOKS]:
                prepared.engines[0].prepare(statement, timeout_s=_left(deadline))
            raise Stopped("invalid", f"{len(statements)} statements, one query expected")
        return statements[0]

    def _grade(self, prepared: Prepared, statement: str, deadline: float) -> Grade:
        """Judge an answer: right if its rows are everywhere those of one expected query, the same one."""
        left = list(range(len(prepared.accepted[0])))
        for place, (engine, results) in enumerate(zip(prepared.engines, prepared.accepted, strict=True)):
            rows = engine.run(statement, timeout_s=_left(deadline))
            still = [query for query in left if is_right(prepared.rule, rows, results[query])]
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
        queries = self._statements(rule, expected)
        if not queries:
            raise InputError("no expected query", "write the query whose rows are right")
        engines, accepted = [], []
        for path, engine in (self._sources[state] for state in files):
            try:
                accepted.append(tuple(self._result(engine, query) for query in queries))
            except Stopped as stopped:
                message = f"the expected query fails on {path}: {stopped.detail}"
                raise InputError(message, f"correct the case's query: {expected[:200]}") from stopped
            engines.append(engine)
        made = self._telling_contents(engines[0], queries, perturb)
        accepted += [tuple(self._result(engine, query) for query in queries) for engine in made]
        return Prepared(rule, [*engines, *made], accepted)

    def _result(self, engine: Engine, query: str) -> Result:
        run = partial(engine.run, timeout_s=GOLD_TIMEOUT_S)
        lists = self._dialect != "cypher" or query_text.orders_lists(query)
        rows, ordered = run(query), orders_rows(query, self._dialect)
        ties = find_ties(query, self._dialect, rows, run, ordered_lists=lists) if ordered else None
        return Result(rows, ordered, lists, ties, query_text.orders_within(query, self._dialect))

    def _telling_contents(self, engine: Engine, queries: Sequence[str], count: int) -> list[Engine]:
        """Return up to `count` contents on which the expected queries have one result each, whichever way round unordered rows
        are read, that holds something.
        """
        found = list[Engine]()
        end = time.monotonic() + MAKE_S  # as a last resort: it makes the choice depend on the machine
        for number in range(TRIED * count):
            if len(found) == count or time.monotonic() > end:
                break
            ways = engine.perturbed(queries, number)
            try:
                results = [[way.run(query, timeout_s=QUERY_S) for way in ways] for query in queries]
            except Stopped:
                continue
            pairs = zip(queries, results, strict=True)
            is_one = all(same(one, Result(other, orders_rows(query, self._dialect))) for query, (one, other) in pairs)
            if is_one and any(cell for (rows, _) in results for row in rows for cell in row):
                found.append(ways[0])
        return found


def _keep(kept: OrderedDict[str, T], name: str, value: T) -> None:
    kept[name] = value
    if len(kept) > MOST_KEPT:
        kept.popitem(last=False)


def _left(deadline: float) -> float:
    return max(LEAST_S, deadline - time.monotonic())
