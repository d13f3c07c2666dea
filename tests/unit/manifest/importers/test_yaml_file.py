"""A file in YAML is read as data and nothing else, and a broken one says where."""

from __future__ import annotations

from pathlib import Path

import pytest

from expert_cli.errors import InputError
from expert_cli.manifest.importers.yaml_file import LARGEST, read_yaml

BROKEN = {
    "a bracket": (b"a: 1\nb: [1, 2\nc: 3\n", r"x\.yml:3:2: "),
    "a tab": (b"a:\n\tb: 1\n", r"x\.yml:2:1: "),
    "an object of Python": (b"a: 1\nb: !!python/object/apply:os.getcwd []\n", r"x\.yml:2:4: could not determine"),
    "no keys": (b"- 1\n- 2\n", "holds no keys"),
    "nothing": (b"", "holds no keys"),
    "no text": (b"a: \xff\xfe\n", "is not UTF-8 text"),
    "a key that is a list": (b"? [1]\n: 2\n", r"x\.yml:1:"),
    "too large": (b"a: " + b"x" * LARGEST, "more than 1,000,000 bytes"),
    "too deep": (b"a: " + b"[" * 50_000, "x.yml"),
}


@pytest.mark.parametrize(("raw", "told"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_says_where(tmp_path: Path, raw: bytes, told: str) -> None:
    (tmp_path / "x.yml").write_bytes(raw)
    with pytest.raises(InputError, match=told):
        read_yaml(tmp_path / "x.yml")


def test_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text("a: 2e-4\nb: 2.0e-4\nc: yes\nd:\n", encoding="utf-8")
    assert read_yaml(tmp_path / "x.yml") == {"a": "2e-4", "b": 0.0002, "c": True, "d": None}
