"""Which files hold a split, from names and the README's configurations."""

from __future__ import annotations

from typing import Any

import pytest

from expert_cli.data.sources.dataset_card import parse_configs
from expert_cli.data.sources.split_files import select_files
from expert_cli.errors import InputError

SHARDS = ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/test-00000-of-00001.parquet"]
TWO = {
    "configs": [
        {"config_name": "easy", "data_files": [{"split": "train", "path": "easy/*.jsonl"}], "default": "true"},
        {"config_name": "hard", "data_files": [{"split": "train", "path": ["hard/a.jsonl", "hard/b*"]}]},
    ]
}
TWO_NAMES = ["easy/one.jsonl", "easy/deep/two.jsonl", "hard/b1.jsonl", "hard/a.jsonl", "hard/c.jsonl"]


@pytest.mark.parametrize(
    ("names", "card", "config", "split", "expected"),
    [
        pytest.param(SHARDS[::-1], {}, "", "train", SHARDS[:2], id="shards in order"),
        pytest.param(["a.jsonl", "b.jsonl"], {}, "", "train", ["a.jsonl", "b.jsonl"], id="no split in the names"),
        pytest.param(
            ["a.txt", "b.jsonl"],
            {"configs": [{"config_name": "x", "data_files": "*"}]},
            "",
            "train",
            ["b.jsonl"],
            id="text that a pattern fits beside rows",
        ),
        pytest.param(["dev.csv", "sql_train.csv"], {}, "", "validation", ["dev.csv"], id="dev is validation"),
        pytest.param(
            ["train.json", "stats.json", "trainer.json"], {}, "", "train", ["train.json"], id="only the named file"
        ),
        pytest.param(
            ["train/test_1.csv", "test/train_1.csv"], {}, "", "train", ["train/test_1.csv"], id="folders before files"
        ),
        pytest.param(TWO_NAMES, TWO, "", "train", ["easy/one.jsonl"], id="default configuration; * stays in a folder"),
        pytest.param(TWO_NAMES, TWO, "hard", "train", ["hard/a.jsonl", "hard/b1.jsonl"], id="order of the patterns"),
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
    assert select_files(names, parse_configs(card.get("configs", [])), config, split, "here").files == expected


@pytest.mark.parametrize(
    ("names", "card", "config", "split", "message"),
    [
        pytest.param(
            SHARDS, {}, "", "validation", r'no file holds .*"validation"; there is: test \(1\), train', id="split"
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
            ["a.jsonl"],
            {"configs": [{"config_name": "x", "data_files": "../../etc/*.jsonl"}]},
            "",
            "train",
            "no file holds",
            id="a pattern that leaves the folder",
        ),
        pytest.param(
            ["a.jsonl"],
            {"configs": [{"config_name": "x", "data_files": ["*.jsonl", "b.jsonl"]}]},
            "",
            "train",
            'the README says that the split "train" is in b.jsonl, which is not there',
            id="a file of the README that is not there",
        ),
        pytest.param(
            ["a.jsonl", "b.jsonl.zip"],
            {},
            "",
            "train",
            r'b\.jsonl\.zip belongs to these rows, and "\.jsonl\.zip" is not read',
            id="a packed file",
        ),
    ],
)
def test_what_cannot_be_selected(names: list[str], card: dict[str, Any], config: str, split: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        select_files(names, parse_configs(card.get("configs", [])), config, split, "here")


@pytest.mark.parametrize(
    ("names", "configs", "split", "unread"),
    [
        pytest.param(["train.jsonl", "test.jsonl.lz4"], [], "train", [], id="packed, of another split"),
        pytest.param(
            ["train.json", "stats.json", "more/x.json"],
            [],
            "train",
            ["more/x.json (its name has no split)", "stats.json (its name has no split)"],
            id="no split in the name",
        ),
        pytest.param(
            ["a.jsonl", "a.jsonl.bak", "b.xlsx", "all.zip", ".git/x.json", "_old/y.jsonl"],
            [],
            "train",
            [
                '.git/x.json (a name that begins with "." or "_")',
                '_old/y.jsonl (a name that begins with "." or "_")',
                'a.jsonl.bak (".bak" is not read)',
                'all.zip (".zip" is not read)',
                'b.xlsx (".xlsx" is not read)',
            ],
            id="other formats, hidden names",
        ),
        pytest.param(
            ["a.jsonl", "b.csv"],
            [{"data_files": ["*.jsonl", "*.parquet"]}],
            "train",
            ["*.parquet (no file fits this pattern of the README)"],
            id="a pattern that fits nothing",
        ),
    ],
)
def test_what_looks_like_rows_and_is_not_read_is_named(
    names: list[str], configs: list[dict[str, Any]], split: str, unread: list[str]
) -> None:
    assert select_files(names, parse_configs(configs), "", split, "here").unread == unread
