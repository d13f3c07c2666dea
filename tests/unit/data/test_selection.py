"""Which files hold a split, from names and the README's configurations."""

from __future__ import annotations

from typing import Any

import pytest

from expert_cli.data.readers import READERS
from expert_cli.data.selection import select_files
from expert_cli.errors import InputError
from expert_cli.sourcespec import DATA_SUFFIXES

SHARDS = ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/test-00000-of-00001.parquet"]
TWO = {
    "configs": [
        {"config_name": "easy", "data_files": [{"split": "train", "path": "easy/*.jsonl"}], "default": True},
        {"config_name": "hard", "data_files": [{"split": "train", "path": ["hard/a.jsonl", "hard/b*"]}]},
    ]
}
TWO_NAMES = ["easy/one.jsonl", "easy/deep/two.jsonl", "hard/b1.jsonl", "hard/a.jsonl", "hard/c.jsonl"]


@pytest.mark.parametrize(
    ("names", "card", "config", "split", "expected"),
    [
        pytest.param(SHARDS[::-1], {}, "", "train", SHARDS[:2], id="shards in order"),
        pytest.param(SHARDS, {}, "", "test", SHARDS[2:], id="test"),
        pytest.param(["a.jsonl", "b.jsonl"], {}, "", "train", ["a.jsonl", "b.jsonl"], id="no split in the names"),
        pytest.param(["dev.csv", "sql_train.csv"], {}, "", "validation", ["dev.csv"], id="dev is validation"),
        pytest.param(["valid.csv", "train.csv"], {}, "", "valid", ["valid.csv"], id="valid asked for"),
        pytest.param(
            ["train.json", "stats.json", "trainer.json"], {}, "", "train", ["train.json"], id="only the named file"
        ),
        pytest.param(
            ["train/test_1.csv", "test/train_1.csv"], {}, "", "train", ["train/test_1.csv"], id="folders before files"
        ),
        pytest.param(
            ["README.md", "dataset_info.json", ".git/x.json", "_old/y.json", "rows.json"],
            {},
            "",
            "train",
            ["rows.json"],
            id="what holds no rows",
        ),
        pytest.param(TWO_NAMES, TWO, "", "train", ["easy/one.jsonl"], id="default configuration; * stays in a folder"),
        pytest.param(TWO_NAMES, TWO, "hard", "train", ["hard/a.jsonl", "hard/b1.jsonl"], id="order of the patterns"),
        pytest.param(
            TWO_NAMES,
            {"configs": [{"config_name": "x", "data_files": "**/[ot]*.jsonl"}]},
            "",
            "train",
            ["easy/deep/two.jsonl", "easy/one.jsonl"],
            id="** and sets",
        ),
        pytest.param(
            ["a/train.csv", "b/train.csv", "a/test.csv"],
            {"configs": [{"config_name": "a", "data_dir": "a"}]},
            "a",
            "train",
            ["a/train.csv"],
            id="data_dir",
        ),
        pytest.param(
            ["x.jsonl", "y.jsonl"],
            {"configs": [{"config_name": "default", "data_files": {"train_sft": "x.jsonl", "test_sft": ["y.jsonl"]}}]},
            "",
            "test_sft",
            ["y.jsonl"],
            id="splits of other names",
        ),
    ],
)
def test_the_files_of_a_split(
    names: list[str], card: dict[str, Any], config: str, split: str, expected: list[str]
) -> None:
    assert select_files(names, card, config, split, "here") == expected


@pytest.mark.parametrize(
    ("names", "card", "config", "split", "message"),
    [
        pytest.param(
            SHARDS, {}, "", "validation", r'no file holds .*"validation"; there is: test \(1\), train', id="split"
        ),
        pytest.param(["notes.txt"], {}, "", "train", "there is: no data file", id="no data"),
        pytest.param(
            SHARDS, {}, "easy", "train", 'no configuration "easy", its README names none', id="config, no README"
        ),
        pytest.param(TWO_NAMES, TWO, "medium", "train", 'no configuration "medium"; there is: easy, hard', id="config"),
        pytest.param(
            TWO_NAMES,
            {"configs": [{"config_name": "a"}, {"config_name": "b"}]},
            "",
            "train",
            "several configurations and no default one",
            id="no default",
        ),
        pytest.param(
            ["train.csv", "train.jsonl"], {}, "", "train", r"2 formats side by side \(.csv, .jsonl\)", id="formats"
        ),
        pytest.param(SHARDS[1:], {}, "", "train", "has 1 of 2 parts; number 00000 is missing", id="missing shard"),
        pytest.param(
            SHARDS, {"configs": "all"}, "", "train", "not a list of configurations", id="card of another form"
        ),
        pytest.param(
            ["a.jsonl"],
            {"configs": [{"config_name": "x", "data_files": "../../etc/*.jsonl"}]},
            "",
            "train",
            "no file holds",
            id="a pattern that leaves the folder",
        ),
    ],
)
def test_what_cannot_be_selected(names: list[str], card: dict[str, Any], config: str, split: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        select_files(names, card, config, split, "here")


def test_every_suffix_that_makes_a_path_local_has_a_reader() -> None:
    assert tuple(READERS) == DATA_SUFFIXES
