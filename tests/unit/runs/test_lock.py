"""One run a folder: owners live, dead, killed with children, and on other machines."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from expert_cli.config.plan import require_free
from expert_cli.errors import RunLocked
from expert_cli.runs import lock
from expert_cli.runs.lock import RunningRun, birth, contents, is_held, run_lock, running
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


def test_the_second_run_is_told_who_owns_the_folder(tmp_path: Path) -> None:
    with owner(tmp_path / "out") as process:
        with pytest.raises(RunLocked) as caught, run_lock(tmp_path / "out"):
            pass
        told = f"{tmp_path / 'out'} belongs to another run with process id {process.pid}, started 20"
        assert caught.value.message.startswith(told)
        assert caught.value.exit_code == 6
        with run_lock(tmp_path / "another"):
            pass
        process.communicate()
    with run_lock(tmp_path / "out"):
        pass


@pytest.mark.skipif(os.name != "posix", reason="links need rights on Windows")
def test_a_folder_under_another_name_is_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "out")
    with run_lock(tmp_path / "out"), pytest.raises(RunLocked):
        run_lock(tmp_path / "link").__enter__()


def test_a_killed_owner_owns_nothing(tmp_path: Path) -> None:
    with owner(tmp_path / "out") as process:
        process.kill()
        process.wait()
        assert entry(process.pid).exists()
        started = time.monotonic()
        with run_lock(tmp_path / "out"):
            assert [run.pid for run in running()] == [os.getpid()]
        assert time.monotonic() - started < lock.ORPHANS_END_S
        assert not entry(process.pid).exists()


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


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_beside_which_nothing_can_be_written(tmp_path: Path) -> None:
    inside_the_folder(tmp_path, lambda: tmp_path.chmod(0o500))


def test_a_mounted_folder_holds_its_own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = tmp_path / "out"
    inside_the_folder(tmp_path, lambda: monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == volume))


def inside_the_folder(tmp_path: Path, change: Callable[[], None]) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (tmp_path / "user").mkdir()
    change()
    with run_lock(output):
        assert sorted(path.name for path in output.iterdir()) == [".run.lock"]
        assert contents(output) == []
        require_free(output, overwrite=False)
        with pytest.raises(RunLocked):
            run_lock(output).__enter__()
        (output / "run.json").touch()
        with pytest.raises(RunLocked, match="holds a run already"):
            require_free(output, overwrite=False)
    tmp_path.chmod(0o700)


def test_running_tells_the_living(tmp_path: Path) -> None:
    assert running() == []
    with owner(tmp_path / "a") as first:
        before = time.time()
        with run_lock(tmp_path / "b"):
            mine, theirs = running()[1], running()[0]
            assert mine == RunningRun(os.getpid(), (tmp_path / "b").resolve(), mine.started)
            assert before - 1 < mine.started < before + 5
            assert (theirs.pid, theirs.output) == (first.pid, (tmp_path / "a").resolve())
        assert [run.pid for run in running()] == [first.pid]
        first.communicate()
    assert running() == []


@pytest.mark.skipif(platform.system() != "Linux", reason="elsewhere a process keeps the time it was started at")
def test_a_clock_that_is_set_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with owner(tmp_path / "out") as process:
        before, boot = psutil.Process(process.pid).create_time(), psutil.boot_time()
        monkeypatch.setattr("psutil._pslinux.boot_time", lambda: boot + 3600)
        assert psutil.Process(process.pid).create_time() == pytest.approx(before + 3600, abs=1)
        assert [run.pid for run in running()] == [process.pid]
        with pytest.raises(RunLocked, match=f"process id {process.pid}"):
            run_lock(tmp_path / "out").__enter__()


def test_who_holds_a_folder_need_not_be_known(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    with owner(tmp_path / "out") as process:
        entry(process.pid).unlink()
        assert is_held(tmp_path / "out")
        process.kill()
        process.wait()
        assert not is_held(tmp_path / "out")
    with run_lock(tmp_path / "out"):
        assert is_held(tmp_path / "out")


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


def test_a_cache_that_cannot_be_written_stops_no_run(tmp_path: Path) -> None:
    cache_folder().parent.mkdir(parents=True)
    cache_folder().write_text("a file", encoding="utf-8")
    with run_lock(tmp_path / "out"):
        assert running() == []


def test_a_run_of_another_machine_that_shares_the_home_is_neither_told_nor_forgotten() -> None:
    theirs = cache_folder() / "running" / "other-1.json"
    write_json(theirs, {"pid": os.getpid(), "birth": birth(os.getpid()), "started": 1.0, "output": "/out"})
    assert running() == []
    assert theirs.exists()
