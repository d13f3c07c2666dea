"""Engines keep their own limits of time and memory; that they are ended is the last resort."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import psutil
import pytest

from expert_cli.errors import EnvironmentProblem
from expert_cli.evaluation.verifiers.sandbox import engine_server
from expert_cli.evaluation.verifiers.sandbox.engine_client import EngineProcess
from expert_cli.evaluation.verifiers.sandbox.limits import MEMORY_BYTES, Stopped
from expert_cli.evaluation.verifiers.sandbox.sqlite_guard import ReadOnlySqlite

ENDLESS = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT "


def engines(tmp_path: Path, name: Any) -> EngineProcess:
    path = tmp_path / "source"
    if name == "graphqlite":
        path.write_text("CREATE (:A {x: 1});", encoding="utf-8")
    else:
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE t(x)")
        connection.close()
    return EngineProcess(name, path)


@pytest.mark.parametrize(
    ("name", "query", "after"),
    [
        pytest.param("sqlite", f"{ENDLESS} count(*) FROM t", "SELECT 1", id="sqlite"),
        pytest.param(
            "graphqlite",
            "UNWIND range(1, 9999) AS a UNWIND range(1, 9999) AS b RETURN count(*)",
            "RETURN 1",
            id="graph",
        ),
    ],
)
def test_a_long_query_is_stopped_and_the_engine_lives(tmp_path: Path, name: str, query: str, after: str) -> None:
    engine = engines(tmp_path, name)
    assert engine.run(after, timeout_s=5) == [(1,)]
    processes = set(psutil.Process().children())
    with pytest.raises(Stopped) as stopped:
        engine.run(query, timeout_s=0.3)
    assert stopped.value.kind == "timeout"
    assert engine.run(after, timeout_s=5) == [(1,)]
    assert set(psutil.Process().children()) == processes
    engine.close()
    assert len(set(psutil.Process().children())) == len(processes) - 1


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limits")
@pytest.mark.parametrize(
    "act", ["open(path + '2', 'w')", "os.write(held, b'x')"], ids=["another file", "a file that is open"]
)
def test_an_engine_writes_no_file(tmp_path: Path, act: str) -> None:
    program = "\n".join(
        (
            "import os, sys",
            "from expert_cli.evaluation.verifiers.sandbox.engine_server import set_rlimits",
            "path = sys.argv[1]",
            "held = os.open(path, os.O_CREAT | os.O_WRONLY)",
            "set_rlimits()",
            f"try: {act}",
            "except OSError: print('refused')",
        )
    )
    command = [sys.executable, "-c", program, str(tmp_path / "held")]
    package = Path(engine_server.__file__).parents[4]
    done = subprocess.run(command, cwd=package, capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"
    assert [(path.name, path.stat().st_size) for path in tmp_path.iterdir()] == [("held", 0)]


def test_the_memory_of_a_query_is_bounded() -> None:
    guard = ReadOnlySqlite(apsw.Connection(":memory:"))
    held = apsw.memory_used()  # by connections of other tests in this process
    apsw.memory_high_water(True)
    with pytest.raises(Stopped) as stopped:
        guard.run(f"{ENDLESS} n, hex(randomblob(9000)) AS r FROM t ORDER BY r", timeout_s=20)
    assert stopped.value.kind == "too_large"
    assert apsw.memory_high_water() - held < 1.2 * MEMORY_BYTES
    assert guard.run("SELECT 1", timeout_s=20) == [(1,)]


def test_a_missing_engine_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("expert_cli.evaluation.verifiers.requirements.has_package", lambda name: name == "apsw")
    with pytest.raises(EnvironmentProblem, match="the package graphqlite is missing"):
        EngineProcess("graphqlite", tmp_path / "source")
