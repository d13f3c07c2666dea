"""Judges queries by their rows: an answer's against those of the expected queries, on every content of a case. Runs in the
worker's process.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from sqlglot import TokenType

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers import query_text
from expert_cli.evaluation.verifiers.case import Grade
from expert_cli.evaluation.verifiers.contents import Way
from expert_cli.evaluation.verifiers.query_text import Dialect
from expert_cli.evaluation.verifiers.result_rows import Result, Row, Rule, find_ties, is_right, rows_key, same, wrong
from expert_cli.evaluation.verifiers.sandbox import child_process
from expert_cli.evaluation.verifiers.sandbox.child_process import Stopped

LEAST_S, MOST_KEPT = 0.05, 16  # seconds that are left at least; cases that a process keeps
TRIED, QUERY_S = 4, 2.0  # contents that are tried for each that is wanted; seconds for a query


class QueryJudge(ABC):
    """Answers "grade" and "key" for the cases of one engine whose files it was sent; for others it says that it lacks them."""

    dialect: Dialect
    max_bytes = child_process.MAX_SQL_BYTES

    def __init__(self) -> None:
        self._cases = dict[str, list[tuple[Any, list[Result]]]]()  # of each content the expected queries' results

    @abstractmethod
    def content_of(self, file: bytes) -> tuple[Any, Way]:
        """Return what `run` takes for a file, and what makes others of it. Raises InputError."""

    @abstractmethod
    def run(self, content: Any, query: str, timeout_s: float, *, reverse: bool = False) -> list[Row]:
        """Return the rows; reverse: those that no query orders come the other way round. Raises `Stopped`."""

    def forget(self) -> None:
        """Give up all cases with their contents."""
        self._cases.clear()

    def columns(self, width: int) -> Sequence[str]:
        """Return by what the query that just ran can order each column of its result."""
        return [str(number + 1) for number in range(width)]

    def __call__(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a verdict, a key or what is lacking. Raises `Stopped`, InputError."""
        case, name = question["case"], json.dumps(question["case"])
        if "files" in question:
            if len(self._cases) >= MOST_KEPT:
                self.forget()
            self._cases[name] = [*self._contents(question["files"], case["expected"], case["rule"], case["perturb"])]
            return {}
        if name not in self._cases:
            return {"lacks": True}
        contents, end = self._cases[name], time.monotonic() + question["timeout_s"]
        statement = self._statement(case["rule"], question["answer"])
        left_s = (max(LEAST_S, end - time.monotonic()) for _ in contents)
        ran = ((self.run(content, statement, next(left_s)), results) for content, results in contents)
        if question["do"] == "key":
            found = [(rows_key(rows, results), bool(rows)) for rows, results in ran]
            return {"key": hashlib.sha256(repr(found).encode()).hexdigest(), "empty": not found[0][1]}
        left = [*range(len(contents[0][1]))]  # an answer is right if its rows are everywhere those of the same query
        for place, (rows, results) in enumerate(ran):
            known, left = left, [query for query in left if is_right(case["rule"], rows, results[query])]
            if not left:
                grade = wrong(rows, results[known[0]])
                told = f"right on the first content, not on content {place + 1}: " if place else ""
                return vars(replace(grade, detail=told + grade.detail))
        return vars(Grade("correct"))

    def _statements(self, rule: Rule, text: str) -> list[str]:
        if rule == "spider":
            text = query_text.without(text, self.dialect, (TokenType.DISTINCT,), "")
        return query_text.split(text, self.dialect)

    def _statement(self, rule: Rule, answer: str) -> str:
        """Return the one statement of an answer. Raises `Stopped`."""
        child_process.readable(answer, self.max_bytes)
        statements = self._statements(rule, answer)
        if len(statements) != 1 or "\0" in answer:
            raise Stopped("invalid" if statements else "empty", f"{len(statements)} statements, one query expected")
        first = query_text.tokens(statements[0], self.dialect)[0]
        if first.token_type in query_text.COMMANDS.get(self.dialect, ()):
            raise Stopped("refused", first.text)
        return statements[0]

    def _contents(
        self, files: Mapping[str, str], expected: str, rule: Rule, perturb: int
    ) -> Iterator[tuple[Any, list[Result]]]:
        """Yield every content of a case. Raises InputError where an expected query fails on a file."""
        queries, ways = self._statements(rule, expected), list[Way]()
        if not queries:
            raise InputError("no expected query", "write the query whose rows are right")
        for path, file in files.items():
            try:
                content, way = self.content_of(base64.b64decode(file))
                yield content, [self._result(content, query, rule) for query in queries]
            except InputError as error:
                raise InputError(f"{path}: {error}", "correct the file that the case names") from error
            except Stopped as stopped:
                told = f"the expected query fails on {path}: {stopped.detail}"
                raise InputError(told, f"correct the case's query: {expected[:200]}") from stopped
            ways.append(way)
        for content in islice(self._perturbed(ways[0], queries, TRIED * perturb), perturb):
            yield content, [self._result(content, query, rule) for query in queries]

    def _result(self, content: Any, query: str, rule: Rule) -> Result:
        run = partial(self.run, content, timeout_s=child_process.GOLD_TIMEOUT_S)
        lists, rows = self.dialect != "cypher" or query_text.orders_lists(query), run(query)
        if rule == "spider":
            return Result(rows, "ORDER BY" in query_text.words(query_text.tokens(query, self.dialect)), lists)
        ordered = query_text.orders_rows(query, self.dialect)
        columns = self.columns(len(rows[0])) if rows else []
        ties = find_ties(query, self.dialect, rows, run, columns, lists) if ordered else None
        return Result(rows, ordered, lists, ties)

    def _perturbed(self, way: Way, queries: Sequence[str], tries: int) -> Iterator[Any]:
        """Yield contents on which the expected queries have one result each, whichever way round unordered rows are read, that
        holds something.
        """
        orders = [query_text.orders_rows(query, self.dialect) for query in queries]
        for content in (way(queries, number) for number in range(tries)):
            with suppress(Stopped):
                rows, again = (
                    [self.run(content, query, QUERY_S, reverse=reverse) for query in queries]
                    for reverse in (False, True)
                )
                if all(map(same, rows, map(Result, again, orders))) and any(any(row) for some in rows for row in some):
                    yield content
