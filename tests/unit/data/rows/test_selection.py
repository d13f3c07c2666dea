"""How many rows of a source are drawn, and how often each stands: by share, by weight, by cap, by repeat."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.run_config import ColumnMapping, DataConfig, RowFilters, SourceSpec
from expert_cli.data.sources.data_rows import locate_data
from expert_cli.data.store.files import FileHashCache
from expert_cli.data.store.key import store_key
from expert_cli.utils.reporter import NullReporter
from tests.dataset_world import Words
from tests.reading import read_training_rows


def rows_of(path: Path, count: int, letter: str) -> SourceSpec:
    lines = [json.dumps({"question": f"{letter}{number}?", "answer": f"{letter}{number}"}) for number in range(count)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return SourceSpec("file", str(path))


def data_of(folder: Path, share: float, *, new: int = 80, old: int = 100, seed: int = 42) -> DataConfig:
    sources = (rows_of(folder / "new.jsonl", new, "n"), replace(rows_of(folder / "old.jsonl", old, "o"), share=share))
    return DataConfig(sources, (), 0.0, ColumnMapping(), RowFilters(), True, 64, seed, True)


def answers(data: DataConfig, reporter: NullReporter | None = None) -> list[str]:
    return list(read_training_rows(data, reporter or NullReporter()).train.response)


@pytest.mark.parametrize(("share", "drawn"), [(0.2, 20), (0.5, 80), (0.001, 1), (0.1, 9)])
def test_old_rows_are_their_share_of_all(tmp_path: Path, share: float, drawn: int) -> None:
    found = answers(data_of(tmp_path, share))
    old = [answer for answer in found if answer.startswith("o")]
    assert found[:80] == [f"n{number}" for number in range(80)]
    assert len(old) == len(set(old)) == drawn
    assert found == answers(data_of(tmp_path, share))
    assert old != [f"o{number}" for number in range(drawn)] or drawn == 1
    assert found != answers(data_of(tmp_path, share, seed=7))


def test_where_there_are_fewer_all_are_trained_again_and_that_is_told(tmp_path: Path) -> None:
    words = Words()
    assert answers(data_of(tmp_path, 0.5, old=20), words)[80:] == [f"o{number}" for number in range(20)]
    (told,) = [line for line in words.lines if "replay.share" in line]
    assert "replay.share 0.5 asks for 80 rows beside 80 others, there are 20: all are trained again, 20.0%" in told
    exact = Words()
    assert len(answers(data_of(tmp_path, 0.2, old=20), exact)) == 100
    assert not [line for line in exact.lines if "replay.share" in line]


def key(data: DataConfig) -> str:
    made_by = {"tokenizer": "t", "template": "t"}
    return store_key(data, locate_data(data, NullReporter()), FileHashCache(Path(".none")), **made_by).sha256


def test_share_and_seed_are_in_the_key_of_the_store(tmp_path: Path) -> None:
    data = data_of(tmp_path, 0.2)
    others = [data_of(tmp_path, 0.3), data_of(tmp_path, 0.2, seed=7), replace(data, train=data.train[:1])]
    assert len({key(one) for one in (data, *others)}) == 4
    assert key(data) == key(data_of(tmp_path, 0.2))


@pytest.mark.parametrize(
    ("drawn", "rows", "times"),
    [
        ({"max_rows": 7}, 7, 1),
        ({"max_rows": 100}, 40, 1),
        ({"weight": 2.0, "max_rows": 7}, 7, 1),
        ({"repeat": 3}, 40, 3),
        ({"weight": 0.1, "repeat": 3}, 4, 3),
        ({"max_rows": 7, "repeat": 2}, 7, 2),
    ],
    ids=str,
)
def test_a_source_is_drawn_up_to_its_cap_and_repeated(
    tmp_path: Path, drawn: dict[str, Any], rows: int, times: int
) -> None:
    many = rows_of(tmp_path / "many.jsonl", 40, "m")
    data = DataConfig((replace(many, **drawn),), (), 0.0, ColumnMapping(), RowFilters(), True, 64, 42, True)
    found = answers(data)
    assert len(set(found)) == rows
    assert [found.count(answer) for answer in set(found)] == [times] * rows
    assert found == answers(data)
    other = replace(data, seed=7)
    assert (found != answers(other)) == (rows < 40)
    assert rows == 40 or key(data) != key(other)


def test_cap_and_repeat_are_in_the_key_where_they_are_written(tmp_path: Path) -> None:
    many = rows_of(tmp_path / "many.jsonl", 40, "m")
    data = DataConfig((many,), (), 0.0, ColumnMapping(), RowFilters(), True, 64, 42, True)
    drawn: list[dict[str, Any]] = [{}, {"max_rows": 7}, {"max_rows": 8}, {"repeat": 2}, {"max_rows": 7, "repeat": 2}]
    assert len({key(replace(data, train=(replace(many, **one),))) for one in drawn}) == 5
    made_by = {"tokenizer": "t", "template": "t"}
    parts = store_key(data, locate_data(data, NullReporter()), FileHashCache(Path(".none")), **made_by).parts
    assert dict(parts)["train rows"] == '[["train", 1.0, null, 0.0, null, 1]]'


def test_a_row_that_evaluates_is_no_row_of_a_repeated_source(tmp_path: Path) -> None:
    many = replace(rows_of(tmp_path / "many.jsonl", 40, "m"), max_rows=20, repeat=3)
    data = DataConfig((many,), (), 0.25, ColumnMapping(), RowFilters(), True, 64, 42, True)
    read = read_training_rows(data, NullReporter())
    assert read.validation is not None
    assert (len(read.validation), len(read.train)) == (5, 45)
    assert not set(read.validation.response) & set(read.train.response)
