"""Rows are written as they are: they are trained, or judged again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from expert_cli.utils.files import json_lines, json_objects, write_text

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


def test_a_token_of_the_hub_is_not_written(tmp_path: Path) -> None:
    token = "hf_" + "a" * 34
    assert json.loads(json_lines([{"a": f'login("{token}")'}])) == {"a": 'login("***")'}
    write_text(tmp_path / "Modelfile", f"PARAMETER stop my_key=abc\n# {token}\n")
    assert (tmp_path / "Modelfile").read_bytes() == b"PARAMETER stop my_key=abc\n# ***\n"
