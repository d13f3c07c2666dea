"""What another process removes while a folder is looked at was not there."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from expert_cli.utils.filesystem import facts_of, files_below, newest_first


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Three files, written long ago and one day after another: "b", "c", "a"."""
    paths = {}
    for day, name in enumerate("bca"):
        paths[name] = tmp_path / name
        paths[name].write_text(name)
        os.utime(paths[name], (0, 86_400 * day))
    return paths


def test_a_file_that_goes_between_two_looks_is_left_out(files: dict[str, Path]) -> None:
    def going() -> Iterator[Path]:
        yield files["b"]
        files["c"].unlink()
        yield files["c"]
        yield files["a"]

    assert [path.name for path in facts_of(going())] == ["b", "a"]
    assert [path.name for path in newest_first(files.values())] == ["a", "b"]


def test_the_one_that_was_written_last_comes_first(files: dict[str, Path]) -> None:
    assert [path.name for path in newest_first(files.values())] == ["a", "c", "b"]


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
