"""A full disk is one error, whoever tells of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest
from safetensors import SafetensorError

from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.utils.disk_errors import disk_errors, disk_problem, known

FULL = {
    "system": OSError(errno.ENOSPC, "No space left on device", "/data/x"),
    "library": SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    "program": "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
}


@pytest.mark.parametrize("error", FULL.values(), ids=FULL.keys())
def test_a_full_disk_is_told_in_the_same_words(error: BaseException | str) -> None:
    problem = disk_problem(error, "cannot write the store in /data", "put it elsewhere")
    assert problem is not None
    assert problem.message == "cannot write the store in /data: No space left on device"
    assert problem.hint == "make room, or put it elsewhere"


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


def test_what_a_user_can_meet() -> None:
    refused = InputError("no")
    assert known(refused) is refused
    assert known(ValueError("a bug")) is None
    assert known(OSError(2, "No such file", "x")) is None
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


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege")
def test_links_in_a_circle_are_no_bug(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises((RuntimeError, OSError)) as caught:
        (tmp_path / "a").resolve(strict=True)
    problem = known(caught.value)
    assert problem is not None
    assert problem.message.endswith(f"{os.sep}a: {os.strerror(errno.ELOOP)}")


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
