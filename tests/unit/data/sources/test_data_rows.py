"""From a DataConfig to rows: order, weights, slices, the split, filters, and what is said about bad rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from expert_cli.config.run_config import ColumnMapping, DataConfig, RowFilters, SourceSpec
from expert_cli.data.formats import registry
from expert_cli.data.rows import selection
from expert_cli.data.rows.preview import first_rows
from expert_cli.data.sources.data_rows import input_column, locate_data
from expert_cli.errors import InputError
from expert_cli.utils.reporter import NullReporter
from tests.reading import DataRows, read_training_rows


@dataclass
class Listening(NullReporter):
    """Keeps what is reported."""

    said: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)

    def info(self, text: str) -> None:
        self.said.append(text)

    def warning(self, text: str) -> None:
        self.warned.append(text)


BASE = DataConfig((), (), 0.0, ColumnMapping(), RowFilters(), True, 128, 7, True)


def config(*train: SourceSpec, **changes: Any) -> DataConfig:
    return replace(BASE, train=train, **changes)


def file_source(path: Path, split: str = "train", weight: float = 1.0) -> SourceSpec:
    return SourceSpec("file", str(path), split=split, weight=weight)


def write_rows(path: Path, answers: list[object], **extra: object) -> Path:
    """Write one {"question", "answer"} row a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.dumps({"question": f"q{number}", "answer": answer, **extra}) for number, answer in enumerate(answers)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8", newline="\n")
    return path


def numbered(count: int, letter: str = "a") -> list[object]:
    return [f"{letter}{number}" for number in range(count)]


def read(data: DataConfig) -> DataRows:
    return read_training_rows(data, NullReporter())


def test_rows_carry_text_origin_mapping_and_files(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", ["a0", "a1"], context=None)
    reporter = Listening()
    result = read_training_rows(config(file_source(path)), reporter)
    assert (result.train.kind, result.train.instruction, result.train.input, result.train.response) == (
        "pair",
        ["q0", "q1"],
        ["", ""],
        ["a0", "a1"],
    )
    assert result.train.origins == [f"{path}:1", f"{path}:2"]
    line = "instruction <- question, input <- context, response <- answer"
    assert (result.train_report.read, result.train_report.mapping) == (2, line)
    assert result.train_report.input_column == "context"
    assert (result.validation, result.validation_report, result.files) == (None, None, [path])
    assert (reporter.said, reporter.warned) == ([f"{path}: 2 rows; {line}"], [])
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize(
    ("extra", "unread", "warned"),
    [
        (
            {"source": "s", "system_prompt": "x"},
            "; not read: source, system_prompt",
            "system_prompt: not trained",
        ),
    ],
)
def test_columns_that_are_not_read_are_told(tmp_path: Path, extra: dict[str, object], unread: str, warned: str) -> None:
    path = write_rows(tmp_path / "rows.jsonl", ["a0"], **extra)
    reporter = Listening()
    report = read_training_rows(config(file_source(path)), reporter).train_report
    assert reporter.said == [f"{path}: 1 rows; instruction <- question, response <- answer{unread}"]
    assert warned in "".join(reporter.warned)
    assert bool(reporter.warned) == bool(warned)
    assert report.ignored == list(extra)


@pytest.mark.parametrize(
    ("name", "said", "mapping"),
    [
        ("weight", 0, ColumnMapping()),
        ("weight", "0", ColumnMapping()),
        ("train", False, ColumnMapping(instruction="question", response="answer")),
    ],
)
def test_rows_that_are_not_to_be_trained_are_left_out_and_counted(
    tmp_path: Path, name: str, said: object, mapping: ColumnMapping
) -> None:
    path = tmp_path / "rows.jsonl"
    yes = type(said)(1)
    rows = [
        {"question": "q", "answer": f"a{n}", name: said if n % 3 == 2 else None if n == 0 else yes} for n in range(9)
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    reporter = Listening()
    result = read_training_rows(config(file_source(path), mapping=mapping), reporter)
    assert result.train.response == ["a0", "a1", "a3", "a4", "a6", "a7"]
    assert result.train_report.filtered == {"not to be trained": 3}
    line = f"instruction <- question, response <- answer, {name} <- {name}"
    assert (reporter.said, reporter.warned) == ([f"{path}: 6 rows, 3 not to be trained; {line}"], [])


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"weight": [0] * 3}, r"no row of 3 is left \(not to be trained: 3\)"),
        ({"train": [0.5] * 3}, '3 of 3 rows are bad: .*"train" is 0.5'),
        (
            {"weight": [1, 0, 0.5, None, "no"]},
            r'"weight" is 0 at \S+:2, which leaves that row out, and in .*: 0.5 at \S+:3; \'no\' at \S+:5$',
        ),
        ({"weight": [72.5, *[1] * 98, False]}, r"rows.jsonl: \"weight\" is False at \S+:100, .*: 72.5 at \S+:1$"),
    ],
)
def test_flags_that_leave_no_row_or_are_not_known_are_refused(
    tmp_path: Path, said: dict[str, list[object]], message: str
) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"text": "t", name: value} for name, values in said.items() for value in values]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        read(config(file_source(path)))
    assert ("Write 0 or 1 there, or rename the column" in caught.value.hint) == ("neither 0" in caught.value.message)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
@pytest.mark.parametrize("small", [False, True], ids=["one block", "many blocks, read twice"])
@pytest.mark.parametrize("odd", [0, 299], ids=["first", "last"])
def test_a_weight_that_is_no_flag_is_not_read_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, small: bool, odd: int
) -> None:
    if small:
        monkeypatch.setattr(selection, "ROOM_BYTES", 0)
        monkeypatch.setattr("expert_cli.data.formats.lines._BLOCK_BYTES", 500)
        monkeypatch.setattr(registry, "_ROWS", 7)
    path = tmp_path / f"rows{suffix}"
    weights = [72.5 if n == odd else 1.0 if n % 3 else None for n in range(300)]
    rows = [{"question": "q", "weight": weight, "answer": f"a{n}"} for n, weight in enumerate(weights)]
    if suffix == ".csv":
        lines = [",".join("" if value is None else str(value) for value in row.values()) for row in rows]
        path.write_text("\n".join(["question,weight,answer", *lines]), encoding="utf-8")
    elif suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=11 if small else 300)
    else:
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    reporter = Listening()
    data = config(file_source(path))
    result = read_training_rows(data, reporter)
    unread = "weight ('72.5' is no flag)" if suffix == ".csv" else "weight (72.5 is no flag)"
    assert result.train.response == [f"a{n}" for n in range(300)]
    assert result.train_report.ignored == [unread]
    line = f"{path}: 300 rows; instruction <- question, response <- answer; not read: {unread}"
    assert (reporter.said, reporter.warned) == ([line], [])
    assert len(first_rows(data, locate_data(data, NullReporter()).train)) == 64


def test_a_flag_in_the_last_row_alone_is_read_when_the_files_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "ROOM_BYTES", 0)
    path = write_rows(tmp_path / "rows.jsonl", numbered(3000))
    with path.open("a", encoding="utf-8") as file:
        file.write('{"question": "q", "answer": "secret", "train": false}\n')
    assert read(config(file_source(path))).train.response == numbered(3000)


@pytest.mark.parametrize("others", [[], ["other.jsonl"]], ids=["late in a file", "in another source"])
def test_the_input_column_is_looked_for_in_all_rows(tmp_path: Path, others: list[str]) -> None:
    plain = write_rows(tmp_path / "rows.jsonl", numbered(100))
    late = write_rows(tmp_path / "late.jsonl", ["b"], schema="CREATE TABLE t")
    if not others:
        plain.write_bytes(plain.read_bytes() + late.read_bytes())
    data = config(file_source(plain), *(file_source(late) for _ in others))
    assert input_column(data, locate_data(data, NullReporter()).train) == "schema"
    assert read(data).train_report.input_column == "schema"
    without = config(file_source(write_rows(tmp_path / "none.jsonl", ["c"])))
    assert input_column(without, locate_data(without, NullReporter()).train) == ""


def test_a_slice_counts_bad_rows_and_looks_at_no_other(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", ["a0", 1, "a2", "a3"])
    assert read(config(file_source(path, "train[2:]"))).train.response == ["a2", "a3"]
    with pytest.raises(InputError, match="1 of 2 rows are bad"):
        read(config(file_source(path, "train[:2]")))
    with pytest.raises(InputError, match="there are no rows"):
        read(config(file_source(path, "train[4:]")))


def test_the_split_evaluates_rows_that_do_not_train(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", numbered(100))
    once = read(config(file_source(path), validation_share=0.05))
    twice = read(config(file_source(path, weight=2.0), validation_share=0.05))
    assert once.validation is not None
    assert twice.validation is not None
    assert (len(once.train), len(once.validation), len(twice.train), len(twice.validation)) == (95, 5, 190, 5)
    assert twice.validation.response == once.validation.response
    assert not set(once.validation.response) & set(once.train.response)
    assert sorted(once.validation.response + once.train.response) == sorted(map(str, numbered(100)))
    assert once.validation_report is not None
    assert once.validation_report.read == 5
    other_seed = read(config(file_source(path), validation_share=0.05, seed=8)).validation
    assert other_seed is not None
    assert other_seed.response != once.validation.response


def test_filters_are_counted_and_are_not_bad_rows(tmp_path: Path) -> None:
    first = write_rows(tmp_path / "1.jsonl", ["a", "longer", "x" * 50])
    again = write_rows(tmp_path / "2.jsonl", ["b", "longer", "new row"])
    filters = RowFilters("row", min_chars=4, max_chars=20)
    reporter = Listening()
    result = read_training_rows(config(file_source(first), file_source(again), filters=filters), reporter)
    assert result.train.response == ["longer", "new row"]
    assert result.train_report.filtered == {
        "shorter than 4 characters": 2,
        "longer than 20 characters": 1,
        "repeated": 1,
    }
    assert result.train_report.dropped == {}
    assert (
        reporter.said[1] == f"{again}: 1 rows, 1 shorter than 4 characters, 1 repeated; {result.train_report.mapping}"
    )
    with pytest.raises(InputError, match=r"no row of 3 is left \(shorter than 99 characters: 3\)"):
        read(config(file_source(first), filters=RowFilters(min_chars=99)))


def test_the_answer_of_a_conversation_is_its_last_turn(tmp_path: Path) -> None:
    def turns(*contents: str) -> dict[str, object]:
        roles = ("user", "assistant") * 2
        return {"messages": [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]}

    path = tmp_path / "rows.jsonl"
    rows = [turns("q", "x"), turns("q", "a", "more", "x"), turns("q", "y")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    result = read(config(file_source(path), filters=RowFilters("answer")))
    assert [messages[-1].content for messages in result.train.messages] == ["x", "y"]


def test_up_to_one_percent_of_bad_rows_is_left_out_and_named(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [*numbered(150), 3, *numbered(49)])
    with path.open("a", encoding="utf-8") as file:
        file.write("\n{broken\n")
    reporter = Listening()
    result = read_training_rows(config(file_source(path)), reporter)
    assert (len(result.train), result.train_report.read) == (199, 201)
    assert result.train_report.dropped == {'"answer" is a number, not text': 1, "not valid JSON": 1}
    assert result.train_report.examples == [
        f'{path}:151: "answer" is a number, not text',
        f"{path}:202: not valid JSON",
    ]
    assert reporter.warned == [f"{path}: 2 of 201 rows are bad and left out: {'; '.join(result.train_report.examples)}"]


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        pytest.param(
            [*numbered(98), "", {"a": 1}],
            '2 of 100 rows are bad: {path}:99: "answer" is empty; {path}:100: "answer" is an object, not text',
            id="two in a hundred",
        ),
    ],
)
def test_more_than_one_percent_of_bad_rows_is_refused(tmp_path: Path, answers: list[object], message: str) -> None:
    path = write_rows(tmp_path / "rows.jsonl", answers)
    with pytest.raises(InputError) as caught:
        read(config(file_source(path)))
    assert caught.value.message == f"{path}: {message.replace('{path}', str(path))}"


def test_a_bad_source_is_not_hidden_by_a_big_good_one(tmp_path: Path) -> None:
    good = write_rows(tmp_path / "good.jsonl", numbered(1000))
    bad = write_rows(tmp_path / "bad.jsonl", ["a", 1])
    with pytest.raises(InputError, match=r"bad\.jsonl: 1 of 2 rows are bad"):
        read(config(file_source(good), file_source(bad)))


def test_a_missing_path_names_the_places_and_the_local_alternatives(tmp_path: Path) -> None:
    spec = SourceSpec("file", "data/rows.jsonl", tried=("/expert/data/rows.jsonl", "/root/data/rows.jsonl"))
    with pytest.raises(InputError) as caught:
        locate_data(config(spec), NullReporter(), alternatives=[tmp_path / "train.jsonl"])
    assert caught.value.message == (
        "data/rows.jsonl: no such file or folder; looked for at: /expert/data/rows.jsonl, /root/data/rows.jsonl"
    )
    assert str(tmp_path / "train.jsonl") in caught.value.hint


def test_folders_of_data_files_are_read_by_split(tmp_path: Path) -> None:
    write_rows(tmp_path / "data" / "train-2.jsonl", ["t2"])
    write_rows(tmp_path / "data" / "train-1.jsonl", ["t1"])
    write_rows(tmp_path / "data" / "validation.jsonl", ["v"])
    folder = SourceSpec("folder", str(tmp_path))
    result = read(config(folder, validation=(replace(folder, split="validation"),)))
    assert result.validation is not None
    assert (result.train.response, result.validation.response) == (["t1", "t2"], ["v"])
    assert read(config(replace(folder, split="train[1:]"))).train.response == ["t2"]
    with pytest.raises(InputError, match=r'no file holds the split "test"; there is: train \(2\), validation \(1\)'):
        read(config(replace(folder, split="test")))


def test_folders_of_save_to_disk_are_read_in_the_order_of_their_state(tmp_path: Path) -> None:
    from datasets import Dataset, DatasetDict

    rows = {"question": [f"q{number}" for number in range(12)], "answer": [f"a{number}" for number in range(12)]}
    train = Dataset.from_dict(rows)
    DatasetDict({"train": train, "test": train.select([5])}).save_to_disk(
        tmp_path / "both", num_shards={"train": 3, "test": 1}
    )
    train.save_to_disk(tmp_path / "one")
    both = SourceSpec("folder", str(tmp_path / "both"))
    before = sorted(path for path in tmp_path.rglob("*"))
    result = read(config(both))
    assert result.train.response == rows["answer"]
    assert [path.name for path in result.files] == [f"data-{number:05d}-of-00003.arrow" for number in range(3)]
    assert read(config(replace(both, split="test"))).train.response == ["a5"]
    assert sorted(path for path in tmp_path.rglob("*")) == before
    with pytest.raises(InputError, match='there is no split "validation"; there is: train, test'):
        read(config(replace(both, split="validation")))
    (tmp_path / "both" / "train" / "data-00001-of-00003.arrow").unlink()
    with pytest.raises(InputError, match=r"data-00001-of-00003\.arrow: listed in .*state\.json, but it is not there"):
        read(config(both))
    (tmp_path / "one" / "state.json").write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match="not written by save_to_disk"):
        read(config(SourceSpec("folder", str(tmp_path / "one"))))
