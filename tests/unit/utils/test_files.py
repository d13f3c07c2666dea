"""Files are whole or absent."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from expert_cli.utils.files import (
    facts_of,
    files_below,
    json_text,
    parse_json,
    remove,
    sha256_of,
    write_json,
    write_text,
)


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new \ud800")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_line_ends_are_the_same_on_every_system(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": 1})
    assert (tmp_path / "a.json").read_bytes() == b'{\n  "a": 1\n}\n' == json_text({"a": 1}).encode()


def test_sha256(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256_of(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


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


@pytest.mark.skipif(sys.platform == "win32", reason="what is removed there stays until nobody has it open")
def test_two_may_remove_a_folder_at_once(tmp_path: Path) -> None:
    folder, both = tmp_path / "folder", Barrier(2)
    for number in range(300):
        file = folder / f"{number % 20}" / f"{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()

    def begin() -> None:
        both.wait()
        remove(folder)

    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(begin), pool.submit(begin)]
    assert [end.exception() for end in ends] == [None, None]
    assert not folder.exists()


def test_a_file_that_goes_between_two_looks_is_left_out(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).touch()

    def going() -> Iterator[Path]:
        yield tmp_path / "b"
        (tmp_path / "c").unlink()
        yield tmp_path / "c"
        yield tmp_path / "a"

    assert [path.name for path in facts_of(going())] == ["b", "a"]


def test_a_folder_that_goes_while_one_looks_has_no_files(tmp_path: Path) -> None:
    everything = {tmp_path / name for name in ["a", "one/b", "one/below/c", "two/d"]}
    for path in everything:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert {*files_below(tmp_path)} == everything
    found = files_below(tmp_path)
    first = next(path for path in found if path.parent != tmp_path)
    other = tmp_path / ("two" if first.is_relative_to(tmp_path / "one") else "one")
    shutil.rmtree(other)
    assert not any(path.is_relative_to(other) for path in found)
    assert list(files_below(other)) == []


def test_a_folder_that_cannot_be_read_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(folder: Path) -> None:
        raise OSError(errno.EIO, "input/output error", str(folder))

    monkeypatch.setattr(os, "scandir", fails)
    with pytest.raises(OSError, match="input/output error"):
        list(files_below(tmp_path))
