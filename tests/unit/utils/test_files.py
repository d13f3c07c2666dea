"""Files and folders are whole or absent, and as they were recorded; rows are written as they are, without the hub's tokens."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from expert_cli.console.terminal import Console
from expert_cli.utils.files import (
    VerifiedFolder,
    facts_of,
    files_below,
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


def test_sizes_alone_are_compared_without_a_hash(tmp_path: Path) -> None:
    recorded = VerifiedFolder.measured(filled(tmp_path))
    (tmp_path / "a").write_text("two")
    assert recorded.damage(None) == ""
    (tmp_path / "a").unlink()
    assert recorded.damage(None) == "a is missing"


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
