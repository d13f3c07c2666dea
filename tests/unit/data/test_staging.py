"""Copies that are whole, found again, or not there at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from expert_cli.data.staging import stage, staged_path
from expert_cli.errors import EnvironmentProblem, InputError, IntegrityError
from expert_cli.utils.reporter import NullReporter
from expert_cli.utils.text import size_text

MIB = 1 << 20


class Words(NullReporter):
    """Keeps what is said; `during` runs whenever a bar moves."""

    def __init__(self, during: Callable[[], None] = lambda: None) -> None:
        self.lines: list[str] = []
        self.during = during

    def info(self, text: str) -> None:
        self.lines.append(text)

    def warning(self, text: str) -> None:
        self.lines.append(f"warning: {text}")

    @contextmanager
    def progress(self, title: str, total: float | None, unit: str = "") -> Iterator[Words]:
        yield self

    def update(self, done: float, note: str = "") -> None:
        self.during()


def made(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def left(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (9_949, "9.9 kB"), (9_960, "10 kB"), (999_400, "999 kB"),
     (999_600, "1.0 MB"), (3_400_000_000, "3.4 GB"), (45e9, "45 GB"), (2.5e12, "2.5 TB"), (12_345e12, "12345.0 TB")],
)  # fmt: skip
def test_sizes_are_read_easily(count: float, text: str) -> None:
    assert size_text(count) == text


def test_copies_keep_their_folders_and_do_not_collide(tmp_path: Path) -> None:
    files = [made(tmp_path / "a" / "train.jsonl", b"one\n"), made(tmp_path / "b" / "train.jsonl", b"three\n")]
    report = Words()
    staged = stage(files, tmp_path / "fast", report)
    assert [staged.mapping[path].read_bytes() for path in files] == [b"one\n", b"three\n"]
    assert [staged.mapping[path] for path in files] == [staged_path(path, tmp_path / "fast") for path in files]
    assert staged.mapping[files[0]].as_posix().endswith("/a/train.jsonl")
    assert (staged.bytes, staged.reused) == (10, 0)
    assert report.lines[-1].startswith(f"staged    10 B to {tmp_path / 'fast'} in ")
    assert not [name for name in left(tmp_path / "fast") if name.endswith(".tmp")]


def test_a_link_keeps_its_own_name(tmp_path: Path) -> None:
    made(tmp_path / "blobs" / "0123", b"rows")
    link = tmp_path / "snapshots" / "train.parquet"
    link.parent.mkdir()
    link.symlink_to("../blobs/0123")
    copy = stage([link], tmp_path / "fast", NullReporter()).mapping[link]
    assert copy.name == "train.parquet"
    assert not copy.is_symlink()
    assert copy.read_bytes() == b"rows"


@pytest.mark.parametrize("spelling", ["b/../a/t.jsonl", "a/t.jsonl"])
def test_other_spellings_share_a_copy(tmp_path: Path, spelling: str) -> None:
    path = made(tmp_path / "a" / "t.jsonl", b"x")
    (tmp_path / "b").mkdir()
    staged = stage([path, tmp_path / spelling], tmp_path / "fast", NullReporter())
    assert len(set(staged.mapping.values())) == 1
    assert staged.bytes == 1


def test_what_lies_there_already_stays(tmp_path: Path) -> None:
    path = made(tmp_path / "fast" / "a.jsonl", b"x")
    staged = stage([path], tmp_path / "fast", NullReporter())
    assert (staged.mapping, staged.bytes, left(tmp_path / "fast")) == ({path: path}, 0, ["a.jsonl"])


def rewritten_in_secret(path: Path, _copy: Path) -> None:
    before = path.stat()
    path.write_bytes(b"ROWS")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("change", "reused", "said"),
    [
        pytest.param(lambda path, copy: None, 1, "", id="none"),
        pytest.param(lambda path, copy: path.write_bytes(b"rows and more"), 0, "", id="grown"),
        pytest.param(lambda path, copy: copy.write_bytes(b"rowt"), 0, "damaged and is made again", id="copy flipped"),
        pytest.param(lambda path, copy: copy.unlink(), 0, "", id="copy gone"),
        pytest.param(rewritten_in_secret, 0, "", marks=pytest.mark.skipif(os.name == "nt", reason="ctime is creation")),
    ],
)
def test_a_copy_is_used_again_only_if_it_is_the_same(
    tmp_path: Path, change: Callable[[Path, Path], object], reused: int, said: str
) -> None:
    path = made(tmp_path / "a.jsonl", b"rows")
    fast = tmp_path / "fast"
    copy = stage([path], fast, NullReporter()).mapping[path]
    change(path, copy)
    report = Words()
    staged = stage([path], fast, report)
    assert staged.reused == reused
    assert copy.read_bytes() == path.read_bytes()
    assert said in report.lines[0]
    assert stage([path], fast, NullReporter()).reused == 1


def test_a_broken_record_is_no_record(tmp_path: Path) -> None:
    path = made(tmp_path / "a.jsonl", b"rows")
    stage([path], tmp_path / "fast", NullReporter())
    (record,) = (tmp_path / "fast" / ".staged").iterdir()
    record.write_text('["half')
    assert stage([path], tmp_path / "fast", NullReporter()).reused == 0


@pytest.mark.parametrize(("free", "fits"), [(9, False), (10, True)])
def test_too_little_room_is_said_before_anything_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, fits: bool
) -> None:
    files = [made(tmp_path / "a.jsonl", b"rows"), made(tmp_path / "b.jsonl", b"others")]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 100 - free, free))
    if fits:
        assert stage(files, tmp_path / "fast", NullReporter()).bytes == 10
        monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 100, 0))
        assert stage(files, tmp_path / "fast", NullReporter()).reused == 2
        return
    with pytest.raises(EnvironmentProblem, match="fast: 10 bytes are to be staged, and 9 bytes are free"):
        stage(files, tmp_path / "fast", NullReporter())
    assert left(tmp_path / "fast") == []


@pytest.mark.skipif(os.name == "nt", reason="there is no limit on file sizes to set")
def test_a_full_disk_leaves_what_was_whole_and_nothing_else(tmp_path: Path) -> None:
    import resource

    first = made(tmp_path / "a" / "first.jsonl", bytes(1000))
    second = made(tmp_path / "b" / "deep" / "second.jsonl", bytes(20 * MIB))
    fast = tmp_path / "fast"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10 * MIB, hard))
    try:
        with pytest.raises(
            EnvironmentProblem, match=r"second\.jsonl: cannot be staged to .*second\.jsonl: File too large"
        ):
            stage([first, second], fast, NullReporter())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path for path in fast.rglob("*") if path.is_file() and ".staged" not in path.parts] == [
        staged_path(first, fast)
    ]
    assert not staged_path(second.parent.parent, fast).exists()
    assert stage([first, second], fast, NullReporter()).reused == 1


def test_a_source_that_changes_while_it_is_copied_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path / "a.jsonl", b"rows")

    def grow() -> None:
        with path.open("ab") as file:
            file.write(b"+")

    with pytest.raises(IntegrityError, match=r"a\.jsonl: changed while it was staged"):
        stage([path], tmp_path / "fast", Words(grow))
    assert left(tmp_path / "fast") == []


def test_a_copy_that_reads_back_different_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path / "a.bin", bytes(8 * MIB))
    fast = tmp_path / "fast"

    def flip() -> None:
        (beside,) = (found for found in fast.rglob("*.tmp"))
        with beside.open("r+b") as file:
            file.write(b"!")

    with pytest.raises(IntegrityError, match="reads back different"):
        stage([path], fast, Words(flip))
    assert left(fast) == []


def test_interrupted_staging_leaves_nothing(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stage([made(tmp_path / "a.bin", b"x")], tmp_path / "fast", Words(interrupt))
    assert left(tmp_path / "fast") == []


@pytest.mark.parametrize("name", ["gone.jsonl", "folder", "circle"])
def test_only_files_are_staged(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(InputError, match=f"{name}: cannot be staged"):
        stage([tmp_path / name], tmp_path / "fast", NullReporter())


def test_a_target_that_is_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="fast: cannot be staged to"):
        stage([made(tmp_path / "a", b"x")], made(tmp_path / "fast", b""), NullReporter())
