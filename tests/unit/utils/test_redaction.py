"""No token of the hub reaches what is written or shown, and what is left of a document is still JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from expert_cli.console.terminal import Console
from expert_cli.utils.files import read_sealed, write_json, write_sealed
from expert_cli.utils.redaction import redact

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
