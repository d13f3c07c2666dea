"""Rows of an earlier training are trained again: so many that they are their share, drawn by the seed, none twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

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


def test_share_and_seed_are_in_the_key_of_the_store(tmp_path: Path) -> None:
    def key(data: DataConfig) -> str:
        made_by = {"tokenizer": "t", "template": "t", "masking": "1"}
        located = locate_data(data, NullReporter())
        return store_key(data, located, FileHashCache(tmp_path / ".none"), **made_by).sha256

    data = data_of(tmp_path, 0.2)
    others = [data_of(tmp_path, 0.3), data_of(tmp_path, 0.2, seed=7), replace(data, train=data.train[:1])]
    assert len({key(one) for one in (data, *others)}) == 4
    assert key(data) == key(data_of(tmp_path, 0.2))
