"""Files are whole or absent, and hold no secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from expert_cli.console.terminal import Console
from expert_cli.utils.files import (
    json_text,
    parse_json,
    read_sealed,
    redact,
    remove,
    sha256_of,
    write_json,
    write_sealed,
    write_text,
)

SECRETS = {
    "hub token": ("token hf_abcdefghijklmnopqrstuvwxyzABCDEFGH here", "token *** here"),
    "token in an address": ("https://x?access_token=abc123&b", "https://x?access_token=***"),
    "environment": ("HF_TOKEN=abc WANDB_API_KEY=def", "HF_TOKEN=*** WANDB_API_KEY=***"),
    "json": ('{"API_KEY": "abc"}', '{"API_KEY": "***"}'),
    "a token that was cut": (f"hf_{'a' * 27}… hf_{'b' * 33}...", "***… ***..."),
    "a folder's name": (f"/models/hf_{'a' * 16} and hf_{'b' * 33}", f"/models/hf_{'a' * 16} and hf_{'b' * 33}"),
    "innocent": ("hf_hub and a key=value pair", "hf_hub and a key=value pair"),
}


@pytest.mark.parametrize(("text", "expected"), SECRETS.values(), ids=SECRETS.keys())
def test_redact(text: str, expected: str) -> None:
    assert redact(text) == expected == redact(expected)


QUOTED = {
    "escaped quote": ({"note": 'set my_key=abc"def'}, {"note": 'set my_key=***"def'}),
    "backslash": ({"path": "my_token=abc\\"}, {"path": "my_token=***"}),
    "name": ({"API_KEY": 'a"b', "eos_token": ""}, {"API_KEY": "***", "eos_token": ""}),
    "JSON in a text": ({"row": '{"my_token": "x"}'}, {"row": '{"my_token": "***"}'}),
    "an answer": (
        {"answer": '{"primary_key": "id"} hf_' + "a" * 34},
        {"answer": '{"primary_key": "id"} ***'},
    ),
    "names and lists": ({"hf_" + "a" * 34: [{"b": ("hf_" + "b" * 34, 1)}, None]}, {"***": [{"b": ["***", 1]}, None]}),
    "no text": ({"at": Path("/my_key=abc")}, {"at": "/my_key=***"}),
    "half a pair": ({"file": "caf\udce9.jsonl"}, {"file": "caf\udce9.jsonl"}),
}


@pytest.mark.parametrize(("value", "expected"), QUOTED.values(), ids=QUOTED.keys())
def test_a_document_without_its_secrets_is_still_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: dict[str, Any], expected: dict[str, Any]
) -> None:
    write_json(tmp_path / "a.json", value)
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == expected
    assert redact(json_text(expected)) == json_text(expected)
    write_sealed(tmp_path / "b.json", value)
    assert read_sealed(tmp_path / "b.json") == expected
    Console("train", as_json=True).document(value)
    assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "command": "train", **expected}


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
