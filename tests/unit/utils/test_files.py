"""Files and folders are whole or absent, and as they were recorded; rows as they are; a full disk is one error."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from safetensors import SafetensorError

from expert_cli.console.terminal import Console
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.utils.disk_errors import disk_errors, disk_problem, known
from expert_cli.utils.files import (
    VerifiedFolder,
    append_text,
    folder_beside,
    json_lines,
    json_objects,
    parse_json,
    read_sealed,
    remove,
    write_json,
    write_sealed,
    write_text,
)
from expert_cli.utils.redaction import redact


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new \ud800")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="pipes have no names there")
def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    """As /dev/null and /dev/full are, which root could replace by a file."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_text(tmp_path / "pipe", "words")
    assert (os.read(reader, 9), (tmp_path / "pipe").is_fifo()) == (b"words", True)
    os.close(reader)


def test_json_that_is_nested_too_deeply_is_no_json() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 200_000)


@pytest.mark.parametrize("kind", ["folder", "file", "link", "nothing"])
def test_what_is_removed_is_gone_and_what_a_link_leads_to_stays(tmp_path: Path, kind: str) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "a").touch()
    path = tmp_path / "path"
    if kind == "folder":
        (path / "b").mkdir(parents=True)
    elif kind == "file":
        path.touch()
    elif kind == "link":
        path.symlink_to(tmp_path / "kept")
    remove(path)
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "kept", tmp_path / "kept" / "a"]


def filled(folder: Path) -> Path:
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_text("one")
    (folder / "sub" / "b").write_text("four")
    (folder / ".nfs0001").touch()
    (folder / "progress").touch()
    return folder


def test_the_record_names_every_file_that_is_not_left_out(tmp_path: Path) -> None:
    files = VerifiedFolder.measured(filled(tmp_path / "x"), leave_out=("progress",)).files
    assert files.keys() == {"a", "sub/b"}
    assert files["a"] == {"bytes": 3, "sha256": hashlib.sha256(b"one").hexdigest()}
    times = VerifiedFolder.measured(tmp_path / "x", times=True).files
    assert times["a"]["mtime_ns"] == (tmp_path / "x" / "a").stat().st_mtime_ns


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "none": (lambda folder: None, ""),
    "gone": (lambda folder: (folder / "sub" / "b").unlink(), "sub/b is missing"),
    "cut": (lambda folder: (folder / "a").write_text("on"), "a has 2 bytes, not 3"),
    "changed": (lambda folder: (folder / "a").write_text("two"), "a does not match its hash"),
    "no file": (lambda folder: ((folder / "a").unlink(), (folder / "a").symlink_to("a")), "a cannot be read: "),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_named(tmp_path: Path, damage: Callable[[Path], object], words: str) -> None:
    recorded = VerifiedFolder.measured(filled(tmp_path))
    damage(tmp_path)
    found = recorded.damage()
    assert found.startswith(words)
    assert bool(found) is bool(words)


def test_a_recorded_time_spares_the_hash(tmp_path: Path) -> None:
    asked: list[str] = []

    def hashed(path: Path) -> str:
        asked.append(path.name)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    recorded = VerifiedFolder.measured(filled(tmp_path), times=True)
    os.utime(tmp_path / "a", ns=(1, 1))
    assert recorded.damage(hashed) == ""
    assert asked == ["a"]


TEXTS = {
    "a join": "SELECT 1 FROM a JOIN b ON a.b_key=b.id WHERE b.user_token=1",
    "a quote behind": 'my_key="abc" and her_token="x"',
    "a line behind": "sorted(rows, key=f, sort_key=g)\n    return",
    "JSON in a text": '{"primary_key": "id", "API_KEY": "k"}',
    "half a pair": "caf\udce9",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_row_is_read_as_it_was_written(tmp_path: Path, text: str) -> None:
    row: dict[str, Any] = {"output": text, "my_key": text, "turns": [{"content": text}]}
    (tmp_path / "rows.jsonl").write_bytes(json_lines([row, {"a": 1}]))
    written = json.loads(json.dumps(row).replace("\\udce9", "?"))
    assert [one for _, _, one in json_objects(tmp_path / "rows.jsonl")] == [written, {"a": 1}]


TOKEN = "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH"


def test_tokens_of_the_hub_are_told_from_other_words() -> None:
    assert redact(f"token {TOKEN} here, hf_{'a' * 27}… hf_{'b' * 33}...") == "token *** here, ***… ***..."
    others = f'/models/hf_{"a" * 16} hf_{"b" * 33} hf_hub key=value {{"eos_token": "</s>", "primary_key": "id"}}'
    assert redact(others) == others


def test_a_document_without_its_secrets_is_still_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = {TOKEN: [{"b": (TOKEN, 1)}, None], "quote": f'"{TOKEN}"', "at": Path("/a"), "half": "caf\udce9", "f": 0.1}
    expected = {"***": [{"b": ["***", 1]}, None], "quote": '"***"', "at": "/a", "half": "caf\udce9", "f": 0.1}
    write_json(tmp_path / "a.json", value)
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == expected
    write_sealed(tmp_path / "b.json", value)
    assert read_sealed(tmp_path / "b.json") == expected
    Console("train", as_json=True).document(value)
    assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "command": "train", **expected}


FULL = {
    "system": OSError(errno.ENOSPC, "No space left on device", "/data/x"),
    "library": SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    "copies of a folder": shutil.Error([("a", "b", "[Errno 28] No space left on device: 'b'")]),
    "program": "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
}


@pytest.mark.parametrize("error", FULL.values(), ids=FULL.keys())
def test_a_full_disk_is_told_in_the_same_words(error: BaseException | str) -> None:
    problem = disk_problem(error, "cannot write the store in /data", "put it elsewhere")
    assert problem is not None
    assert problem.message == "cannot write the store in /data: No space left on device"
    assert problem.hint == "free some space, or put it elsewhere"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOENT, "No such file", "x"),
        SafetensorError("No such file or directory (os error 2)"),
        RuntimeError("[Errno 13] Permission denied: another program was refused something"),
        ValueError("28"),
        InputError('rows.jsonl:3: "label" is "[Errno 28]"', "correct the row"),
    ],
    ids=["no such file", "of a library", "not about a full disk", "no error of the system", "said already"],
)
def test_what_is_not_of_the_disk_stays_as_it_is(error: Exception) -> None:
    assert disk_problem(error) is None
    with pytest.raises(type(error)) as caught, disk_errors():
        raise error
    assert caught.value is error


@pytest.mark.parametrize(("number", "stays"), [(errno.ENOSPC, False), (errno.EACCES, False), (errno.EEXIST, True)])
def test_what_was_begun_makes_room_and_what_is_in_the_way_stays(tmp_path: Path, number: int, stays: bool) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "a").touch()
    with pytest.raises(EnvironmentProblem, match=r"^cannot write it: "), disk_errors("cannot write it", "", begun):
        raise OSError(number, os.strerror(number), str(begun))
    assert begun.exists() is stays


def test_a_full_disk_names_no_file_but_the_one_that_is_written_is_named(tmp_path: Path) -> None:
    writes: list[Callable[[Path], Any]] = [lambda path: write_text(path, "a"), lambda path: append_text(path, "a")]
    for write in writes:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("io.open", lambda *_: full())
            patch.setattr(Path, "open", lambda *_, **__: full())
            with pytest.raises(OSError, match="No space") as caught:
                write(tmp_path / "a.txt")
        assert caught.value.filename == str(tmp_path / "a.txt")


def full() -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such files")
def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_json(pipe, {"a": 1})
    assert (os.read(reader, 100), pipe.is_fifo()) == (b'{\n  "a": 1\n}\n', True)
    os.close(reader)


def test_a_folder_that_a_killed_process_left_goes_after_a_day(tmp_path: Path) -> None:
    old, new, foreign = (tmp_path / name for name in (".a.writing-1", ".a.writing-2", ".a.yaml.old"))
    for left in (old, new, foreign):
        left.mkdir()
    os.utime(old, (1, 1))
    os.utime(foreign, (1, 1))
    with folder_beside(tmp_path / "a") as beside:
        assert sorted(tmp_path.iterdir()) == sorted([new, foreign, beside])


def test_what_a_user_can_meet() -> None:
    refused = InputError("no")
    assert known(refused) is refused
    assert known(ValueError("a bug")) is None
    assert known(OSError(2, "No such file", "x")) is None
    gone = known(OSError(2, "No such file", "gone/x"))
    assert gone is not None
    assert gone.message == "gone/x: No such file"
    full = known(OSError(28, "No space left on device", "/data/x"))
    assert isinstance(full, EnvironmentProblem)
    assert full.message == "/data/x: No space left on device"
    for number in (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG):
        other = known(OSError(number, os.strerror(number), "/data/x"))
        assert isinstance(other, EnvironmentProblem)
        assert other.message == f"/data/x: {os.strerror(number)}"
        assert "move it away" in other.hint
    renamed = known(IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), "/data/.x.tmp", None, "/data/x"))
    assert renamed is not None
    assert renamed.message == f"/data/x: {os.strerror(errno.EISDIR)}"


@pytest.mark.skipif(os.name != "posix", reason="paths are bytes there")
def test_a_path_that_is_not_in_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "st\udcf6re"  # cp1252's byte, as Python reads it
    with pytest.raises(UnicodeEncodeError) as caught:
        pa.OSFile(str(path), "wb")
    told = known(caught.value)
    assert told is not None
    assert told.message == f"'{tmp_path}/st\\udcf6re': not a path in UTF-8, which Arrow needs"
    with pytest.raises(UnicodeEncodeError) as caught:
        "st\udcf6re".encode()
    assert known(caught.value) is None
