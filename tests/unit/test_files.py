"""Files are whole or absent, and hold no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from expert_cli.files import json_text, redact, sha256_of, write_json, write_text

SECRETS = {
    "hub token": ("token hf_abcdefghijklmnopqrstuvwxyz123456 here", "token *** here"),
    "token in an address": ("https://x?access_token=abc123&b", "https://x?access_token=***"),
    "environment": ("HF_TOKEN=abc WANDB_API_KEY=def", "HF_TOKEN=*** WANDB_API_KEY=***"),
    "json": ('{"API_KEY": "abc"}', '{"API_KEY": "***"}'),
    "innocent": ("hf_hub and a key=value pair", "hf_hub and a key=value pair"),
}


@pytest.mark.parametrize(("text", "expected"), SECRETS.values(), ids=SECRETS.keys())
def test_redact(text: str, expected: str) -> None:
    assert redact(text) == expected


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
