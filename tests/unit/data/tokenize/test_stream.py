"""The stream gives what reading row by row and encoding document by document gives, whatever the files hold."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from expert_cli.config.run_config import ColumnMapping, DataConfig, RowFilters, SourceSpec
from expert_cli.config.splits import parse_split
from expert_cli.data.formats import registry
from expert_cli.data.formats.raw_row import ColumnFilter, Piece, RawRow
from expert_cli.data.formats.registry import read_blocks, read_file
from expert_cli.data.rows import selection
from expert_cli.data.rows.block_check import check_block
from expert_cli.data.rows.cache import ROOM_BYTES
from expert_cli.data.rows.columnar import Rows
from expert_cli.data.rows.columns import Columns, names_of_interest
from expert_cli.data.rows.kinds import choose_columns, kind_of
from expert_cli.data.rows.pairs import PairRows
from expert_cli.data.rows.preview import first_rows
from expert_cli.data.rows.sampling import repeat_counts
from expert_cli.data.rows.selected import Split
from expert_cli.data.rows.selection import select_rows
from expert_cli.data.rows.validation import validate_row
from expert_cli.data.sources.data_rows import locate_data
from expert_cli.data.templates.chat_template import ChatTemplate
from expert_cli.data.templates.template import Template
from expert_cli.data.templates.trained import TrainedTurns
from expert_cli.data.tokenize.assemble import Encoded
from expert_cli.data.tokenize.encoder import Encoder
from expert_cli.data.tokenize.stream import DocumentStream
from expert_cli.errors import InputError
from expert_cli.utils.reporter import NullReporter
from tests.reading import read_training_rows
from tests.splits import held_out
from tests.tiny import CHATML, CONTROL_TOKENS, template_for, tiny_backend

BASE = DataConfig((), (), 0.0, ColumnMapping(), RowFilters(), True, 128, 7, True)


TEMPLATES = {
    "chat": template_for(tiny_backend(), "", own=ChatTemplate(CHATML), eos_token=CONTROL_TOKENS[0]),
    "alpaca": template_for(tiny_backend(), "alpaca", own=None, eos_token=CONTROL_TOKENS[0]),
    "everything": template_for(
        tiny_backend(),
        "",
        own=ChatTemplate(CHATML),
        eos_token=CONTROL_TOKENS[0],
        trained=TrainedTurns(completion_only=False),
    ),
}
ENCODER = Encoder(tiny_backend())


def config(*train: SourceSpec, **changes: Any) -> DataConfig:
    return replace(BASE, train=train, **changes)


def source(path: Path, split: str = "train", weight: float = 1.0) -> SourceSpec:
    return SourceSpec("file", str(path), split=split, weight=weight)


def opened(data: DataConfig, template: Template = TEMPLATES["chat"], encoder: Encoder = ENCODER) -> DocumentStream:
    return DocumentStream(select_rows(data, locate_data(data, NullReporter()), NullReporter()), template, encoder)


def whole(chunks: Iterator[Encoded]) -> Encoded:
    parts = list(chunks)
    tokens = np.cumsum([0, *(len(part.ids) for part in parts)])
    given = np.cumsum([0, *(len(part.kept) + part.dropped for part in parts)])
    return Encoded(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([[0], *(part.offsets[1:] + n for part, n in zip(parts, tokens, strict=False))]),
        np.concatenate([part.trained for part in parts]),
        np.concatenate([part.kept + n for part, n in zip(parts, given, strict=False)]),
        sum(part.dropped for part in parts),
    )


def assert_equal(found: Encoded, expected: Encoded) -> None:
    for mine, right in zip(
        (found.ids, found.offsets, found.trained, found.kept),
        (expected.ids, expected.offsets, expected.trained, expected.kept),
        strict=True,
    ):
        assert mine.dtype == right.dtype
        np.testing.assert_array_equal(mine, right)
    assert found.dropped == expected.dropped


# Row by row, all in memory: the plain way, to hold the stream against.


def plain_rows(data: DataConfig, split: Split) -> Rows:
    specs = data.train if split == "train" or not data.validation else data.validation
    good: list[Rows] = []
    copies: list[list[int]] = []
    seen: set[tuple[str, ...]] = set()
    for number, spec in enumerate(specs):
        rows = kept_rows(spec, data, seen)
        good.append(rows)
        copies.append(repeat_counts(len(rows), spec.weight, data.seed, str(number)))
    taken = type(good[0])()
    if data.validation_share and not data.validation:
        places = [(s, row) for s, rows in enumerate(good) for row in range(len(rows)) if copies[s][row]]
        held = held_out([good[s].content(row) for s, row in places], data.validation_share, data.seed)
        for place in sorted(held):
            s, row = places[place]
            copies[s][row] = 0
            if split == "validation":
                taken.extend(good[s], [row])
        if split == "validation":
            return taken
    for rows, times in zip(good, copies, strict=True):
        for turn in range(max(times, default=0)):
            taken.extend(rows, [row for row, count in enumerate(times) if count > turn])
    return taken


def kept_rows(spec: SourceSpec, data: DataConfig, seen: set[tuple[str, ...]]) -> Rows:
    names = ColumnFilter(names_of_interest(data.mapping))
    raw = list(read_file(Path(spec.path), names))
    chosen = parse_split(spec.split).rows(len(raw))
    columns = choose_columns(names.seen, data.mapping, spec.path)
    rows = kind_of(columns)()
    for row in raw[chosen.start : chosen.stop]:
        if not row.fault:
            validate_row(rows, row.fields, columns, row.where)
    kept = kind_of(columns)()
    for number in range(len(rows)):
        longest = data.filters.max_chars or 10**9
        if not data.filters.min_chars <= rows.lengths()[number] <= longest:
            continue
        content = rows.content(number) if data.filters.deduplicate == "row" else (rows.answer(number),)
        if data.filters.deduplicate != "off" and content in seen:
            continue
        seen.add(content)
        kept.extend(rows, [number])
    return kept


def write_pairs(path: Path, count: int, **changes: object) -> Path:
    """Write rows with every kind of text; `changes` replaces the answers of some rows ({"7": value})."""
    rows = []
    for n in range(count):
        row: dict[str, object] = {
            "instruction": f"question {n % 40} <|im_end|> ü{n}",
            "input": [None, "", f"CREATE TABLE t{n}", "漢字 🦆"][n % 4],
            "output": f"SELECT {n} -- {'x' * (n % 50)}\n",
            "id": n,
            "tags": ["a", str(n)],
        }
        if n % 7 == 0:
            del row["input"]
        row["output"] = changes.get(str(n), row["output"])
        rows.append(json.dumps(row, ensure_ascii=n % 3 == 0))
    path.write_text("\n".join(rows) + "\n", encoding="utf-8", newline="\n")
    return path


def write_conversations(path: Path, count: int) -> Path:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for n in range(count):
            turns = [{"role": "user", "content": f"u{n}"}, {"role": "assistant", "content": f"a{n}"}]
            turns = [{"role": "system", "content": "s"}] * (n % 2) + turns * (1 + n % 3)
            file.write(json.dumps({"messages": turns}) + "\n")
    return path


def write_texts(path: Path, count: int) -> Path:
    texts = [
        [f"plain {n}", f"<|im_start|>user\nq{n}<|im_end|>\n<|im_start|>assistant\na{n}<|im_end|>"] for n in range(count)
    ]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in chain(*texts)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("rows")
    pairs = write_pairs(folder / "pairs.jsonl", 400, **{"17": "", "203": 5})
    rows = [json.loads(line) for line in pairs.read_text(encoding="utf-8").splitlines()]
    good = [{**row, "input": row.get("input")} for row in rows if row["output"] and row["output"] != 5]
    pq.write_table(pa.Table.from_pylist(good), folder / "pairs.parquet", row_group_size=90)
    (folder / "pairs.json").write_text(json.dumps(rows), encoding="utf-8")
    return {
        "pairs": pairs,
        "more": write_pairs(folder / "more.ndjson", 90),
        "parquet": folder / "pairs.parquet",
        "list": folder / "pairs.json",
        "messages": write_conversations(folder / "messages.jsonl", 60),
        "text": write_texts(folder / "text.jsonl", 40),
    }


CONFIGS = {
    "slices": lambda f: config(source(f["pairs"], "train[30:260]"), source(f["more"], "train[-40:]")),
    "weights": lambda f: config(source(f["pairs"], weight=1.4), source(f["more"], weight=0.3), source(f["list"])),
    "split": lambda f: config(source(f["pairs"], weight=2.0), source(f["more"], weight=0.5), validation_share=0.1),
    "filters": lambda f: config(source(f["pairs"]), source(f["more"]), filters=RowFilters("row", 30, 90)),
    "own validation": lambda f: config(source(f["pairs"]), validation=(source(f["more"]),), validation_share=0.5),
    "messages": lambda f: config(source(f["messages"], weight=1.5), validation_share=0.2),
    "text": lambda f: config(source(f["text"]), filters=RowFilters("row")),
    "answers": lambda f: config(source(f["pairs"]), source(f["more"]), filters=RowFilters("answer")),
}


@pytest.mark.parametrize("room", [ROOM_BYTES, 0], ids=["rows kept", "files read twice"])
@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_documents_are_those_of_the_plain_way(
    name: str, split: Split, room: int, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "ROOM_BYTES", room)
    monkeypatch.setattr("expert_cli.data.formats.lines._BLOCK_BYTES", 5000)
    monkeypatch.setattr(registry, "_ROWS", 37)
    data = CONFIGS[name](files)
    template = TEMPLATES[["chat", "alpaca", "everything"][len(name) % 3] if "messages" not in name else "chat"]
    documents = opened(data, template)
    if split == "validation" and not (data.validation or data.validation_share):
        assert documents.selection.validation is None
        return
    rows = plain_rows(data, split)
    assert sum(map(len, documents.selection.sources(split))) == len(rows) > 0
    assert_equal(whole(documents.chunks(split, chunk_rows=53)), ENCODER.encode(template.documents(rows)))
    read = read_training_rows(data, NullReporter())
    assert (read.train if split == "train" else read.validation) == rows


def test_chunks_hold_the_rows_in_order(files: dict[str, Path]) -> None:
    data = config(source(files["pairs"], weight=2.0), source(files["more"], "train[5:]"))
    chunks = list(opened(data).chunks("train", chunk_rows=100))
    assert [chunk.rows for chunk in chunks] == [100] * 8 + [81]
    rows = plain_rows(data, "train")
    assert rows.origins[:100] == [f"{files['pairs']}:{n + 1}" for n in range(101) if n != 17]
    assert rows.origins[-81:] == [f"{files['more']}:{n + 1}" for n in range(9, 90)]
    for chunk, start in ((chunks[0], 0), (chunks[-1], 800)):
        assert_equal(chunk, ENCODER.encode(TEMPLATES["chat"].documents(rows.take(range(start, start + chunk.rows)))))


@pytest.mark.parametrize("skip", [1, 8, 9])
def test_skipped_chunks_change_nothing_of_the_others(skip: int, files: dict[str, Path]) -> None:
    data = config(source(files["pairs"], weight=2.0), source(files["more"], "train[5:]"))
    expected = list(opened(data).chunks("train", chunk_rows=100))[skip:]
    found = list(opened(data).chunks("train", skip=skip, chunk_rows=100))
    assert len(found) == max(9 - skip, 0)
    for mine, right in zip(found, expected, strict=True):
        assert_equal(mine, right)


def test_a_late_column_that_changes_the_choice_counts_from_the_first_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("expert_cli.data.formats.lines._BLOCK_BYTES", 300)
    path = tmp_path / "rows.jsonl"
    early, late = {"text": "t", "output": "o"}, {"instruction": "i", "text": "t", "output": "o"}
    path.write_text("".join(json.dumps(row) + "\n" for row in [early] * 200 + [late] * 3), encoding="utf-8")
    with pytest.raises(InputError, match=r'200 of 203 rows are bad: .*:1: "instruction" is missing'):
        opened(config(source(path)))


STRICT = (
    "{% for m in messages %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
    "<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_roles(path: Path, *conversations: str) -> Path:
    """Write a conversation a row: "uaua" is two questions with answers."""
    names = {"u": "user", "a": "assistant"}
    rows = [
        [{"role": names[role], "content": f"{role}{row}.{turn}"} for turn, role in enumerate(roles)]
        for row, roles in enumerate(conversations)
    ]
    path.write_text("".join(json.dumps({"messages": turns}) + "\n" for turns in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("usual", "odd"),
    [
        pytest.param({"text": "t"}, {"question": "q", "answer": "a"}, id="a pair among texts"),
        pytest.param({"question": "q", "answer": "a"}, {"question": "q", "answer": "a", "sql": "s"}, id="two answers"),
    ],
)
@pytest.mark.parametrize("at", [0, 400], ids=["first", "last"])
def test_one_row_of_another_kind_does_not_decide_what_all_are(
    tmp_path: Path, usual: dict[str, object], odd: dict[str, object], at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("expert_cli.data.formats.lines._BLOCK_BYTES", 3000)
    rows = [usual] * 400
    rows.insert(at, odd)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    read = read_training_rows(config(source(path)), NullReporter())
    assert read.train.origins == [f"{path}:{line}" for line in range(1, 402) if line != at + 1]
    assert sum(read.train_report.dropped.values()) == 1
    assert f"{path}:{at + 1}: " in read.train_report.examples[0]
    assert first_rows(BASE, locate_data(config(source(path)), NullReporter()).train).kind == read.train.kind


def test_an_empty_table_does_not_decide_what_the_rows_of_others_are(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("question,answer\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("text\nx\ny\n", encoding="utf-8")
    folder = config(SourceSpec("folder", str(tmp_path)))
    assert read_training_rows(folder, NullReporter()).train.text == ["x", "y"]


def test_a_conversation_that_the_template_refuses_is_a_bad_row(tmp_path: Path) -> None:
    template = template_for(tiny_backend(), "", own=ChatTemplate(STRICT), eos_token=CONTROL_TOKENS[0])
    data = config(source(write_roles(tmp_path / "rows.jsonl", *["ua"] * 200, "aua", *["uaua"] * 200)))
    located = locate_data(data, NullReporter())
    selected = select_rows(data, located, NullReporter(), refused=template.refused)
    reason = "the chat template refuses a conversation of assistant, user: Roles must alternate"
    assert selected.train_report.dropped == {reason: 1}
    assert selected.train_report.examples == [f"{tmp_path / 'rows.jsonl'}:201: {reason}"]
    chunks = list(DocumentStream(selected, template, ENCODER).chunks("train"))
    rows = plain_rows(data, "train")
    good = rows.without({200})
    assert good.origins == [f"{tmp_path / 'rows.jsonl'}:{n + 1}" for n in range(401) if n != 200]
    assert_equal(whole(iter(chunks)), ENCODER.encode(template.documents(good)))
    write_roles(tmp_path / "rows.jsonl", *["ua"] * 98, "aua", "uua")
    with pytest.raises(
        InputError, match=r"2 of 100 rows are bad: .*:99: the chat template refuses .*; .*:100: "
    ) as caught:
        select_rows(data, locate_data(data, NullReporter()), NullReporter(), refused=template.refused)
    assert "chat_template_path" in str(caught.value.hint), "the rows are as good as another template finds them"


def test_rows_before_the_first_good_one_do_not_hide_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    odd = ['{"foo": 1}'] * 35 + ["{broken"] * 35
    good = [json.dumps({"question": f"q{n}", "context": "c", "answer": "a"}) for n in range(10_000)]
    path.write_text("\n".join(odd + good), encoding="utf-8")
    located = locate_data(config(source(path)), NullReporter()).train
    rows = first_rows(BASE, located)
    assert (rows.instruction[0], rows.input[0], len(rows)) == ("q0", "c", 58)
    assert read_training_rows(config(source(path)), NullReporter()).train.instruction[-1] == "q9999"
    path.write_text("\n".join(odd), encoding="utf-8")
    assert first_rows(BASE, located) == PairRows()
    with pytest.raises(InputError, match=r"35 of 70 rows are bad: .*:36: not valid JSON"):
        read_training_rows(config(source(path)), NullReporter())


def test_first_rows_are_some_that_the_template_takes(tmp_path: Path) -> None:
    template = template_for(tiny_backend(), "", own=ChatTemplate(STRICT), eos_token=CONTROL_TOKENS[0])
    data = config(source(write_roles(tmp_path / "rows.jsonl", "aua", "ua")))
    located = locate_data(data, NullReporter()).train
    assert first_rows(data, located).origins == [f"{tmp_path / 'rows.jsonl'}:{line}" for line in (1, 2)]
    assert first_rows(data, located, refused=template.refused).origins == [f"{tmp_path / 'rows.jsonl'}:2"]


@pytest.mark.parametrize("change", ["shorter", "longer", "a bad row"])
def test_a_file_that_changes_after_the_scan_is_refused(tmp_path: Path, change: str) -> None:
    path = write_pairs(tmp_path / "rows.jsonl", 100)
    documents = opened(config(source(path)))
    if change == "a bad row":
        write_pairs(path, 100, **{"50": 7})
    else:
        write_pairs(path, 99 if change == "shorter" else 101)
    if change == "longer":  # rows that were appended since are not part of the run
        assert sum(chunk.rows for chunk in documents.chunks("train")) == 100
        return
    with pytest.raises(InputError, match="the files changed while they were read"):
        list(documents.chunks("train"))


def test_a_stream_that_is_left_early_ends_its_thread(files: dict[str, Path]) -> None:
    chunks = opened(config(source(files["pairs"]))).chunks("train", chunk_rows=10)
    next(chunks)
    chunks.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]


def test_no_document_at_all_is_an_error(files: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="none of the 0 documents has a trained token"):
        list(opened(config(source(files["pairs"], weight=0.0))).chunks("train"))
    assert list(opened(config(source(files["pairs"]))).chunks("validation")) == []


# Blocks of JSON lines against the line-wise reader.

COLUMNS = Columns("q", "i", "a")
TEXT = st.one_of(
    st.text(max_size=6), st.sampled_from(["", " ", "x", "2024-01-01", "\ud800", "\u2028", "\x00", "{}", "}\n{"])
)
VALUE = st.recursive(
    st.one_of(TEXT, st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats()),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=4,
)
GOOD = st.fixed_dictionaries({"q": st.text(max_size=6), "a": st.just("answer")}, optional={"i": st.text(max_size=3)})
ROW = st.one_of(
    GOOD,
    GOOD,
    st.dictionaries(st.sampled_from(["q", "a", "i", "m", "A"]), st.one_of(TEXT, VALUE), max_size=5),
    VALUE,
)
GARBAGE = st.sampled_from(
    [
        *(
            b"",
            b" ",
            b"{",
            b"}",
            b"{}{}",
            b'{"q": "x", "a": "y"}{"q": "x", "a": "y"}',
            b'{"q": "x",',
            b'"a": "y"}',
            b"[1]",
        ),
        *(b"\xff", b'{"q": "x", "a": "\xff"}', b'{"q": "x", "a": "y", "m": "\xff"}', b'{"q": "x", "a": "y", "a": "z"}'),
        *(
            b'{"q": "x", "a": "y", "m": %s}' % value
            for value in (b"Inf", b"NaN", b"01", b"9" * 5000, b"1." + b"0" * 500)
        ),
        b'{"q": "x", "a": "y", "m": ' + b"[" * 3000 + b"]" * 3000 + b"}",
        b'\xef\xbb\xbf{"q": "x", "a": "y"}',
    ]
)
LINE = st.one_of(
    st.builds(lambda row, ascii_: json.dumps(row, ensure_ascii=ascii_).encode("utf-8", "replace"), ROW, st.booleans()),
    st.builds(lambda row: json.dumps(row).encode(), GOOD),
    GARBAGE,
)


# As many objects as lines, but one of them over two lines, cut before a brace or after one, and two in another line.
WITH_AN_OBJECT = b'{"q": "x", "a": "y", "m": {"k": 1}}'
TWO = b'{"q": "u", "a": "v"}{"q": "w", "a": "z"}'


@example([WITH_AN_OBJECT, b'{"q": "x", "a": "y", "m":', b'{"k": 1}}', TWO], b"\n", True, 1 << 20)
@example([WITH_AN_OBJECT, b'{"q": "x", "m": {"k": 1}', b',"a": "y"}', TWO], b"\r\n", True, 1 << 20)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(LINE, max_size=12), st.sampled_from([b"\n", b"\r\n"]), st.booleans(), st.sampled_from([40, 400, 1 << 20])
)
def test_blocks_hold_the_rows_of_the_line_wise_reader(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], end: bytes, ended: bool, size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines.jsonl"
    path.write_bytes(end.join(lines) + (end if ended else b""))
    expected = line_wise(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("expert_cli.data.formats.lines._BLOCK_BYTES", size)
        assert block_wise(path) == expected


def line_wise(path: Path) -> tuple[Rows, list[tuple[str, str]], int, set[str]]:
    names = ColumnFilter(frozenset({"q", "i", "a"}))
    rows, bad, count = PairRows(), [], 0
    try:
        raw: list[RawRow] = list(read_file(path, names))
    except InputError as error:
        return rows, [("", error.message)], 0, set()
    for row in raw:
        fault = row.fault or validate_row(rows, row.fields, COLUMNS, row.where)
        bad += [(row.where, fault)] if fault else []
        count += 1
    return rows, bad, count, set(names.seen)


def block_wise(path: Path) -> tuple[Rows, list[tuple[str, str]], int, set[str]]:
    names = ColumnFilter(frozenset({"q", "i", "a"}))
    rows, bad, count = PairRows(), [], 0
    try:
        for block in read_blocks(Piece(path), names):
            checked = check_block(block, COLUMNS)
            rows.extend(checked.rows, range(len(checked.rows)))
            bad += checked.bad
            count += block.count
    except InputError as error:
        return PairRows(), [("", error.message)], 0, set()
    return rows, bad, count, set(names.seen)


def test_forms_of_texts_are_counted_also_where_a_build_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    texts = ["<|im_start|>assistant\na<|im_end|>", "plain", "<|im_start|>user\nb<|im_end|>"] * 4
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    for skip in (0, 1, 2):
        stream = opened(config(source(path)))
        chunks = list(stream.chunks("train", skip=skip, chunk_rows=5))
        assert stream.forms == {"chatml": 8, "plain": 4}
        assert sum(chunk.dropped for chunk in chunks) == sum("user" in text for text in texts[5 * skip :])


@pytest.mark.parametrize(("foreign", "refused"), [(1, False), (3, True)])
def test_texts_of_another_tokenizer_are_refused_but_for_one_in_a_hundred(
    tmp_path: Path, foreign: int, refused: bool
) -> None:
    path = tmp_path / "rows.jsonl"
    texts = ["plain"] * (200 - foreign) + ["<|start_header_id|>assistant<|end_header_id|>\n\na<|eot_id|>"] * foreign
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    stream = opened(config(source(path)))
    if not refused:
        assert len(whole(stream.chunks("train"))) == 200
        return
    with pytest.raises(
        InputError, match="3 of 200 texts are written in control tokens that the tokenizer does not have"
    ):
        list(stream.chunks("train"))
