"""Every error: its exit code, at most three lines on stderr, or one JSON document on stdout; never a traceback."""

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

from tests import manifests

Cli = Callable[..., Any]
TRAIN = ("train", "--manifest", "manifest.json")

# id -> arguments, exit code, what the error says
CASES: dict[str, tuple[tuple[str, ...], int, str]] = {
    "unknown command": (("trian",), 2, "error: No such command 'trian'. Did you mean 'train'?\n  commands: train, "),
    "unknown option": (("train", "--max-step", "3"), 2, "No such option: --max-step (Possible options: --m"),
    "option without its value": (("train", "--manifest"), 2, "requires an argument"),
    "below its range": ((*TRAIN, "--max-steps", "0"), 2, "'--max-steps'"),
    "no manifest named": (("train",), 2, "error: Missing option '--manifest' / '-m'.\n  see expert-cli train --help"),
    "missing manifest": (
        ("train", "-m", "no.json"),
        2,
        "error: no.json:1:1: No such file or directory\n  give the path of",
    ),
    "a folder": (("train", "-m", "."), 2, "is a folder or a device, not a file\n  give"),
    "broken JSON": (
        ("train", "-m", "broken.json"),
        2,
        "error: broken.json:1:14: not JSON: Expecting property name enclosed in double quotes\n  remove the",
    ),
    "unknown key": (
        ("train", "-m", "typo.json"),
        2,
        "training.config.learning_rte: unknown key, nearest known: learning_rate",
    ),
    "many unknown keys": (("train", "-m", "typos.json"), 2, "(and 2 more: expert-cli validate typos.json)"),
    "cuda without a GPU": ((*TRAIN, "--device", "cuda"), 3, "error: --device cuda: no usable GPU\n  use --device cpu"),
    "unknown device": (
        (*TRAIN, "--device", "tpu"),
        2,
        '--device tpu: must be one of "auto", "cpu", "cuda", "rocm"',
    ),
    "--set of an unknown key": (
        (*TRAIN, "--set", "training.config.learning_rte=1"),
        2,
        "error: --set: unknown key training.config.learning_rte\n  did you mean learning_rate?",
    ),
    "--set of a wrong value": (
        (*TRAIN, "--set", "rank=many"),
        2,
        '--set rank=many: must be a whole number, is "many"',
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "broken.json").write_text('{"name": "x",}', encoding="utf-8")
    (tmp_path / "typo.json").write_text(json.dumps(manifests.small(learning_rte=1)), encoding="utf-8")
    many = manifests.small(learning_rte=1, lora_r=2, num_train_epochs=3)
    (tmp_path / "typos.json").write_text(json.dumps(many), encoding="utf-8")
    manifests.write(tmp_path, manifests.small())
    return tmp_path


@pytest.mark.parametrize(("args", "code", "says"), CASES.values(), ids=CASES.keys())
def test_words(cli: Cli, folder: Path, args: tuple[str, ...], code: int, says: str) -> None:
    done = cli(*args)
    assert (done.code, done.out) == (code, "")
    assert says in done.err
    assert done.err.startswith("error: ")
    assert len(done.err.splitlines()) <= 3


@pytest.mark.parametrize("name", ["unknown command", "no manifest named", "many unknown keys", "cuda without a GPU"])
def test_json(cli: Cli, folder: Path, name: str) -> None:
    args, code, says = CASES[name]
    done = cli(args[0], "--json", *args[1:])
    assert (done.code, done.err) == (code, "")
    assert done.out.count("\n") == 1
    document = json.loads(done.out)
    assert list(document) == ["schema_version", "command", "error"]
    assert (document["schema_version"], document["error"]["exit_code"]) == (1, code)
    assert document["command"] == (args[0] if args[0] in ("train", "validate", "init") else "")
    shown = f"error: {document['error']['message']}\n  {document['error']['hint']}"
    assert says in shown


def test_no_arguments_print_the_help(cli: Cli) -> None:
    done = cli()
    assert (done.code, done.err) == (2, "")
    assert "Usage: expert-cli" in done.out


def test_debug_shows_the_traceback(folder: Path) -> None:
    command = [sys.executable, "-m", "expert_cli", "train", "-m", "no.json", "--debug"]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", timeout=600, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("Traceback (most recent call last):")
    assert done.stderr.rstrip().splitlines()[-2] == "error: no.json:1:1: No such file or directory"


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
    assert done.stderr == "error: No space left on device\n  make room, or give another folder\n"


def test_an_output_that_holds_a_run_is_refused(cli: Cli, folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "run.json").write_text("{}", encoding="utf-8")
    done = cli(*TRAIN, "--output", "out", "--offline", "--json")
    error = json.loads(done.out)["error"]
    assert (done.code, error["exit_code"]) == (6, 6)
    assert "out holds a run already" in error["message"]
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
    assert done.stderr == "error: the folder that you are in was removed\n  change to another one\n"
