"""Folders that are as they were recorded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from expert_cli.utils.files import VerifiedFolder, folder_beside


def filled(folder: Path) -> Path:
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_text("one")
    (folder / "sub" / "b").write_text("four")
    (folder / ".nfs0001").touch()
    (folder / "progress").touch()
    return folder


def test_the_record_names_every_file_that_is_not_left_out(tmp_path: Path) -> None:
    known = {"sub/b": {"bytes": 4, "sha256": "told"}}
    files = VerifiedFolder.measured(filled(tmp_path / "x"), known, leave_out=("progress",)).files
    assert dict(files) == {**known, "a": {"bytes": 3, "sha256": hashlib.sha256(b"one").hexdigest()}}
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


def test_sizes_alone_are_compared_without_a_hash(tmp_path: Path) -> None:
    recorded = VerifiedFolder.measured(filled(tmp_path))
    (tmp_path / "a").write_text("two")
    assert recorded.damage(None) == ""
    (tmp_path / "a").unlink()
    assert recorded.damage(None) == "a is missing"


def test_a_file_that_cannot_be_hashed_is_damage(tmp_path: Path) -> None:
    def fails(path: Path) -> str:
        raise OSError(5, os.strerror(5), str(path))

    assert VerifiedFolder.measured(filled(tmp_path)).damage(fails) == f"a cannot be read: {os.strerror(5)}"


def test_a_recorded_time_spares_the_hash(tmp_path: Path) -> None:
    asked: list[str] = []

    def hashed(path: Path) -> str:
        asked.append(path.name)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    recorded = VerifiedFolder.measured(filled(tmp_path), times=True)
    os.utime(tmp_path / "a", ns=(1, 1))
    assert recorded.damage(hashed) == ""
    assert asked == ["a"]


def test_what_is_not_renamed_is_removed(tmp_path: Path) -> None:
    def fails() -> None:
        with folder_beside(tmp_path / "deep" / "home") as beside:
            filled(beside / "x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert list((tmp_path / "deep").iterdir()) == []
    with folder_beside(tmp_path / "deep" / "home") as beside:
        beside.rename(tmp_path / "deep" / "home")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["home"]
