"""What SQL and Cypher have in common: an answer's rows against those of the expected queries, on one content or several."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from expert_cli.errors import ExpertError, InputError
from expert_cli.evaluation.verdict import Grade
from expert_cli.evaluation.verifiers.case import Case
from expert_cli.evaluation.verifiers.compare_rows import Result, Row, judge_rows
from expert_cli.evaluation.verifiers.order_ties import find_ties
from expert_cli.evaluation.verifiers.query_text import (
    Dialect,
    orders_lists,
    orders_rows,
    orders_within,
    split,
    without_distinct,
)
from expert_cli.evaluation.verifiers.rules import Rule, judge_by, rows_key
from expert_cli.evaluation.verifiers.sandbox.engine_client import Contents, EngineProcess
from expert_cli.evaluation.verifiers.sandbox.limits import GOLD_TIMEOUT_S, Stopped, readable

Judge = Callable[[Sequence[Row], Sequence[Result]], Grade]


@dataclass(frozen=True)
class Accepted:
    """What the expected queries return. results: of each content asked, the source first, the result of each query.

    contents: those made for the case; None for none.
    """

    results: Sequence[tuple[Result, ...]]
    contents: Contents | None = None


@dataclass
class Source:
    """A database or graph, opened once for many answers; expected queries run once.

    where: as messages name it. refuse: raises `Stopped` for a statement that the engine must not see. unknown: tells what a
    statement names that is not there, where the engine itself says nothing of it; "" for nothing.
    """

    where: str
    engine: EngineProcess
    dialect: Dialect
    max_bytes: int
    refuse: Callable[[str], None] = lambda _: None
    unknown: Callable[[str], str] = lambda _: ""
    known: dict[tuple[str, int], Accepted] = field(default_factory=dict)

    def check(
        self, answer: str, expected: str, perturb: int = 0, *, timeout_s: float, judge: Judge = judge_rows
    ) -> Grade:
        """Judge one answer. perturb: so many contents made of the source are asked, too.

        judge: tells by an answer's rows and the accepted results. The time is that of all contents together. Raises
        InputError where an expected query fails.
        """
        accepted = self._accepted(expected, perturb)
        end = time.monotonic() + timeout_s
        try:
            readable(answer, self.max_bytes)
            statement = self._statement(answer, timeout_s)
            rows = self._run(statement, timeout_s)
            first, others = accepted.results[0], accepted.results[1:]
            grade = judge(rows, first)
            unknown = "" if grade.passed else self.unknown(statement)
            if unknown:
                return Grade("unknown_name", f"{unknown}; {grade.detail}")
            if not grade.passed or not others:
                return grade
            places = range(1, len(accepted.results))
            left_s = max(LEAST_S, end - time.monotonic())
            found = self.engine.run_in(statement, places, accepted.contents, timeout_s=left_s)
        except Stopped as stopped:
            return stopped.verdict
        return _judge_others([rows, *found], accepted.results, judge)

    def results(
        self, answer: str, expected: str, perturb: int = 0, *, timeout_s: float
    ) -> list[tuple[Sequence[Row], tuple[Result, ...]]]:
        """Return an answer's rows on every content, beside those of the expected queries. Raises `Stopped`, and as `check`."""
        accepted = self._accepted(expected, perturb)
        readable(answer, self.max_bytes)
        statement = self._statement(answer, timeout_s)
        places = range(len(accepted.results))
        if len(places) == 1:
            return [(self._run(statement, timeout_s), accepted.results[0])]
        self.refuse(statement)
        rows = self.engine.run_in(statement, places, accepted.contents, timeout_s=timeout_s)
        return list(zip(rows, accepted.results, strict=True))

    def _statement(self, answer: str, timeout_s: float) -> str:
        """Return the one statement of an answer. Raises `Stopped`."""
        if "\0" in answer:
            raise Stopped("invalid", "the answer holds characters that are not text")
        statements = split(answer, self.dialect)
        if not statements:
            raise Stopped("empty", "no query")
        if len(statements) > 1:
            for statement in statements[:MAX_LOOKS]:
                self.refuse(statement)
                self.engine.prepare(statement, timeout_s=timeout_s)
            raise Stopped("invalid", f"{len(statements)} statements, one query expected")
        return statements[0]

    def _run(self, statement: str, timeout_s: float) -> list[tuple[Any, ...]]:
        self.refuse(statement)
        return self.engine.run(statement, timeout_s=timeout_s)

    def _accepted(self, expected: str, perturb: int) -> Accepted:
        if (expected, perturb) not in self.known:
            queries = split(expected, self.dialect)
            if not queries:
                raise InputError("no expected query", "write the query whose rows are right")
            self.known[expected, perturb] = self._expect(queries, perturb)
        return self.known[expected, perturb]

    def _expect(self, queries: Sequence[str], perturb: int) -> Accepted:
        """Run the expected queries. Raises InputError where one fails on a source."""
        own = len(self.engine.sources)
        results = [[self._result(query, self._gold(query, place), place) for query in queries] for place in range(own)]
        if not perturb:
            return Accepted([tuple(one) for one in results])
        contents = Contents(tuple(queries), self.dialect, perturb)
        try:
            places = range(own, own + self.engine.make(contents))
            columns = [self.engine.run_in(query, places, contents, timeout_s=GOLD_TIMEOUT_S) for query in queries]
        except Stopped as stopped:
            message = f"{self.where}: no other contents can be made of it: {stopped.verdict.detail}"
            raise InputError(message, "leave perturb out, or name a list of files") from stopped
        made = [
            tuple(self._result(query, found, place, contents) for query, found in zip(queries, rows, strict=True))
            for place, rows in zip(places, zip(*columns, strict=True), strict=True)
        ]
        return Accepted([*(tuple(one) for one in results), *made], contents)

    def _result(self, query: str, rows: list[tuple[Any, ...]], place: int, contents: Contents | None = None) -> Result:
        dialect = self.dialect
        lists = dialect != "cypher" or orders_lists(query)
        run = partial(self._expected_rows, place=place, contents=contents)
        ties = cache(partial(find_ties, query, dialect, rows, run, ordered_lists=lists))
        return Result(rows, orders_rows(query, dialect), lists, ties, orders_within(query, dialect))

    def _expected_rows(self, query: str, place: int, contents: Contents | None = None) -> list[tuple[Any, ...]]:
        if place == 0:
            return self._run(query, GOLD_TIMEOUT_S)
        return self.engine.run_in(query, (place,), contents, timeout_s=GOLD_TIMEOUT_S)[0]

    def _gold(self, query: str, place: int) -> list[tuple[Any, ...]]:
        try:
            return self._expected_rows(query, place)
        except Stopped as stopped:
            where = self.engine.sources[place] if place else self.where
            message = f"the expected query fails on {where}: {stopped.verdict.detail}"
            raise InputError(message, f"correct the case's query: {query[:200]}") from stopped


def _judge_others(rows: Sequence[Sequence[Row]], accepted: Sequence[tuple[Result, ...]], judge: Judge) -> Grade:
    """Judge the rows of every content: correct if they are everywhere those of one expected query, the same one."""
    left = list(range(len(accepted[0])))
    for place, (found, results) in enumerate(zip(rows, accepted, strict=True)):
        still = [query for query in left if _is_right(found, results[query], judge)]
        if not still:
            grade = judge(found, [results[query] for query in left])
            told = f"right on the first content, not on content {place + 1}: {grade.detail}"
            return Grade(grade.kind, told, reached=grade.reached)
        left = still
    return Grade("correct")


def _is_right(found: Sequence[Row], result: Result, judge: Judge) -> bool:
    same = repr(found) == repr(result.rows)  # told at once, and true of most right answers
    return same or judge(found, (result,)).passed


LEAST_S = 0.05
MAX_LOOKS = 10
MAX_CONTENTS = 100


class QueryCase(Case):
    """A query whose rows must be those of the expected one."""

    expected: str = Field(min_length=1, description="One or more accepted queries, each ended by a semicolon.")
    rule: Rule = Field(
        default="strict",
        description="How rows are compared: docs/JUDGING.md says what each of the two takes for equal.",
    )
    perturb: int | None = Field(
        default=None,
        ge=1,
        le=MAX_CONTENTS,
        description="So many other contents are made of the one that is named: an answer must be right on all.",
    )

    @property
    def criterion(self) -> str:
        """The accepted queries."""
        return self.expected

    def located(self, folder: Path) -> Case:
        """Return the case with paths that do not depend on the folder of its row."""
        return self.model_copy(update={self.file_key: [str((folder / name).resolve()) for name in self.file_names]})

    def require_sound(self) -> None:
        """Raise InputError for several files that others are to be made of."""
        if self.perturb and len(self.file_names) > 1:
            raise InputError(f"perturb: {len(self.file_names)} files are named", "perturb goes with one file")

    @abstractmethod
    def source(self, files: Sequence[FileState]) -> Source:
        """Return what is asked: the one of before, where the files, their sizes and times are the same."""

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:
        """Compare the rows of the answer with those of the accepted queries, on every content.

        Where the expected query orders them, rows are compared in order; those that it leaves tied may change places. The
        engine has a process of its own, kept for the next answer; files are read once, and never written.

        Raises InputError where a file cannot be read or an expected query fails, EnvironmentProblem without the engine.
        """
        source, answer, expected = self._asked(answer, file)
        judge = partial(judge_by, self.rule)
        return source.check(answer, expected, self.perturb or 0, timeout_s=timeout_s, judge=judge)

    def result_key(self, answer: str, file: Path | None, timeout_s: float) -> Hashable:
        """Return the answer's rows on every content, the same for those that the case's rule takes for equal."""
        source, answer, expected = self._asked(answer, file)
        results = source.results(answer, expected, self.perturb or 0, timeout_s=timeout_s)
        return tuple(rows_key(self.rule, *one) for one in results)

    def is_empty(self, key: Hashable) -> bool:
        """Whether an answer gives no rows of the file as it is."""
        return isinstance(key, tuple) and not key[0]

    def _asked(self, answer: str, file: Path | None) -> tuple[Source, str, str]:
        """Return what is asked, and the answer and the expected queries as they are run."""
        if file is None:
            raise ExpertError("a case without its file")
        source = self.source(tuple(map(_state, (file, *map(Path, self.file_names[1:])))))
        if self.rule == "spider":
            return source, without_distinct(answer, source.dialect), without_distinct(self.expected, source.dialect)
        return source, answer, self.expected


class FileState(NamedTuple):
    """A file, and what tells that it was changed."""

    path: Path
    size: int
    mtime_ns: int


def _state(file: Path) -> FileState:
    try:
        facts = file.stat()
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}", "give the path of a file that is there") from error
    return FileState(file, facts.st_size, facts.st_mtime_ns)
