"""The writer: errors of a few lines, plain tables without a terminal, one document with --json."""

from __future__ import annotations

import json

import pytest

from expert_cli.console.terminal import Console


def test_an_error_is_two_lines_whatever_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    Console("train").fail("one\n  two\n\n three", "do\nthis", 4)
    assert capsys.readouterr() == ("", "error: one two three\n  do this\n")


def test_a_failure_in_json_keeps_the_message_and_hides_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    Console("train", as_json=True).fail("one\ntwo hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "", 3)
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out) == {
        "schema_version": 1,
        "command": "train",
        "error": {"exit_code": 3, "message": "one\ntwo ***", "hint": ""},
    }


def test_quiet_keeps_warnings_and_results(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console("train", quiet=True)
    console.info("words")
    console.warning("look")
    console.text("result")
    with console.progress("work", 3) as bar:
        bar.update(3)
    assert capsys.readouterr() == ("result\n", "warning: look\n")


def test_without_a_terminal_a_table_is_lines_to_search(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    heads = "a             b"
    Console("c").table("title", ["a", "b"], [["training.one", "[bold]1"], ["two", long]])
    assert capsys.readouterr().out == f"title\n{heads}\ntraining.one  [bold]1\ntwo           {long}\n"


def test_results_are_written_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console("c")
    console.text("a\tb :100: [red] ü\x1b[0m")
    assert capsys.readouterr().out == "a\tb :100: [red] ü\\x1b[0m\n"


@pytest.mark.parametrize(
    ("total", "line"),
    [(3_400_000_000, "fetching  12 MB/3.4 GB\n"), (None, "fetching  12 MB\n"), (20_480, "fetching  20 kB/20 kB\n")],
)
def test_bytes_are_shown_in_the_unit_that_a_person_reads(
    capsys: pytest.CaptureFixture[str], total: int | None, line: str
) -> None:
    with Console("c").progress("fetching", total, "B") as bar:
        bar.update(min(12_345_678, total or 12_345_678))
    assert capsys.readouterr() == ("", line)


def test_the_time_left_goes_by_what_was_done_since_the_first_state(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 3.0, 9.0])
    monkeypatch.setattr("expert_cli.utils.reporter.time.monotonic", lambda: next(times))
    with Console("c").progress("training", 300, "steps") as bar:
        bar.update(201)  # of a run that goes on after step 200
        bar.update(204)
    assert capsys.readouterr().err == "training  204/300 steps  192 s left\n"


@pytest.mark.parametrize("total", [pytest.param(2, id="to the end"), pytest.param(9, id="stopped before"), None])
def test_without_a_terminal_no_state_is_shown_twice(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, total: int | None
) -> None:
    monkeypatch.setattr("expert_cli.utils.reporter.PLAIN_INTERVAL_S", 0.0)
    with Console("c").progress("training", total, "steps") as bar:
        bar.update(1, "loss 2")
        bar.update(2, "loss 1")
        monkeypatch.setattr("expert_cli.utils.reporter.PLAIN_INTERVAL_S", 60.0)
        bar.update(2, "loss 1  lr 1e-4")
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("training  1")
    assert last.startswith("training  2")
