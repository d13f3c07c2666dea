"""What a run leaves of itself while it goes: status.json, log.txt, metrics; and how it is asked to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from expert_cli import errors
from expert_cli.console.terminal import Console
from expert_cli.errors import InputError
from expert_cli.runs.lock import birth
from expert_cli.runs.log import Logged, RunLog
from expert_cli.runs.metrics import MetricsTail, mean_shares, padding_share, rates, read_json
from expert_cli.runs.signals import StopRequest
from expert_cli.runs.status import RunStatus, standing

GO_ON = "expert-cli train -m M --resume auto"


def written(folder: Path, **changes: Any) -> Path:
    """Write what a run of this process writes after its checkpoint-3, with changes."""
    file = folder / "status.json"
    status = RunStatus(file, "expert-cli train -m M")
    status.begin()
    status.reached(3, 10)
    told = read_json(file) | {"updated": "2026-11-22T08:00:00+00:00"} | changes
    file.write_text(json.dumps(told), encoding="utf-8")
    return file


STANDINGS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "alive": ({}, "running", f"running as process {os.getpid()}; after step 3 of 10, at 2026-11-22 08:00 UTC", ""),
    "before the first step": (
        {"steps": None},
        "running",
        f"running as process {os.getpid()}; before the first step, at 2026-11-22 08:00 UTC",
        "",
    ),
    "its id used again": (
        {"birth": birth(os.getpid()) - 1},
        "killed",
        f"killed: process {os.getpid()} has ended without a message; its last status is after step 3 of 10, "
        "at 2026-11-22 08:00 UTC",
        GO_ON,
    ),
    "another machine": (
        {"host": "far", "pid": 1},
        "elsewhere",
        "running on far, after step 3 of 10, at 2026-11-22 08:00 UTC; whether it is still running is not known here",
        GO_ON,
    ),
    "failed": ({"state": "failed", "reason": "R"}, "failed", "failed after step 3 of 10: R", GO_ON),
    "complete": ({"state": "complete", "reason": "R"}, "complete", "finished: R", ""),
    "torn": ({"state": ["x"], "step": "y", "command": None}, "unknown", "not finished", "of run.json --resume auto"),
}


@pytest.mark.parametrize(("changes", "state", "words", "go_on"), STANDINGS.values(), ids=STANDINGS.keys())
def test_standing(tmp_path: Path, changes: dict[str, Any], state: str, words: str, go_on: str) -> None:
    found = standing(written(tmp_path, **changes), is_complete=False, command="of run.json")
    assert (found.state, found.words, found.go_on) == (state, words, go_on)


def test_a_run_without_a_status(tmp_path: Path) -> None:
    none = tmp_path / "status.json"
    assert standing(none, is_complete=True).words == "finished"
    found = standing(none, is_complete=False, command="expert-cli train -m M")
    assert (found.state, found.words, found.go_on) == ("unknown", "not finished", GO_ON)
    assert standing(none, is_complete=False).go_on == ""


def test_nothing_is_written_before_the_folder_is_the_runs_own(tmp_path: Path) -> None:
    file = tmp_path / "status.json"
    status = RunStatus(file, "expert-cli train")
    status.broken_off(InputError("no"))
    assert not file.exists()


def test_lines_wait_for_their_file_and_are_appended(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    file.write_text("of the run before\n", encoding="utf-8")
    log = RunLog()
    log.write("one\ntwo\n")
    log.write("four hf_abcdefghijklmnopqrstuvwxyzABCDEFGH")
    assert file.read_text(encoding="utf-8") == "of the run before\n"
    log.begin(file)
    log.write("five\x1b[0m")
    log.write("caf\udce9")  # as Python reads a folder's name that is not UTF-8
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "of the run before"
    assert [line[26:] for line in lines[1:]] == ["one", "two", "four ***", "five\\x1b[0m", "caf\\udce9"]
    assert all(datetime.fromisoformat(line[:25]).utcoffset() == timedelta(0) for line in lines[1:])


def test_what_a_quiet_console_does_not_show_is_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = RunLog()
    report = Logged(Console("train", quiet=True), log)
    report.info("words")
    report.warning("look")
    log.begin(tmp_path / "log.txt")
    lines = (tmp_path / "log.txt").read_text(encoding="utf-8").splitlines()
    assert [line[26:] for line in lines] == ["words", "warning: look"]
    assert capsys.readouterr().err == "warning: look\n"


SOURCE = Path(errors.__file__).parents[1]
posix = pytest.mark.skipif(os.name != "posix", reason="signals cannot be sent to one process on Windows")
# Says what it was asked, and goes on working until it is ended.
CHILD = """
import pathlib, sys, time
from expert_cli import cli
from expert_cli.console.terminal import Console
from expert_cli.runs.signals import StopRequest

def work() -> None:
    with StopRequest(pathlib.Path("run"), Console("work")) as stop:
        print("begun", flush=True)
        while not stop.asked():
            time.sleep(0.01)
        print(stop.reason, flush=True)
        time.sleep(60)

cli.app.command("work")(work)
cli.main()
"""


@posix
@pytest.mark.parametrize(
    ("second", "code", "words"),
    [(signal.SIGINT, 130, "error: interrupted\n"), (signal.SIGTERM, -signal.SIGTERM, "")],
    ids=["SIGINT", "SIGTERM"],
)
def test_the_second_signal_ends_at_once(tmp_path: Path, second: signal.Signals, code: int, words: str) -> None:
    """The first asks: tests/train has runs that are asked to stop."""
    pipe, environment = subprocess.PIPE, {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", CHILD, "work"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, encoding="utf-8"
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "SIGINT\n"
        assert process.stderr
        assert process.stderr.readline().startswith("SIGINT: stopping after this step and saving;")
        process.send_signal(second)
        assert (process.communicate(timeout=60)[1], process.returncode) == (words, code)


def test_a_file_asks_too(tmp_path: Path) -> None:
    stop = StopRequest(tmp_path)
    assert not stop.asked()
    (tmp_path / "STOP").touch()
    assert stop.asked()
    assert (stop.exit_code, stop.reason) == (130, f"the file {tmp_path / 'STOP'}")
    assert not (tmp_path / "STOP").exists()
    assert stop.asked()


def test_handlers_are_put_back_and_another_thread_has_the_file_only(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    asked = []

    def work() -> None:
        with StopRequest(tmp_path) as stop:
            asked.append(stop.asked())

    with StopRequest(tmp_path):
        assert signal.getsignal(signal.SIGINT) != before[0]
    (tmp_path / "STOP").touch()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert asked == [True]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_torn_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = MetricsTail(path)
    assert tail.read() == []
    path.write_bytes(b'{"step": 1}\n{"st')
    assert tail.read() == [{"step": 1}]
    with path.open("ab") as file:
        file.write(b'ep": 2}\r\n')
    assert tail.read() == [{"step": 2}]
    assert tail.read() == []


def test_damaged_lines_are_left_out_and_a_shorter_file_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'\n{"step": 1}\nnot json\n[1]\n\xff\xfe\n{"step": 2}\n' + b"[" * 100_000 + b"\n")
    tail = MetricsTail(path)
    assert tail.read() == [{"step": 1}, {"step": 2}]
    path.write_text('{"step": 9}\n', encoding="utf-8")
    assert tail.read() == [{"step": 9}]


def test_shares_and_rates_weigh_by_the_seconds_that_a_line_covers() -> None:
    lines = [
        {"interval_s": 1, "tokens_per_s": 150.0, "step_time_shares": {"data": 1.0}},
        {"eval_loss": 1.0},
        {"interval_s": 3, "tokens_per_s": 50.0, "step_time_shares": {"forward": 1.0}},
    ]
    assert (mean_shares(lines)["data"], rates(lines, "tokens_per_s")) == (0.25, ([150.0, 50.0], [1.0, 3.0]))
    assert mean_shares([{"seconds": 1, "loss": 2.0}]) == {}


def test_padding_share_is_the_newest() -> None:
    lines = [{"tokens_real": 10, "tokens_padded": 0}, {"tokens_real": 60, "tokens_padded": 40}, {"eval_loss": 1.0}]
    assert padding_share(lines) == 0.4
    assert padding_share([{"loss": 1.0}]) is None
