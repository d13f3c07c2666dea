"""log.txt: what was told before there was a file, what comes, and a bar's states."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from expert_cli.console.terminal import Console
from expert_cli.runs.log import Logged, RunLog
from expert_cli.utils.reporter import NullReporter


def test_lines_wait_for_their_file_and_are_appended(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    file.write_text("of the run before\n", encoding="utf-8")
    log = RunLog()
    log.write("one\ntwo\n")
    log.write("four hf_abcdefghijklmnopqrstuvwxyzABCDEFGH")
    assert file.read_text(encoding="utf-8") == "of the run before\n"
    log.begin(file)
    log.write("five\x1b[0m")
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "of the run before"
    assert [line[26:] for line in lines[1:]] == ["one", "two", "four ***", "five\\x1b[0m"]
    assert all(datetime.fromisoformat(line[:25]).utcoffset() == timedelta(0) for line in lines[1:])


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    log = RunLog()
    log.begin(tmp_path)
    log.write("a line")


def test_what_a_quiet_console_does_not_show_is_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = RunLog()
    report = Logged(Console("train", quiet=True), log)
    report.info("words")
    report.warning("look")
    with report.progress("training", 4, "steps") as bar:
        bar.update(4, "loss 1")
    log.begin(tmp_path / "log.txt")
    lines = (tmp_path / "log.txt").read_text(encoding="utf-8").splitlines()
    assert [line[26:] for line in lines] == ["words", "warning: look", "training  4/4 steps  loss 1"]
    assert capsys.readouterr().err == "warning: look\n"


def test_the_last_state_before_a_failure_is_logged(tmp_path: Path) -> None:
    log = RunLog()
    log.begin(tmp_path / "log.txt")
    with pytest.raises(ZeroDivisionError), Logged(NullReporter(), log).progress("training", 4) as bar:  # noqa: PT012
        bar.update(2)
        raise ZeroDivisionError
    assert (tmp_path / "log.txt").read_text(encoding="utf-8").endswith(" training  2/4\n")
