"""Who may write a run in object storage: nobody else while it is written, and at once when that has ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from expert_cli.errors import EnvironmentProblem, RunLocked
from expert_cli.runs import claim
from expert_cli.runs.claim import WRITER, Claim
from expert_cli.utils.object_storage import StoredFolder
from expert_cli.utils.reporter import NullReporter, Said
from tests.object_storage import S3Server


@pytest.fixture
def storage(bucket: str, monkeypatch: pytest.MonkeyPatch) -> StoredFolder:
    """Where writers are quick, and a look at one short; on a busy machine a test whose writer lives looks longer."""
    for name, seconds in {"BEAT_S": 0.05, "LOOK_S": 0.3}.items():
        monkeypatch.setattr(claim, name, seconds)
    return StoredFolder(f"{bucket}/run")


@contextmanager
def held(storage: StoredFolder, token: str, report: Said | None = None) -> Iterator[tuple[Claim, list[str]]]:
    report, mine = report or Said(NullReporter()), Claim(storage, token)
    with mine.held(report):
        yield mine, [line for _, line in report.lines]


def test_what_has_ended_is_taken_at_once(storage: StoredFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "LOOK_S", 30.0)
    started = time.monotonic()
    with held(storage, "a") as (mine, told):
        assert (mine.was_ours, told, mine.is_lost()) == (False, [], False)
    with held(storage, "b") as (mine, told):
        assert (mine.was_ours, told) == (False, [])
    with held(storage, "b") as (mine, told):
        assert (mine.was_ours, told) == (True, [])
    assert time.monotonic() - started < claim.LOOK_S


def test_what_is_not_refreshed_is_taken_after_a_look(storage: StoredFolder) -> None:
    Claim(storage, "of a machine that has vanished")._write(ended=False)
    started = time.monotonic()
    with held(storage, "b") as (_, told):
        assert time.monotonic() - started >= claim.LOOK_S
        assert len(told) == 1
        assert told[0].startswith("looking whether process ")
    Claim(storage, "b")._write(ended=False)
    with held(storage, "b") as (_, told):
        assert told == [], "the folder's own lock tells of its own processes"


def test_a_writer_that_ends_meanwhile_is_waited_for(storage: StoredFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "LOOK_S", 60.0)
    over, report = threading.Event(), Said(NullReporter())

    def write() -> None:
        with held(storage, "a"):
            while len(report.lines) < 2:
                time.sleep(0.01)
            over.set()

    other = threading.Thread(target=write)
    other.start()
    while storage.info(WRITER) is None:
        time.sleep(0.01)
    with held(storage, "b", report) as (mine, told):
        assert over.is_set()
        assert told[1].startswith("it does: waiting for its end")
    other.join()
    assert not mine.is_lost(), "the other one, which has ended, does not write its name over this one"


def test_a_writer_that_goes_on_is_not_disturbed(storage: StoredFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "LOOK_S", 60.0)
    monkeypatch.setattr(claim, "WAIT_S", 0.1)
    with held(storage, "a") as (first, _):
        with pytest.raises(RunLocked, match="s3://rows/run is written by process "), held(storage, "b"):
            pass
        assert not first.is_lost()


def test_who_was_taken_for_vanished_writes_no_more(storage: StoredFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "BEAT_S", 1.0)  # longer than the other's name takes to be written
    with held(storage, "a") as (first, _):
        Claim(storage, "b")._write(ended=False)
        deadline = time.monotonic() + 30
        while not first._lost and time.monotonic() < deadline:
            time.sleep(0.02)
        with pytest.raises(RunLocked, match="which took this run for one that had vanished"):
            first.require()
    assert b'"token": "b"' in storage.read(WRITER)
    assert b'"ended": false' in storage.read(WRITER)


def test_a_note_that_cannot_be_read_keeps_nobody_out(storage: StoredFolder) -> None:
    storage.write(WRITER, b"{")
    with held(storage, "a") as (mine, told):
        assert (mine.was_ours, told) == (False, [])


def test_a_key_that_may_not_write_is_told(storage: StoredFolder, s3_server: S3Server) -> None:
    s3_server.deny()
    with pytest.raises(EnvironmentProblem, match=r"s3://rows/run/\.writer\.json: cannot read"), held(storage, "a"):
        pass
