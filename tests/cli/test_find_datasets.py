"""`expert-cli find-datasets` as a user and a program see it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from expert_cli.commands.find_datasets import age_text
from tests import manifests

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "find-datasets.schema.json"
Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def validator() -> jsonschema_rs.Draft202012Validator:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema_rs.meta.validate(schema)
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """One expert with rows, one whose data is not here, one that does not load; a hub cache with one idle data set."""
    for name, path in (("rows", "datasets/a.jsonl"), ("far", "org/far")):
        home = tmp_path / "experts" / name
        home.mkdir(parents=True)
        written = manifests.small()
        written = {**written, "name": name, "training": {**written["training"], "dataset": {"path": path}}}
        manifests.write(home, written)
    rows = tmp_path / "experts" / "rows" / "datasets" / "a.jsonl"
    rows.parent.mkdir()
    rows.write_bytes(b'{"instruction": "1", "response": "2"}\n' * 100)
    long_ago = time.time() - 3.5 * 86400
    os.utime(rows, (long_ago, long_ago))
    (tmp_path / "experts" / "bad").mkdir()
    (tmp_path / "experts" / "bad" / "manifest.json").write_text("{", encoding="utf-8")
    idle = tmp_path / "hf" / "hub" / "datasets--org--idle" / "snapshots" / "abc" / "x.csv"
    idle.parent.mkdir(parents=True)
    idle.write_bytes(b"a,b\n1,2\n")
    return tmp_path


def rows_of(document: dict[str, Any]) -> dict[str, tuple[str, str, int, list[str]]]:
    return {row["name"]: (row["kind"], row["status"], row["bytes"], row["experts"]) for row in document["datasets"]}


EXPECTED = {
    "org/idle": ("hub", "unused", 8, []),
    "org/far": ("hub", "missing", 0, ["far"]),
    "rows/datasets/a.jsonl": ("file", "used", 3800, ["rows"]),
}


def test_json_is_one_document_of_its_schema(
    cli: Cli, project: Path, validator: jsonschema_rs.Draft202012Validator
) -> None:
    done = cli("find-datasets", "--hf-cache", "hf", "--json")
    assert done.code == 0
    document = json.loads(done.out)
    validator.validate(document)
    assert document["hf_cache"] == str(project / "hf")
    assert rows_of(document) == EXPECTED
    assert "bad" in done.err


def test_the_environment_names_the_caches(
    cli: Cli, project: Path, validator: jsonschema_rs.Draft202012Validator
) -> None:
    home = json.loads(cli("find-datasets", "--json", HF_HOME=str(project / "hf")).out)
    validator.validate(home)
    assert rows_of(home) == EXPECTED
    built = project / "arrow" / "org___far" / "default" / "1.0.0" / "hash" / "x.arrow"
    built.parent.mkdir(parents=True)
    built.write_bytes(b"12")
    parts = {"HF_HUB_CACHE": str(project / "hf" / "hub"), "HF_DATASETS_CACHE": str(project / "arrow")}
    document = json.loads(cli("find-datasets", "--json", HF_HOME=str(project / "none"), **parts).out)
    kinds = [(row["name"], row["kind"], row["status"]) for row in document["datasets"]]
    assert ("org/far", "arrow_cache", "used") in kinds
    assert ("org/far", "hub", "missing") in kinds
    assert ("org/idle", "hub", "unused") in kinds


def test_the_table_says_what_when_and_whose(cli: Cli, project: Path) -> None:
    done = cli("find-datasets", "--hf-cache", "hf")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert "used 3.8 kB 1 100 read 3 days ago rows/datasets/a.jsonl (rows) experts/rows/datasets/a.jsonl" in lines
    assert "missing org/far (far)" in lines
    assert str(project / "experts") in lines
    assert lines[-1] == "3 data sets, 3.8 kB"
    assert done.err.count("\n") == 1
    assert "bad" in done.err


NO_EXPERTS = "no folder experts/ here or above; --experts DIR names another\n"


def test_nothing_at_all_is_no_failure(cli: Cli, tmp_path: Path) -> None:
    done = cli("find-datasets", "--hf-cache", tmp_path)
    assert (done.code, done.out, done.err) == (0, "0 data sets, 0 B\n", NO_EXPERTS)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "now"), (59, "now"), (60, "1 minute ago"), (7199, "1 hour ago"), (3.9 * 86400, "3 days ago"),
     (40 * 86400, "1 month ago"), (364 * 86400, "11 months ago"), (800 * 86400, "2 years ago")],
)  # fmt: skip
def test_ages_are_read_easily(seconds: float, text: str) -> None:
    assert age_text(seconds) == text
