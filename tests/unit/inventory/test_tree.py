"""Looking at files: what is broken, closed, gone, huge or in a circle; and that looking leaves no trace."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from expert_cli.inventory.tree import scan_tree
from tests.dataset_world import COMMIT, KEY, Words, hub, listed, made, parquet, store


@pytest.fixture
def world(tmp_path: Path) -> Path:
    (tmp_path / "project" / "experts").mkdir(parents=True)
    return tmp_path


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may read everything: be nobody for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_what_may_not_be_read_is_said_and_skipped() -> None:
    with tempfile.TemporaryDirectory() as made_here:
        world = Path(made_here).resolve()
        world.chmod(0o755)
        folder = hub(world, "org/half", {"a.csv": b"12"})
        closed = [
            folder / "snapshots" / COMMIT / "closed",
            hub(world, "org/closed", {"a.csv": b"12"}),
            world / "project" / "experts" / "closed",
            made(world / "project" / "experts" / "sealed" / "manifest.json"),
            world / "project" / "datasets_optimized" / "one" / "tokenized" / KEY[:12],
        ]
        made(world / "project" / "experts" / "open" / "data" / "a.csv", b"123")
        for path in closed:
            if path.suffix != ".json":
                path.mkdir(parents=True, exist_ok=True)
            path.chmod(0)
        report = Words()
        with without_privileges():
            rows = listed(world, report=report)
        for path in closed:
            path.chmod(0o700)
    assert {name: (row.status, row.tree.bytes) for name, row in rows.items()} == {
        "org/half": ("unused", 2),
        "org/closed": ("unused", 0),
        "open/data/a.csv": ("unused", 3),
        "one/tokenized/0123456789ab": ("damaged", 0),
    }
    assert rows["org/half"].note == "1 folder cannot be read"
    assert rows["org/closed"].note.endswith("2 folders cannot be read")
    assert rows["one/tokenized/0123456789ab"].note == "fingerprint.json cannot be read: Permission denied"
    assert [line.partition("manifest.json")[0].split("/")[-2] for line in report.lines] == ["sealed"]


@pytest.mark.skipif(os.name == "nt", reason="links")
def test_links_in_a_circle_end(world: Path) -> None:
    data = world / "project" / "experts" / "one" / "data"
    made(data / "a.csv", b"123")
    (data / "self.csv").symlink_to("self.csv")
    (data / "up").symlink_to(data, target_is_directory=True)
    (data / "to").symlink_to("fro")
    (data / "fro").symlink_to("to")
    (row,) = listed(world).values()
    assert (row.name, row.tree.bytes, row.status, row.note) == ("one/data", 3, "damaged", "1 link leads nowhere")


def test_a_file_that_vanishes_was_not_there(tmp_path: Path) -> None:
    made(tmp_path / "a.jsonl", b"123")
    made(tmp_path / "b.jsonl", b"12345")

    def vanish() -> None:
        (tmp_path / "a.jsonl").unlink(missing_ok=True)
        (tmp_path / "b.jsonl").unlink(missing_ok=True)

    tree = scan_tree([tmp_path], vanish)
    assert (tree.bytes, tree.broken, tree.unreadable) == (0, 0, 0)
    assert scan_tree([tmp_path / "gone"], vanish).bytes == 0


def test_a_huge_folder_is_cut_short_and_says_so(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        made(world / "rows" / f"{number}.jsonl", b"1")
    tree = scan_tree([world / "rows"], lambda: None, max_s=-1)
    assert tree.cut_short
    assert tree.bytes < 20
    hub(world, "org/rows", {"a.jsonl": b"{}", "b.jsonl": b"{}"})
    monkeypatch.setattr(
        "expert_cli.inventory.dataset.scan_tree", lambda roots, pulse: scan_tree(roots, pulse, max_s=-1)
    )
    assert listed(world)["org/rows"].note == "too much to list in time: at least this"


@pytest.mark.skipif(sys.platform != "linux", reason="O_NOATIME is Linux's")
def test_looking_is_not_using(world: Path) -> None:
    home = store(world / "project" / "datasets_optimized" / "one" / "tokenized")
    rows = parquet(world / "project" / "experts" / "one" / "data" / "a.parquet", 3)
    files = [rows, *(path for path in home.rglob("*") if path.is_file())]
    for path in files:
        os.utime(path, (2_000_000, 1_000_000))
    found = listed(world)
    assert {row.rows for row in found.values()} == {2, 3}
    assert {path.name: path.stat().st_atime for path in files} == {path.name: 2_000_000 for path in files}
    assert {row.tree.last_use for row in found.values()} == {(2_000_000, "atime")}


@pytest.mark.skipif(os.name == "nt", reason="Windows rarely keeps times of reading")
@pytest.mark.parametrize(
    ("read", "written", "flags", "last"),
    [
        (30, 20, 0, (30, "atime")),
        (20, 30, 0, (30, "mtime")),
        (30, 20, getattr(os, "ST_NOATIME", 1024), (20, "mtime")),
    ],
    ids=["read later", "written later", "noatime"],
)
def test_last_use_says_what_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: int, written: int, flags: int, last: tuple[int, str]
) -> None:
    path = made(tmp_path / "a.jsonl")
    os.utime(path, (read, written))

    class Mounted:
        f_flag = flags

    monkeypatch.setattr(os, "statvfs", lambda _: Mounted)
    assert scan_tree([path], lambda: None).last_use == last
