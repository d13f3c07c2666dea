"""Every error: its exit code, a few lines on stderr or one JSON document on stdout, never a traceback; and the writer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from expert_cli.console.terminal import Console
from tests import manifests
from tests.command_line import run_command

Cli = Callable[..., Any]
TRAIN = ("train", "--manifest", "manifest.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "typo.json").write_text(json.dumps(manifests.small(learning_rte=1)), encoding="utf-8")
    (tmp_path / "gpu.json").write_text(json.dumps(manifests.small(device="cuda")), encoding="utf-8")
    (tmp_path / "rows.jsonl").write_text('{"instruction": "a", "output": "b"}\n', encoding="utf-8")
    manifests.write(tmp_path, manifests.small())
    return tmp_path


ROWS = (*TRAIN, "--dataset", "rows.jsonl")
MEASURED = ("benchmark", "-m", "manifest.json", "--dataset", "rows.jsonl")
AGAINST = ("evaluate", "--answers", "rows.jsonl", "--against")
CORRECT = "correct the path in the manifest, or give another:"
EARLIER = "name an evaluation.json, or what evaluate --output wrote"
# command line -> how the error begins, its hint
BUCKET = "give a bucket: hf://buckets/NAME/BUCKET/FOLDER, s3:// or gs://"
REFUSED: dict[tuple[str, ...], tuple[str, str]] = {
    ("train", "-m", "gpu.json"): ("device cuda: no usable GPU: torch ", "use --device cpu, or a machine with an NVIDIA GPU"),
    (*TRAIN, "--output", "http://x/y"): ("--output http://x/y: a web server takes no files\n", BUCKET),
    (*TRAIN, "--epochs", "0"): ("--epochs: must be greater than 0, is 0.0\n", ""),
    (*TRAIN, "--set", "rank=0"): ("--set training.config.rank: must be greater than 0, is 0\n", ""),
    (*TRAIN, "--set", "a"): ('--set "a" is not', "keys: KEY, training.config.KEY, training.rft.KEY, evaluation.KEY"),
    (*ROWS, "--validation", "no.jsonl"): ("no.jsonl: no such file", f"{CORRECT} --validation PATH"),
    ("init", "x", "--kind", "python"): ("Invalid value for '--kind': 'python' is not one of 'js", "see expert-cli init --help"),
    (*AGAINST, "no.json"): ("--against no.json: no such file\n", EARLIER),
    (*AGAINST, "typo.json"): ("--against typo.json: is not an evaluation\n", EARLIER),
    ("benchmark", "--run", "r", "--steps", "5"): ("--steps needs --manifest\n", "leave it out"),
    (*MEASURED, "--run", "r"): ("--run and --manifest exclude each other\n", "leave it out"),
    (*MEASURED, "--against", "padded", "--duration", "1"): ("--duration and --manifest exclude each other\n", "leave it out"),
    (*MEASURED, "--sweep", "batchsize=1,2"): ("--sweep: unknown key training.config.batchsize\n", "did you mean batch_size?"),
    (*MEASURED, "--sweep", "rank=1,2", "--set", "r_=1"): ("--set: unknown key training.config.r_\n", ""),
    ("pretokenize", "-m", "manifest.json", "--explain", "--show", "3"): ("--show does not go with --explain\n", "leave it out"),
    ("pretokenize", "-m", "manifest.json", "here"): ("give --all (and EXPERTS) or --manifest, not both\n", ""),
    ("find-datasets", "--hf-cache", "no"): ("no: no such folder of Hugging Face caches\n", "name one: --hf-cache DIR"),
    ("init", "x", "--from-config", "no.yml"): ("--from-config no.yml: no such file\n", "give a YAML file of axolotl or TRL"),
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_is_wrong_with_a_command_line(cli: Cli, folder: Path, words: tuple[str, ...]) -> None:
    done, (message, hint) = cli(*words, "--quiet"), REFUSED[words]
    assert (done.code, done.out) == (3 if "gpu.json" in words[:3] else 2, "")
    error = done.err[done.err.index("error: ") :]
    assert error.startswith(f"error: {message}")
    assert error.splitlines()[1:] == ([f"  {hint}"] if hint else [])


def test_ctrl_c_in_an_evaluation_says_that_the_command_continues(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("expert_cli.api.evaluate", interrupted)
    done = cli("evaluate", "--adapter", "run")
    assert (done.code, done.err) == (130, "error: interrupted\n  the same command continues\n")


def test_without_a_command_the_help_is_printed_and_of_a_wrong_one_the_nearest_is_named(cli: Cli) -> None:
    done = cli()
    assert (done.code, done.err) == (2, "")
    assert "Usage: expert-cli" in done.out
    wrong = cli("trian")
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.startswith("error: No such command 'trian'. Did you mean 'train'?\n  commands: train, ")
    assert json.loads(cli("trian", "--json").out)["command"] == ""


def test_a_bug_shows_its_traceback_and_debug_that_of_any_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("expert_cli.commands.schema.manifest_schema", lambda: 1 / 0)
    bug, asked = (run_command(words, folder) for words in (["schema"], ["train", "-m", "no.json", "--debug"]))
    assert (bug.code, asked.code) == (1, 2)
    assert bug.err.startswith("Traceback (most recent call last):")
    assert "\nerror: ZeroDivisionError: division by zero\n  this is a bug in expert-cli" in bug.err
    assert asked.err.startswith("Traceback (most recent call last):")
    assert asked.err.rstrip().splitlines()[-2] == "error: no.json: No such file or directory"


def test_a_console_without_these_characters(cli: Cli, tmp_path: Path) -> None:
    manifest = {**manifests.small(beschränkung=1), "name": "日本 \u2028"}
    manifests.write(tmp_path, manifest)
    done = cli("validate", "manifest.json", PYTHONIOENCODING="ascii")
    assert done.code == 2
    assert "training.config.beschr?nkung: unknown key" in done.out


def test_control_characters_of_a_manifest_are_spelled_out(cli: Cli, tmp_path: Path) -> None:
    manifests.write(tmp_path, manifests.small(**{"a\x1b[31mred": 1}))
    done = cli("validate", "manifest.json")  # which also asserts that no escape sequence comes out
    assert "training.config.a\\x1b[31mred: unknown key" in done.out


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_no_color_gives_plain_text_on_a_terminal(folder: Path) -> None:
    args = ["validate", "manifest.json"]
    plain, colored = on_a_terminal(folder, args, NO_COLOR="1"), on_a_terminal(folder, args, NO_COLOR="")
    assert b"\x1b" not in plain
    assert b"\x1b" in colored


def on_a_terminal(folder: Path, args: list[str], **env: str) -> bytes:
    import pty

    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", **env}
    command = [sys.executable, "-m", "expert_cli", *args]
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        written = b""
        try:
            while block := os.read(ours, 65536):
                written += block
        except OSError:  # Linux ends a terminal whose other side is closed with an error
            pass
        process.wait(60)
    os.close(ours)
    return written


@pytest.mark.skipif(os.name != "posix", reason="closing a pipe is another error on Windows")
def test_a_reader_that_leaves_changes_no_exit_code(folder: Path) -> None:
    command = [sys.executable, "-m", "expert_cli", "validate", "typo.json"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("arguments", [["schema"], ["validate", "typo.json", "--json"]])
def test_a_full_disk_is_no_bug(folder: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "expert_cli", *arguments]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command, cwd=folder, stdout=full, stderr=subprocess.PIPE, encoding="utf-8", timeout=600, check=False
        )
    assert done.returncode == 3
    assert done.stderr == "error: standard output: No space left on device\n  free some space, or give another folder\n"


def test_an_output_that_holds_a_run_is_refused(cli: Cli, folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "run.json").write_text("{}", encoding="utf-8")
    done = cli(*TRAIN, "--output", "out", "--offline", "--json")
    error = json.loads(done.out)["error"]
    assert (done.code, error["exit_code"]) == (6, 6)
    assert "out already contains a run" in error["message"]
    assert error["hint"]


@pytest.mark.skipif(os.name != "posix", reason="SIGINT cannot be sent to one process on Windows")
def test_ctrl_c_while_the_libraries_load(folder: Path) -> None:
    (folder / "datasets").mkdir()
    (folder / "datasets" / "train.jsonl").write_text('{"instruction": "a", "output": "b"}\n', encoding="utf-8")
    command = [sys.executable, "-m", "expert_cli", *TRAIN, "--offline"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stderr
        while "loading the training libraries" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    assert (process.returncode, out, err) == (130, "", "error: interrupted\n")


@pytest.mark.skipif(os.name != "posix", reason="Windows removes no folder that somebody is in")
def test_a_folder_that_was_removed_while_one_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    inside = "import os; os.rmdir(os.getcwd()); from expert_cli.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", inside, "doctor"],
        cwd=tmp_path / "gone",
        stderr=subprocess.PIPE,
        encoding="utf-8",
        timeout=600,
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr == "error: the current folder was removed\n  change to another one\n"


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
