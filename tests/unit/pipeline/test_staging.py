"""Copies that are whole, found again, or not there at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from expert_cli.data.store.build import TokenStore
from expert_cli.data.store.lookup import StoreKey
from expert_cli.errors import EnvironmentProblem
from expert_cli.pipeline.staging import stage, staged_store
from expert_cli.utils.reporter import NullReporter
from tests.words import Words


def made(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_copies_keep_their_folders_and_names_and_do_not_collide(tmp_path: Path) -> None:
    files = [made(tmp_path / folder / "t.jsonl", folder.encode()) for folder in ("a", "b", "fast")]
    (tmp_path / "link.jsonl").symlink_to(made(tmp_path / "blobs" / "abc", b"x"))
    files.append(tmp_path / "link.jsonl")
    fast = tmp_path / "fast"
    copies = stage(files, fast, NullReporter())
    assert copies == {path: path if path.parent == fast else fast / path.relative_to("/") for path in files}
    assert [copy.read_bytes() for copy in copies.values()] == [b"a", b"b", b"fast", b"x"]
    assert not copies[files[-1]].is_symlink()
    home = made(tmp_path / "stores" / "0a" / "fingerprint.json", b"{}").parent
    staged = staged_store(TokenStore(home, "hit", "", StoreKey(()), {}), fast, NullReporter())
    assert staged.home == fast / home.relative_to("/")


@pytest.mark.parametrize(
    ("source", "copy", "copied"),
    [(b"rows", b"rows", "0 B"), (b"rows and more", b"rows", "13 B"), (b"rows", b"rowt", "4 B")],
)
def test_a_copy_is_used_again_only_if_it_is_the_same(tmp_path: Path, source: bytes, copy: bytes, copied: str) -> None:
    path, fast, words = made(tmp_path / "a.jsonl", b"rows"), tmp_path / "fast", Words()
    (there,) = stage([path], fast, NullReporter()).values()
    path.write_bytes(source)
    there.write_bytes(copy)
    stage([path], fast, words)
    assert there.read_bytes() == path.read_bytes()
    assert words.lines[0] == f"staged    1 file in {fast}, {copied} copied"


def test_a_target_that_is_a_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"cannot be staged to .*file"):
        stage([made(tmp_path / "a", b"x")], made(tmp_path / "file", b""), NullReporter())
