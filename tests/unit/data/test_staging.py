"""Copies that are whole, found again, or not there at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from expert_cli.data.staging import stage, staged_path
from expert_cli.errors import EnvironmentProblem, IntegrityError
from expert_cli.utils.reporter import NullReporter
from tests.words import Words

MIB = 1 << 20


def made(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_copies_keep_their_folders_and_do_not_collide(tmp_path: Path) -> None:
    files = [made(tmp_path / folder / "t.jsonl", folder.encode()) for folder in ("a", "b")]
    fast = tmp_path / "fast"
    assert stage(files, fast, NullReporter()) == {path: staged_path(path, fast) for path in files}
    assert [staged_path(path, fast).read_bytes() for path in files] == [b"a", b"b"]


def test_a_link_keeps_its_own_name(tmp_path: Path) -> None:
    link = tmp_path / "snapshot" / "train.jsonl"
    link.parent.mkdir()
    link.symlink_to(made(tmp_path / "blobs" / "abc", b"x"))
    copy = stage([link], tmp_path / "fast", NullReporter())[link]
    assert (copy.name, copy.read_bytes(), copy.is_symlink()) == ("train.jsonl", b"x", False)


def test_what_lies_there_already_stays(tmp_path: Path) -> None:
    path = made(tmp_path / "fast" / "a.jsonl", b"x")
    assert stage([path], tmp_path / "fast", NullReporter()) == {path: path}
    assert left(tmp_path / "fast") == ["a.jsonl"]


def rewritten_in_secret(path: Path, _copy: Path) -> None:
    before = path.stat()
    path.write_bytes(b"ROWS")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("change", "copied"),
    [
        pytest.param(lambda path, copy: None, "0 B", id="none"),
        pytest.param(lambda path, copy: path.write_bytes(b"rows and more"), "13 B", id="grown"),
        pytest.param(lambda path, copy: copy.write_bytes(b"rowt"), "4 B", id="copy flipped"),
        pytest.param(lambda path, copy: copy.unlink(), "4 B", id="copy gone"),
        pytest.param(rewritten_in_secret, "4 B", marks=pytest.mark.skipif(os.name == "nt", reason="ctime is creation")),
    ],
)
def test_a_copy_is_used_again_only_if_it_is_the_same(
    tmp_path: Path, change: Callable[[Path, Path], object], copied: str
) -> None:
    path, fast, words = made(tmp_path / "a.jsonl", b"rows"), tmp_path / "fast", Words()
    copy = stage([path], fast, NullReporter())[path]
    change(path, copy)
    stage([path], fast, words)
    assert copy.read_bytes() == path.read_bytes()
    assert words.lines[0].startswith(f"staged    1 file in {fast}, {copied} copied")


@pytest.mark.skipif(os.name == "nt", reason="there is no limit on file sizes to set")
def test_a_full_disk_leaves_what_was_whole_and_nothing_else(tmp_path: Path) -> None:
    import resource

    first, second = made(tmp_path / "first.jsonl", bytes(1000)), made(tmp_path / "second.jsonl", bytes(20 * MIB))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10 * MIB, hard))
    try:
        with pytest.raises(EnvironmentProblem, match=r"cannot be staged to .*fast: File too large"):
            stage([first, second], tmp_path / "fast", NullReporter())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert left(tmp_path / "fast") == ["first.jsonl"]


def test_a_copy_that_reads_back_different_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "a.bin", b"rows")

    def worn(source: Path, copy: Path) -> None:
        copy.write_bytes(source.read_bytes()[:-1] + b"!")

    monkeypatch.setattr(shutil, "copyfile", worn)
    with pytest.raises(
        IntegrityError, match=r"a\.bin: changed while it was staged, or its copy .* reads back different"
    ):
        stage([path], tmp_path / "fast", NullReporter())
    assert left(tmp_path / "fast") == []


def test_a_target_that_is_a_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"cannot be staged to .*file"):
        stage([made(tmp_path / "a", b"x")], made(tmp_path / "file", b""), NullReporter())
