"""Which rows are taken, and how often: slices, filters, repeats, weights, shares, the split of validation rows."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.run_config import ColumnMapping, DataConfig, RowFilters, SourceSpec
from expert_cli.data.select import RowSelection, repeat_counts, select_rows
from expert_cli.data.sources import locate_data
from expert_cli.data.store.lookup import store_key
from expert_cli.errors import InputError
from expert_cli.utils.files import FileHashCache
from expert_cli.utils.reporter import NullReporter, Reporter
from tests.words import Words


def rows_of(path: Path, *rows: Any, split: str = "train", **drawn: Any) -> SourceSpec:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return SourceSpec("file", str(path), split=split, **drawn)


def pairs(letter: str, count: int) -> list[dict[str, str]]:
    return [{"question": f"{letter}{number}?", "answer": f"{letter}{number}"} for number in range(count)]


def data_of(*train: SourceSpec, validation: tuple[SourceSpec, ...] = (), share: float = 0.0, **more: Any) -> DataConfig:
    settings = {"mapping": ColumnMapping(), "filters": RowFilters(), "seed": 42, **more}
    return DataConfig(train, validation, share, completion_only=True, max_seq_length=64, offline=True, **settings)


def selected(data: DataConfig, reporter: Reporter = NullReporter(), **more: Any) -> RowSelection:
    return select_rows(data, locate_data(data, reporter), reporter, **more)


def answers(data: DataConfig, reporter: Reporter = NullReporter()) -> list[str]:
    return [row.answer for row in selected(data, reporter).rows()]


@pytest.mark.parametrize(
    ("split", "numbers"),
    [
        ("train[:2]", [0, 1]),
        ("train[2:]", [2, 3, 4, 5, 6, 7, 8, 9]),
        ("train[-2:]", [8, 9]),
        ("train[50%:70%]", [5, 6]),
        ("train[8:100]", [8, 9]),
    ],
)
def test_a_slice_counts_bad_rows_too(tmp_path: Path, split: str, numbers: list[int]) -> None:
    rows: list[Any] = pairs("a", 10)
    rows[3] = "{"
    found = selected(data_of(rows_of(tmp_path / "rows.jsonl", *rows, split=split)), bad_share=1.0)
    assert [row.answer for row in found.rows()] == [f"a{n}" for n in numbers if n != 3]
    assert [row.where for row in found.rows()] == [f"{tmp_path / 'rows.jsonl'}:{n + 1}" for n in numbers if n != 3]
    assert sum(found.reports["train"].dropped.values()) == (3 in numbers)


def test_more_than_one_row_in_a_hundred_is_refused_and_named(tmp_path: Path) -> None:
    rows: list[Any] = pairs("a", 200)
    rows[7], rows[9] = "{", {"question": "q"}
    words = Words()
    assert len(answers(data_of(rows_of(tmp_path / "few.jsonl", *rows)), words)) == 198
    assert any("left out: 2 of 200 rows are bad" in one and "few.jsonl:8: not valid JSON" in one for one in words.lines)
    rows[11] = {"question": "q", "answer": 3}
    with pytest.raises(InputError, match=r"3 of 200 rows are bad: .*:8: not valid JSON.*:10: \"answer\" is missing"):
        answers(data_of(rows_of(tmp_path / "few.jsonl", *rows)))


def test_a_known_column_that_appears_later_is_refused_by_its_place(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [*pairs("a", 300)]
    rows[250] = {**rows[250], "note": "x"}
    assert len(answers(data_of(rows_of(tmp_path / "rows.jsonl", *rows)))) == 300
    rows[260] = {**rows[260], "context": "c"}
    spec = rows_of(tmp_path / "rows.jsonl", *rows)
    with pytest.raises(InputError, match=r'rows.jsonl:261: "context" is in none of the first 200 rows') as caught:
        answers(data_of(spec))
    assert "field_mapping" in caught.value.hint
    assert len(answers(data_of(spec, mapping=ColumnMapping(instruction="question", response="answer")))) == 300


@pytest.mark.parametrize(
    ("by", "left", "reason"), [("row", ["a", "a", "b"], "repeated"), ("answer", ["a", "b"], "repeated answer")]
)
def test_repeats_are_looked_for_over_all_sources(tmp_path: Path, by: Any, left: list[str], reason: str) -> None:
    one, other = {"question": "q", "answer": "a"}, {"question": "r", "answer": "a"}
    specs = rows_of(tmp_path / "1.jsonl", one, other, one), rows_of(tmp_path / "2.jsonl", one, {**one, "answer": "b"})
    found = selected(data_of(*specs, filters=RowFilters(by)))
    assert [row.answer for row in found.rows()] == left
    assert found.reports["train"].filtered == {reason: 5 - len(left)}


def test_rows_of_another_length_are_left_out(tmp_path: Path) -> None:
    rows = [{"question": "q" * n, "answer": "a"} for n in (1, 5, 9)]
    found = selected(data_of(rows_of(tmp_path / "rows.jsonl", *rows), filters=RowFilters("off", 4, 8)))
    assert [row.question[0] for row in found.rows()] == ["q" * 5]
    assert found.reports["train"].filtered == {"shorter than 4 characters": 1, "longer than 8 characters": 1}


@pytest.mark.parametrize(("share", "drawn"), [(0.2, 20), (0.5, 80), (0.001, 1), (0.1, 9)])
def test_old_rows_are_their_share_of_all(tmp_path: Path, share: float, drawn: int) -> None:
    specs = (
        rows_of(tmp_path / "new.jsonl", *pairs("n", 80)),
        rows_of(tmp_path / "old.jsonl", *pairs("o", 100), share=share),
    )
    found = answers(data_of(*specs))
    old = found[80:]
    assert found[:80] == [f"n{number}" for number in range(80)]
    assert len(old) == len(set(old)) == drawn
    assert found == answers(data_of(*specs))
    assert found != answers(data_of(*specs, seed=7))


def test_where_there_are_fewer_all_are_trained_again_and_that_is_told(tmp_path: Path) -> None:
    specs = (
        rows_of(tmp_path / "new.jsonl", *pairs("n", 80)),
        rows_of(tmp_path / "old.jsonl", *pairs("o", 20), share=0.5),
    )
    words = Words()
    assert answers(data_of(*specs), words)[80:] == [f"o{number}" for number in range(20)]
    (told,) = [line for line in words.lines if "replay.share" in line]
    assert "20 rows are trained again beside 80 others; there are no more, replay.share 0.5 asks for 80" in told


@pytest.mark.parametrize(("weight", "rows", "times"), [(0.1, 4, 1), (1.0, 40, 1), (2.0, 40, 2)])
def test_a_source_is_drawn_by_its_weight(tmp_path: Path, weight: float, rows: int, times: int) -> None:
    data = data_of(rows_of(tmp_path / "many.jsonl", *pairs("m", 40), weight=weight))
    found = answers(data)
    assert Counter(found) == dict.fromkeys(set(found), times)
    assert len(set(found)) == rows
    assert (found != answers(replace(data, seed=7))) == (rows < 40)
    made_by = {"tokenizer": "t", "template": "t"}

    def key(one: DataConfig) -> str:
        return store_key(one, locate_data(one, NullReporter()), FileHashCache(Path(".none")), **made_by).sha256

    assert (key(data) != key(replace(data, seed=7))) == (rows < 40)
    assert key(data) != key(data_of(replace(data.train[0], weight=1.5)))


@pytest.mark.parametrize(
    ("split", "numbers"),
    [
        ("train[3:8]", [3, 4, 5, 6, 7]),
        ("train[-4:]", [6, 7, 8, 9]),
        ("train[40%:60%]", [4, 5]),
        ("train", [*range(10)]),
    ],
)
def test_rows_are_numbered_over_all_files_of_a_source(tmp_path: Path, split: str, numbers: list[int]) -> None:
    for name, some in (("a", pairs("a", 10)[:4]), ("b", pairs("a", 10)[4:5]), ("c", pairs("a", 10)[5:])):
        rows_of(tmp_path / f"{name}.jsonl", *some)
    found = selected(data_of(SourceSpec("files", str(tmp_path / "*.jsonl"), split=split, weight=2.0)))
    assert [row.answer for row in found.rows()] == [f"a{n}" for n in numbers] * 2


@pytest.mark.parametrize(
    ("weight", "counts"), [(0.0, {0: 10}), (0.04, {1: 1, 0: 9}), (2.0, {2: 10}), (1.3, {1: 7, 2: 3})]
)
def test_weights(weight: float, counts: dict[int, int]) -> None:
    assert Counter(repeat_counts(10, weight, 1, "s").tolist()) == counts


def test_the_split_goes_by_content_and_keeps_equal_rows_together(tmp_path: Path) -> None:
    rows = [*pairs("a", 30), *pairs("a", 10)]
    found = selected(data_of(rows_of(tmp_path / "rows.jsonl", *rows), share=0.2))
    held = {row.answer for row in found.rows("validation")}
    assert 8 <= len(list(found.rows("validation"))) <= 10
    assert held.isdisjoint(row.answer for row in found.rows())
    moved = selected(data_of(rows_of(tmp_path / "moved.jsonl", *reversed(rows)), share=0.2))
    assert {row.answer for row in moved.rows("validation")} == held
    other = selected(data_of(rows_of(tmp_path / "rows.jsonl", *rows), share=0.2, seed=7))
    assert {row.answer for row in other.rows("validation")} != held
    with pytest.raises(InputError, match=r"1 rows \(1 different\) cannot be split"):
        selected(data_of(rows_of(tmp_path / "one.jsonl", *pairs("a", 1)), share=0.5))


def test_a_row_that_evaluates_does_not_train_however_often_it_would_have(tmp_path: Path) -> None:
    found = selected(data_of(rows_of(tmp_path / "many.jsonl", *pairs("m", 40), weight=1.5), share=0.25))
    train, held = ([row.answer for row in found.rows(split)] for split in ("train", "validation"))
    assert (len(held), len(set(train))) == (10, 30)
    assert not set(held) & set(train)


def test_a_source_of_which_nothing_is_taken_keeps_its_place(tmp_path: Path) -> None:
    specs = rows_of(tmp_path / "1.jsonl", *pairs("a", 4), weight=0.0), rows_of(tmp_path / "2.jsonl", *pairs("b", 3))
    held = (rows_of(tmp_path / "3.jsonl", *pairs("c", 2)),)
    found = selected(data_of(*specs, validation=held))
    assert [[len(rows) for rows in found.taken(split)] for split in found.splits] == [[0, 3], [2]]


def test_sources_may_be_of_two_forms(tmp_path: Path) -> None:
    specs = rows_of(tmp_path / "1.jsonl", *pairs("a", 2)), rows_of(tmp_path / "2.jsonl", {"text": "once"})
    assert [row.text for row in selected(data_of(*specs)).rows()] == ["", "", "once"]


def test_a_column_that_is_not_read_is_named(tmp_path: Path) -> None:
    words = Words()
    mapping = ColumnMapping(instruction="question", response="answer")
    answers(data_of(rows_of(tmp_path / "rows.jsonl", {**pairs("a", 1)[0], "system": "s"}), mapping=mapping), words)
    assert any(line.endswith("; not read: system") for line in words.lines)
