"""No secret reaches what is written or shown, and what is left of a document is still JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from expert_cli.console.terminal import Console
from expert_cli.utils.files import json_text, read_sealed, write_json, write_sealed
from expert_cli.utils.redaction import redact

SECRETS = {
    "hub token": ("token hf_abcdefghijklmnopqrstuvwxyzABCDEFGH here", "token *** here"),
    "token in an address": ("https://x?access_token=abc123&b", "https://x?access_token=***"),
    "environment": ("HF_TOKEN=abc WANDB_API_KEY=def", "HF_TOKEN=*** WANDB_API_KEY=***"),
    "json": ('{"API_KEY": "abc"}', '{"API_KEY": "***"}'),
    "a token that was cut": (f"hf_{'a' * 27}… hf_{'b' * 33}...", "***… ***..."),
    "a folder's name": (f"/models/hf_{'a' * 16} and hf_{'b' * 33}", f"/models/hf_{'a' * 16} and hf_{'b' * 33}"),
    "a token of a tokenizer": ('{"eos_token": "</s>"} PAD_TOKEN=<pad>', '{"eos_token": "</s>"} PAD_TOKEN=<pad>'),
    "innocent": ("hf_hub and a key=value pair", "hf_hub and a key=value pair"),
}


@pytest.mark.parametrize(("text", "expected"), SECRETS.values(), ids=SECRETS.keys())
def test_redact(text: str, expected: str) -> None:
    assert redact(text) == expected == redact(expected)


QUOTED = {
    "escaped quote": ({"note": 'set my_key=abc"def'}, {"note": 'set my_key=***"def'}),
    "backslash": ({"path": "my_token=abc\\"}, {"path": "my_token=***"}),
    "name": ({"API_KEY": 'a"b', "eos_token": "no"}, {"API_KEY": "***", "eos_token": "no"}),
    "no name": ({"my_token": ""}, {"my_token": ""}),
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
