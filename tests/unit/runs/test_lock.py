"""One run a folder: owners live, dead, killed with children, and on other machines."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from expert_cli.config.plan import require_free
from expert_cli.errors import RunLocked
from expert_cli.runs import lock
from expert_cli.runs.lock import birth, contents, run_lock, running
from expert_cli.utils.files import write_json
from expert_cli.utils.paths import cache_folder

SOURCE = Path(lock.__file__).parents[2]
# Holds the folder named; ends when its standard input does.
OWNER = """
import pathlib, sys
from expert_cli.runs.lock import run_lock
with run_lock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "user"))


def entry(pid: int) -> Path:
    """Return where a run's process notes that it is under way."""
    return cache_folder() / "running" / f"{platform.node()}-{pid}.json"


@contextmanager
def owner(output: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", OWNER, str(output)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", env=environment
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_the_second_run_is_told_who_owns_the_folder_and_a_killed_owner_owns_nothing(tmp_path: Path) -> None:
    with owner(tmp_path / "out") as process:
        with pytest.raises(RunLocked) as caught, run_lock(tmp_path / "out"):
            pass
        told = f"{tmp_path / 'out'} belongs to another run with process id {process.pid}, started 20"
        assert caught.value.message.startswith(told)
        assert caught.value.exit_code == 6
        with run_lock(tmp_path / "another"):
            assert [(run.pid, run.output.name) for run in running()] == [(process.pid, "out"), (os.getpid(), "another")]
        assert [run.pid for run in running()] == [process.pid]
        process.kill()
        process.wait()
        assert entry(process.pid).exists()
        with run_lock(tmp_path / "out"):
            assert [run.pid for run in running()] == [os.getpid()]
        assert not entry(process.pid).exists()
    assert running() == []


def test_what_a_dead_owner_left_running_is_waited_for(tmp_path: Path) -> None:
    with owner(tmp_path / "out") as process:
        entry(process.pid).unlink()
        threading.Timer(0.5, process.kill).start()
        with run_lock(tmp_path / "out"):
            assert process.poll() is not None


def test_an_owner_that_is_not_known_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "ORPHANS_END_S", 0.3)
    with owner(tmp_path / "out") as process:
        entry(process.pid).unlink()
        with pytest.raises(RunLocked, match=r"out belongs to another run$"):
            run_lock(tmp_path / "out").__enter__()


def test_the_folder_may_be_missing_empty_and_renamed(tmp_path: Path) -> None:
    output = tmp_path / "weights" / "model"
    with run_lock(output):
        assert not output.exists()
        output.mkdir()
        assert list(output.iterdir()) == []
        output.rename(output.with_name("aside"))
        output.mkdir()
        with pytest.raises(RunLocked):
            run_lock(output).__enter__()
    assert sorted(path.name for path in output.parent.iterdir()) == [".model.lock", "aside", "model"]


def test_a_mounted_folder_holds_its_own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "out"
    output.mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == output)
    with run_lock(output):
        assert [path.name for path in output.iterdir()] == [".run.lock"]
        assert contents(output) == []
        require_free(output, overwrite=False)
        with pytest.raises(RunLocked):
            run_lock(output).__enter__()
        (output / "status.json").touch()  # of a run that ended before it began to train
        require_free(output, overwrite=False)
        (output / "run.json").touch()
        with pytest.raises(RunLocked, match="already contains a run"):
            require_free(output, overwrite=False)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(json.dumps({"pid": os.getpid(), "birth": 5.0, "output": "x", "started": 5.0}), id="pid reused"),
        pytest.param("", id="empty"),
        pytest.param("[1]", id="another form"),
        pytest.param(json.dumps({"pid": os.getpid(), "started": 5.0}), id="no birth"),
    ],
)
def test_stale_entries_are_removed(text: str) -> None:
    stale = entry(7)
    stale.parent.mkdir(parents=True)
    stale.write_text(text, encoding="utf-8")
    assert running() == []
    assert not stale.exists()


def test_a_run_of_another_machine_that_shares_the_home_is_neither_told_nor_forgotten() -> None:
    for host, pid in (("other", os.getpid()), (f"{platform.node()}-2", 4_000_000)):
        theirs = cache_folder() / "running" / f"{host}-{pid}.json"
        write_json(theirs, {"pid": pid, "birth": birth(os.getpid()), "host": host, "started": 1.0, "output": "/out"})
        assert running() == []
        assert theirs.exists()
