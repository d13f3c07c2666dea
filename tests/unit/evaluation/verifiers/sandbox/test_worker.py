"""Engines keep their own limits of time and memory; a process that breaks or hangs is replaced."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import psutil
import pytest

from expert_cli.evaluation.verifiers.case import Stopped
from expert_cli.evaluation.verifiers.sandbox.child_process import HEAP_BYTES, Worker
from expert_cli.evaluation.verifiers.sandbox.sqlite import ReadOnly
from tests import graders

ENDLESS = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT "
CARTESIAN = "UNWIND range(1, 9999) AS a UNWIND range(1, 9999) AS b RETURN count(*)"
ANSWERS = {"sql": (f"{ENDLESS} count(*) FROM t", "SELECT 1"), "cypher": (CARTESIAN, "RETURN 1")}


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Path]:
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as connection:
        connection.execute("CREATE TABLE t(x)")
    (tmp_path / "a.cypher").write_text("CREATE (:A {x: 1});", encoding="utf-8")
    return {"sql": tmp_path / "a.sqlite", "cypher": tmp_path / "a.cypher"}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_long_query_is_stopped_and_its_process_lives(sources: dict[str, Path], name: str) -> None:
    endless, right = ANSWERS[name]
    grade = getattr(graders, name)
    assert grade(right, sources[name], right).passed
    processes = set(psutil.Process().children())
    assert grade(endless, sources[name], right, timeout_s=0.3).kind == "timeout"
    assert grade(right, sources[name], right).passed
    assert set(psutil.Process().children()) == processes


def test_a_process_that_breaks_is_replaced_and_knows_the_case_again(sources: dict[str, Path]) -> None:
    assert graders.cypher("RETURN 1", sources["cypher"], "RETURN 1").passed
    started = [
        child
        for child in psutil.Process().children()
        if any("graphqlite:CypherJudge" in word for word in child.cmdline())
    ]
    for child in started:
        child.kill()
    for _ in started:
        assert "crashed" in graders.cypher("RETURN 1", sources["cypher"], "RETURN 1").detail
    assert graders.cypher("RETURN 1", sources["cypher"], "RETURN 1").passed
    assert not {child.pid for child in started} & {child.pid for child in psutil.Process().children()}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limits")
@pytest.mark.parametrize(
    "act", ["open(path + '2', 'w')", "os.write(held, b'x')"], ids=["another file", "a file that is open"]
)
def test_a_process_writes_no_file(tmp_path: Path, act: str) -> None:
    program = "\n".join(
        (
            "import os, sys",
            "from expert_cli.evaluation.verifiers.sandbox.child_process import set_rlimits",
            "path = sys.argv[1]",
            "held = os.open(path, os.O_CREAT | os.O_WRONLY)",
            "set_rlimits()",
            f"try: {act}",
            "except OSError: print('refused')",
        )
    )
    command = [sys.executable, "-c", program, str(tmp_path / "held")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"
    assert [(path.name, path.stat().st_size) for path in tmp_path.iterdir()] == [("held", 0)]


@pytest.mark.skipif(sys.platform == "win32", reason="another system's variables")
def test_a_process_has_nothing_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    before = set(psutil.Process().children())
    case = {"files": ["one"], "expected": "SELECT 1", "rule": "strict", "perturb": 0}
    worker = Worker("expert_cli.evaluation.verifiers.sandbox.sqlite:SqliteJudge")
    assert worker.ask({"do": "grade", "case": case, "answer": "", "timeout_s": 1}, 10) == {"lacks": True}
    (child,) = set(psutil.Process().children()) - before
    assert set(child.environ()) <= {"PATH", "OPENSSL_CONF"}


def test_the_memory_of_a_query_is_bounded() -> None:
    guard = ReadOnly(apsw.Connection(":memory:"))
    held = apsw.memory_used()  # by connections of other tests in this process
    apsw.memory_high_water(True)
    with pytest.raises(Stopped) as stopped:
        guard.run(f"{ENDLESS} n, hex(randomblob(9000)) AS r FROM t ORDER BY r", timeout_s=20)
    assert stopped.value.kind == "too_large"
    assert apsw.memory_high_water() - held < 1.2 * HEAP_BYTES
    assert guard.run("SELECT 1", timeout_s=20) == [(1,)]
