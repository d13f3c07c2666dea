"""Runs the queries of rows: on the database that a row names, where it is at hand; else SQL is compiled against the row's own
schema, and Cypher asked of an empty graph, which shows whether they parse, but not what they return.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Literal, NamedTuple

from expert_cli.errors import ExpertError
from expert_cli.evaluation.audit.rows import AuditRow
from expert_cli.evaluation.audit.sql_schema import compile_fault, is_syntax_fault, open_schema, schema_of
from expert_cli.evaluation.verifiers.query_text import Dialect, split
from expert_cli.evaluation.verifiers.sandbox.engine_client import Engine, EngineProcess
from expert_cli.evaluation.verifiers.sandbox.limits import Stopped
from expert_cli.utils.reporter import Reporter, late_progress

TIMEOUT_S = 5.0
SUFFIXES: Mapping[Engine, tuple[str, ...]] = {"sqlite": (".sqlite", ".db"), "graphqlite": (".cypher",)}
DIALECTS: Mapping[Engine, Dialect] = {"sqlite": "sqlite", "graphqlite": "cypher"}
_QUERIES_AT_ONCE = 500
_LIBRARY = re.compile(r"\b(?:apoc|gds)\.", re.IGNORECASE)
_EMPTY_GRAPH = "RETURN 1"  # of an empty script graphqlite makes no tables


class Outcome(NamedTuple):
    """What became of a query. fault: `detail` says what is wrong; not_run: why nobody knows. result: a hash of its rows."""

    kind: Literal["ran", "empty", "parsed", "fault", "not_run"]
    detail: str = ""
    result: str = ""


Outcomes = dict[int, Outcome]
_Work = Callable[[Event], Outcomes]


def run_queries(
    rows: Sequence[AuditRow], queries: Sequence[str], engine: Engine, databases: Path | None, report: Reporter
) -> Outcomes:
    """Run the query of every row. databases: a folder of `NAME.sqlite`, or `NAME.cypher`, by what the rows name.

    Raises EnvironmentProblem where the engine is not installed.
    """
    by_file: dict[Path | None, list[int]] = defaultdict(list)
    files: dict[str, Path | None] = {}
    for number, row in enumerate(rows):
        if row.database not in files:
            files[row.database] = database_file(databases, row.database, SUFFIXES[engine])
        by_file[files[row.database]].append(number)
    elsewhere = by_file.pop(None, [])
    work: list[_Work] = [partial(_on_file, engine, file, queries, numbers) for file, numbers in by_file.items() if file]
    outcomes: Outcomes = {}
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        late_progress(report, "running queries", len(rows), "queries") as show,
    ):
        if engine == "sqlite":
            work += _on_schemas(rows, queries, elsewhere)
        else:
            script = Path(folder) / "empty.cypher"
            script.write_text(_EMPTY_GRAPH, encoding="utf-8")
            work += _on_empty_graph(script, queries, elsewhere)
        for done in _at_once(work):
            outcomes |= done
            show(len(outcomes))
    return outcomes


def _at_once(work: Sequence[_Work]) -> Iterator[Outcomes]:
    """Do several pieces of work at a time, and yield what comes out in their order."""
    stop = Event()
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        try:
            yield from pool.map(lambda piece: piece(stop), work)
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _on_file(engine: Engine, file: Path, queries: Sequence[str], numbers: Sequence[int], stop: Event) -> Outcomes:
    outcomes: Outcomes = {}
    asked: dict[str, Outcome] = {}
    try:
        process = EngineProcess(engine, file)
        try:
            for number in numbers:
                if stop.is_set():
                    break
                query = queries[number]
                if query not in asked:
                    asked[query] = _ask(process, engine, file.name, query)
                outcomes[number] = asked[query]
        finally:
            process.close()
    except ExpertError as error:
        missing = Outcome("not_run", f"{file.name}: {error.message}")
        return {number: outcomes.get(number, missing) for number in numbers}
    return outcomes


def _ask(process: EngineProcess, engine: Engine, where: str, query: str) -> Outcome:
    statement, fault = _single(query, DIALECTS[engine])
    if fault:
        return fault
    try:
        result = process.run(statement, timeout_s=TIMEOUT_S)
    except Stopped as stopped:
        if stopped.kind == "parsed_only":  # the engine lacks something of the language
            return Outcome("not_run", stopped.detail)
        if engine == "graphqlite" and stopped.kind == "invalid" and not _is_fault(stopped.detail, query):
            return Outcome("not_run", "graphqlite cannot run it, which says nothing of the query")
        if stopped.kind in ("timeout", "too_large"):
            return Outcome("not_run", f"over the limits of one answer ({stopped.kind})")
        return Outcome("fault", f"{where}: {stopped.detail}")
    return Outcome("ran" if result else "empty", where, _digest(result))


def _is_fault(told: str, query: str) -> bool:
    """Whether a query of Cypher is at fault for what graphqlite says; its SQL may fail, and it has no libraries."""
    return "SyntaxError" in told and not _LIBRARY.search(query)


def _single(query: str, dialect: Dialect) -> tuple[str, Outcome | None]:
    """The one statement of a query; none or several are a fault."""
    statements = split(query, dialect)
    if len(statements) == 1:
        return statements[0], None
    told = f"{len(statements)} statements, one query expected" if statements else "no query"
    return "", Outcome("fault", told)


def _on_empty_graph(script: Path, queries: Sequence[str], numbers: Sequence[int]) -> list[_Work]:
    by_query: dict[str, list[int]] = defaultdict(list)
    for number in numbers:
        by_query[queries[number]].append(number)
    texts = list(by_query)

    def parse(part: Sequence[str], stop: Event) -> Outcomes:
        asked = _on_file("graphqlite", script, part, range(len(part)), stop)
        told = {
            at: outcome if outcome.kind in ("fault", "not_run") else Outcome("parsed") for at, outcome in asked.items()
        }
        return {number: outcome for at, outcome in told.items() for number in by_query[part[at]]}

    parts = (texts[at : at + _QUERIES_AT_ONCE] for at in range(0, len(texts), _QUERIES_AT_ONCE))
    return [partial(parse, part) for part in parts]


def _on_schemas(rows: Sequence[AuditRow], queries: Sequence[str], numbers: Sequence[int]) -> list[_Work]:
    by_schema: dict[str, list[int]] = defaultdict(list)
    for number in numbers:
        by_schema[schema_of(rows[number].input, rows[number].question)].append(number)

    def compile_all(schema: str, _: Event) -> Outcomes:
        mine = by_schema[schema]
        connection, fault = open_schema(schema)
        with connection:
            return {number: _compile(connection, fault, queries[number]) for number in mine}

    return [partial(compile_all, schema) for schema in by_schema]


def _compile(connection: Any, schema_fault: str, query: str) -> Outcome:
    statement, several = _single(query, "sqlite")
    if several:
        return several
    fault = compile_fault(connection, statement)
    if fault and schema_fault and not is_syntax_fault(fault):
        return Outcome("not_run", f"only parsed: {schema_fault}")
    return Outcome("fault", fault) if fault else Outcome("parsed")


def database_file(folder: Path | None, name: str, suffixes: Sequence[str]) -> Path | None:
    """Return the database of a name in a folder, `NAME.sqlite` or `NAME/NAME.sqlite`; None where there is none."""
    if folder is None or not name or Path(name).name != name:
        return None
    places = [home / f"{name}{suffix}" for home in (folder, folder / name) for suffix in suffixes]
    return next((place for place in places if place.is_file()), None)


def _digest(result: Sequence[tuple[Any, ...]]) -> str:
    """A hash of rows in any order."""
    rows = sorted(json.dumps(row, default=str) for row in result)
    return hashlib.sha256("\n".join(rows).encode("utf-8", "surrogatepass")).hexdigest()[:16]
