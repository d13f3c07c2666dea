"""Judges queries by their rows on every content of a case, and runs those of SQLite. This runs in the worker process.

apsw contains its own SQLite, so answers are judged in the same way on every system.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import apsw
from sqlglot import TokenType

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers import query_rows
from expert_cli.evaluation.verifiers.case import Stopped, readable
from expert_cli.evaluation.verifiers.contents import Way, database_contents
from expert_cli.evaluation.verifiers.query_rows import Dialect, Result, Row, Rule
from expert_cli.evaluation.verifiers.sandbox import child_process
from expert_cli.evaluation.verifiers.sandbox.child_process import MAX_VALUE_BYTES, bounded
from expert_cli.utils.text import plural

MOST_KEPT = 16  # cases that a process keeps
TRIED, QUERY_S = 4, 2.0  # contents tried for each one wanted; seconds for a query


class QueryJudge(ABC):
    """Answers "grade" and "key" for cases of one engine whose files it has received; for others, it replies "lacks".

    columns: how ORDER BY can name the result columns of the last query, if not by position.
    """

    dialect: Dialect
    columns: Sequence[str] = ()
    max_bytes = child_process.MAX_SQL_BYTES

    def __init__(self) -> None:
        self._cases = dict[str, list[tuple[Any, list[Result]]]]()  # expected results by content

    @abstractmethod
    def content_of(self, file: bytes) -> tuple[Any, Way]:
        """Return the content that `run` takes, and a function that generates others. Raises InputError."""

    @abstractmethod
    def run(self, content: Any, query: str, timeout_s: float, *, reverse: bool = False) -> list[Row]:
        """Return the rows. reverse: unordered rows come in reverse order. Raises `Stopped`."""

    def forget(self) -> None:
        """Drop all cases with their contents."""
        self._cases.clear()

    def learn(self, case: Mapping[str, Any], files: Mapping[str, str]) -> None:
        """Create the contents of a case and run its expected queries. Raises InputError."""
        if len(self._cases) >= MOST_KEPT:
            self.forget()
        self._cases[json.dumps(case)] = [*self._contents(case, files)]

    def __call__(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a verdict, a key, or that the case is not known. Raises `Stopped`, InputError."""
        rule: Rule = question["case"]["rule"]
        if "files" in question:
            self.learn(question["case"], question["files"])
        contents, end = self._cases.get(json.dumps(question["case"])), time.monotonic() + question["timeout_s"]
        if contents is None:
            return {"lacks": True}
        statement = self._statement(rule, question["answer"])
        ran = ((self.run(content, statement, end - time.monotonic()), results) for content, results in contents)
        if question["do"] == "key":
            found = [(query_rows.rows_key(rule, rows, results), bool(rows)) for rows, results in ran]
            return {"key": hashlib.sha256(repr(found).encode()).hexdigest(), "empty": not found[0][1]}
        left = [*range(len(contents[0][1]))]  # one expected query must give the rows on all contents
        for place, (rows, results) in enumerate(ran):
            wanted = results[left[0]].rows
            left = [query for query in left if query_rows.is_right(rule, rows, results[query])]
            if not left:
                told = f"right on the first content, not on content {place + 1}: " if place else ""
                told += f"{plural(len(rows), 'row')}, {len(wanted)} expected; they begin {rows[:1]}, not {wanted[:1]}"
                return {"kind": "wrong" if rows else "empty", "detail": told}
        return {"kind": "correct"}

    def _statements(self, rule: Rule, text: str) -> list[str]:
        if rule == "spider":
            text = query_rows.without(text, self.dialect, (TokenType.DISTINCT,), "")
        return query_rows.split(text, self.dialect)

    def _statement(self, rule: Rule, answer: str) -> str:
        """Return the single statement of an answer. Raises `Stopped`."""
        readable(answer, self.max_bytes)
        statements = self._statements(rule, answer)
        if len(statements) != 1 or "\0" in answer:
            raise Stopped("invalid" if statements else "empty", f"{len(statements)} statements, one query expected")
        first = query_rows.tokens(statements[0], self.dialect)[0]
        if self.dialect != "cypher" and first.text.isalpha() and first.token_type not in query_rows.BEGINS:
            raise Stopped("refused", first.text)
        return statements[0]

    def _contents(self, case: Mapping[str, Any], files: Mapping[str, str]) -> Iterator[tuple[Any, list[Result]]]:
        """Yield each content of a case with the expected results, files first. Raises InputError for a failing expected query.

        A generated content is used only if no expected result depends on the order in which unordered rows are read, and one
        of them is not empty.
        """
        rule, perturb, ways = case["rule"], case["perturb"], list[Way]()
        queries = self._statements(rule, case["expected"])
        if not queries:
            raise InputError("no expected query", "write the expected query")
        for path, file in files.items():
            try:
                content, way = self.content_of(base64.b64decode(file))
                yield content, [self._result(content, query, rule, child_process.GOLD_TIMEOUT_S) for query in queries]
            except InputError as error:
                raise InputError(f"{path}: {error}", "correct the file that the case names") from error
            except Stopped as stopped:
                told = f"the expected query fails on {path}: {stopped.detail}"
                raise InputError(told, f"correct the case's query: {case['expected'][:200]}") from stopped
            ways.append(way)
        for content in (ways[0](queries, number) for number in range(TRIED * perturb)):
            with suppress(Stopped):
                results = [self._result(content, query, rule, QUERY_S) for query in queries]
                again = [self.run(content, query, QUERY_S, reverse=True) for query in queries]
                if all(map(query_rows.same, again, results)) and any(any(row) for one in results for row in one.rows):
                    yield content, results
                    perturb -= 1
            if not perturb:
                break

    def _result(self, content: Any, query: str, rule: Rule, timeout_s: float) -> Result:
        run = partial(self.run, content, timeout_s=timeout_s)
        lists, rows = self.dialect != "cypher" or query_rows.orders_lists(query), run(query)
        if rule == "spider":
            return Result(rows, "ORDER BY" in query_rows.words(query_rows.tokens(query, self.dialect)), lists)
        if not query_rows.orders_rows(query, self.dialect):
            return Result(rows, False, lists)
        own = Result(rows, True, lists)
        columns = self.columns or [str(place) for place, _ in enumerate(rows[0] if rows else (), start=1)]
        return replace(own, ties=query_rows.find_ties(query, self.dialect, own, run, columns))


_UNKNOWN_NAME = re.compile("no such (table|column): |cannot join using column ")
_READING = frozenset((apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE))
"""The allowed actions. All others change something, or reach outside the database."""


class ReadOnly:
    """Runs one query at a time on a copy of a database, within limits of time and memory; refuses to write."""

    def __init__(self, connection: Any, *, also: Sequence[int] = (), value_bytes: int = MAX_VALUE_BYTES) -> None:
        """Allow only reading and the actions in `also`."""
        self._connection, self._allowed, self._refusal = connection, _READING | set(also), ""
        self._shown: tuple[bytes, bool] | None = None
        connection.execute("PRAGMA temp_store = MEMORY").fetchall()
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, value_bytes)
        connection.limit(apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200)
        connection.authorizer = self._authorize

    def show(self, content: bytes, *, reverse: bool) -> None:
        """Replace the database. reverse: unordered rows come in reverse order."""
        if self._shown != (content, reverse):
            self._shown, self._connection.authorizer = (content, reverse), None
            self._connection.deserialize("main", content)
            self._connection.execute(f"PRAGMA reverse_unordered_selects = {int(reverse)}").fetchall()
            self._connection.authorizer = self._authorize

    def run(self, statement: str, bindings: Sequence[Any] = (), *, timeout_s: float) -> list[Row]:
        """Return the rows. Raises `Stopped`."""
        self._refusal, fault, rows, deadline = "", None, list[Row](), time.monotonic() + timeout_s
        self._connection.set_progress_handler(lambda: time.monotonic() > deadline, 1_000)
        apsw.hard_heap_limit(apsw.memory_used() + child_process.HEAP_BYTES)
        try:
            rows = bounded(self._connection.execute(statement, bindings))
        except (apsw.Error, MemoryError, UnicodeError, re.error, TypeError) as error:  # TypeError: a Cypher pattern
            fault = error
        finally:
            apsw.hard_heap_limit(0)
            self._connection.set_progress_handler(None)
        if self._refusal:
            raise Stopped("refused", self._refusal)
        if time.monotonic() > deadline:
            raise Stopped("timeout", f"not done after {timeout_s:g} s")
        if isinstance(fault, apsw.TooBigError | apsw.NoMemError | apsw.FullError | MemoryError):
            raise Stopped("too_large", f"a value is too large: {fault}") from fault
        if fault is not None:
            raise Stopped("unknown_name" if _UNKNOWN_NAME.match(str(fault)) else "invalid", str(fault)) from fault
        return rows

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        reaches_out = action == apsw.SQLITE_FUNCTION and str(second).lower() in ("load_extension", "fts3_tokenizer")
        if action in self._allowed and not reaches_out:
            return apsw.SQLITE_OK
        what = str(apsw.mapping_authorizer_function[action]).removeprefix("SQLITE_").replace("_", " ")
        self._refusal = self._refusal or " ".join(filter(None, (what, first, second)))
        return apsw.SQLITE_DENY


class SqliteJudge(QueryJudge):
    """Judges SQL. A content is an SQLite file."""

    dialect = "sqlite"

    def __init__(self) -> None:
        super().__init__()
        self._guard = ReadOnly(apsw.Connection(":memory:", statementcachesize=0))  # those are of another database

    def content_of(self, file: bytes) -> tuple[bytes, Way]:
        """Return the bytes of a file, and a function that generates other contents. Raises InputError."""
        file = file[:18] + file[18:20].replace(b"\x02\x02", b"\x01\x01") + file[20:]  # WAL mode does not open in memory
        try:
            return file, database_contents(file)
        except apsw.Error as error:
            raise InputError(f"not an SQLite database: {error}") from error

    def run(self, content: bytes, query: str, timeout_s: float, *, reverse: bool = False) -> list[Row]:
        """Return the rows, blobs as hexadecimal text after "x". Raises `Stopped`."""
        self._guard.show(content, reverse=reverse)
        rows = self._guard.run(query, timeout_s=timeout_s)
        return [tuple("x" + cell.hex() if isinstance(cell, bytes) else cell for cell in row) for row in rows]
