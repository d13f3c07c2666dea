"""Every format gives back the text byte for byte, and names the line of what is broken."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from expert_cli.config.data_files import COMPRESSED_SUFFIXES, DATA_SUFFIXES
from expert_cli.data.formats.raw_row import ColumnFilter, Piece, RawRow
from expert_cli.data.formats.registry import FORMATS, PACKED, format_of, read_blocks, read_file
from expert_cli.data.sources.sniff import rows_inside
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.inventory.dataset import RowCount, count_rows

WANTED = frozenset({"q", "a", "text"})
TEXTS = [
    "2024-01-01",
    "2024-01-01T00:00:00Z",
    "1e5",
    "007",
    "true",
    "null",
    "NaN",
    "",
    " spaces ",
    "Zürich — 東京 🦆 e\u0301",
    "line\nbreak\r\nand\ttab",
    "\u2028\u2029\x85\x0b",
    '"quoted", \\n; {"a": 1}',
    "x" * 200_000,
    *(["\x00"] if sys.version_info >= (3, 11) else []),  # the csv module of 3.10 refuses it
]


ROWS = [{"q": str(number), "a": f"a{number}"} for number in range(5)]


def as_table(delimiter: str, path: Path) -> None:
    lines = [f"{row['q']}{delimiter}{row['a']}\n" for row in [{"q": "q", "a": "a"}, *ROWS]]
    path.write_text("".join(lines), encoding="utf-8")


def as_stream(path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


AS_FILES: dict[str, Callable[[Path], object]] = {
    "JSON lines": lambda path: path.write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8"),
    "JSON": lambda path: path.write_text(json.dumps(ROWS), encoding="utf-8"),
    "CSV": partial(as_table, ","),
    "TSV": partial(as_table, "\t"),
    "plain text": lambda path: path.write_text("\n\r\n".join(f"a{number}" for number in range(5)), encoding="utf-8"),
    "Parquet": lambda path: pq.write_table(pa.Table.from_pylist(ROWS), path),
    "Arrow": as_stream,
}
"""Writes ROWS, by format."""


@pytest.mark.parametrize("suffix", DATA_SUFFIXES)
def test_a_format_is_read_counted_and_told_as_its_entry_says(tmp_path: Path, suffix: str) -> None:
    path, strange = tmp_path / f"rows{suffix.upper()}", tmp_path / "rows"
    for file in (path, strange):
        AS_FILES[DATA_SUFFIXES[suffix]](file)
    form = format_of(path)
    assert form is FORMATS[DATA_SUFFIXES[suffix]]
    is_text = suffix == ".txt"
    assert [row.fields for row in rows_of(path)] == [{"text": row["a"]} if is_text else row for row in ROWS]
    for limit in (sys.maxsize, 3, 5, 9):
        blocks = list(read_blocks(Piece(path), ColumnFilter(WANTED), limit))
        rows = [row for block in blocks for row in block.raw()]
        assert rows == rows_of(path)[:limit]
        assert [place for block in blocks for place in map(block.place, range(block.count))] == [
            row.where for row in rows
        ]
        if form.blocks and limit != 3:
            texts = [text for block in blocks for text in (block.texts or {})["text" if is_text else "a"]]
            assert texts == [row["a"] for row in ROWS]
    assert count_rows([path]) == (RowCount(5) if form.count else RowCount())
    told = rows_inside(tmp_path, [strange.name], [path.name])
    assert told == ([] if is_text else [f"rows (begins as {form.label})"])
    others = [other.label for other in FORMATS.values() if other.begins and other.begins(strange.read_bytes())]
    assert others == ([form.label] if form.begins and not is_text else [])


def test_every_format_is_tried_and_an_unknown_one_is_told_all(tmp_path: Path) -> None:
    assert set(AS_FILES) == set(FORMATS) == set(DATA_SUFFIXES.values())
    assert not {*DATA_SUFFIXES, *COMPRESSED_SUFFIXES} & set(PACKED)
    with pytest.raises(InputError) as caught:
        rows_of(write(tmp_path / "x.rows", "{}"))
    assert caught.value.hint == (
        f"Give the rows as one of {', '.join(DATA_SUFFIXES)}; text may be compressed: {', '.join(COMPRESSED_SUFFIXES)}."
    )


def rows_of(path: Path) -> list[RawRow]:
    return list(read_file(path, ColumnFilter(WANTED)))


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def write_table(path: Path, table: pa.Table) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=4)
        return
    form = pa.ipc.new_stream if path.name == "stream.arrow" else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as file, form(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)


def write_texts(path: Path) -> None:
    """Write TEXTS as the answers of a file in the format of its suffix."""
    rows = [{"q": str(number), "a": text, "other": number} for number, text in enumerate(TEXTS)]
    table = pa.Table.from_pylist(rows)
    if path.suffix == ".jsonl":
        write(path, "".join(json.dumps(row, ensure_ascii=row["other"] % 2 == 0) + "\n" for row in rows))
    elif path.name == "data.json":
        write(path, json.dumps({"version": [1, {"data": [0]}], "data": rows, "end": None}))
    elif path.suffix == ".json":
        write(path, json.dumps(rows, indent=1, ensure_ascii=False))
    elif path.suffix in (".parquet", ".arrow"):
        write_table(path, table)
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            delimiter = "," if path.suffix == ".csv" else "\t"
            writer = csv.DictWriter(file, ["q", "a", "other"], delimiter=delimiter)
            writer.writeheader()
            writer.writerows(rows)


@pytest.mark.parametrize(
    "name",
    ["rows.jsonl", "rows.json", "data.json", "rows.csv", "rows.tsv", "rows.parquet", "stream.arrow", "file.arrow"],
)
def test_text_comes_back_as_it_was_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_texts(path)
    columns = ColumnFilter(WANTED)
    rows = list(read_file(path, columns))
    assert [row.fields for row in rows] == [{"q": str(number), "a": text} for number, text in enumerate(TEXTS)]
    assert not any(row.fault for row in rows)
    assert columns.seen == ["q", "a", "other"]
    assert sorted(tmp_path.iterdir()) == [path]


def test_the_limit_of_csv_cells_is_put_back(tmp_path: Path) -> None:
    before = csv.field_size_limit(131_072)
    try:
        rows_of(write(tmp_path / "x.csv", "q,a\n1,2\n"))
        assert csv.field_size_limit() == 131_072
    finally:
        csv.field_size_limit(before)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        pytest.param(
            "x.jsonl",
            b'\xef\xbb\xbf{"a": "1"}\r\n\r\n  \n{"a": }\n[1]\n{"a": "\xff"}\n{"a": "\\ud800"}\n{"a": "end"}',
            [
                (1, {"a": "1"}, ""),
                (4, {}, "not valid JSON"),
                (5, {}, "not a JSON object"),
                (6, {}, "not valid UTF-8"),
                (7, {"a": "\ud800"}, ""),
                (8, {"a": "end"}, ""),
            ],
            id="jsonl: BOM, CRLF, blank lines, no end of line",
        ),
        pytest.param(
            "x.ndjson",
            '{"a": "1"} {"a": "2"}\n' + "[" * 200_000 + "\n" + '{"a": "raw\ttab"}\n' + "9" * 5000 + "\n",
            [
                (1, {}, "not valid JSON"),
                (2, {}, "not valid JSON"),
                (3, {}, "not valid JSON"),
                (4, {}, "not valid JSON"),
            ],
            id="ndjson: two rows a line, depth, control characters, a number without end",
        ),
        pytest.param(
            "x.json",
            '\r\n[\r\n{"a":\n"1"},\n\n {"a": "2"}\n, 3]\n',
            [(3, {"a": "1"}, ""), (6, {"a": "2"}, ""), (7, {}, "not a JSON object")],
            id="json: the line an item begins in",
        ),
        pytest.param("x.json", "[ ]", [], id="json: no rows"),
        pytest.param(
            "x.json",
            '{"a": "1"}\n\n{"a": "2"}\nbroken\n',
            [(1, {"a": "1"}, ""), (3, {"a": "2"}, ""), (4, {}, "not valid JSON")],
            id="json: in truth lines",
        ),
        pytest.param(
            "x.json",
            '\n{\n"a": [{"from": "b"}],\n "c": {}}\n',
            [(2, {"a": [{"from": "b"}]}, "")],
            id="json: one row over several lines",
        ),
        pytest.param(
            "x.json",
            '{"licenses": [{"name": "MIT"}], "data": [{"a": "1"}], "empty": []}',
            [(1, {"a": "1"}, "")],
            id="json: lists of something else",
        ),
        pytest.param(
            "x.json",
            '[{"a": "1"}, {"a": "2", "a": "3"},\n{"a": "4"}]',
            [(1, {"a": "1"}, ""), (1, {}, "a name stands twice in a JSON object"), (2, {"a": "4"}, "")],
            id="json: a name twice",
        ),
        pytest.param(
            "x.jsonl",
            '{"a": "1"}\n{"a": "2", "a": "3"}\n{"a": [{"b": 1, "b": 2}]}\n',
            [(1, {"a": "1"}, ""), *((line, {}, "a name stands twice in a JSON object") for line in (2, 3))],
            id="jsonl: a name twice",
        ),
        pytest.param(
            "x.csv",
            b'\xef\xbb\xbfq,"a"\r\n\r\n1,"two\r\nlines"\r\n2\r\n3,\xff\r\n4,"x"y\r\n5,\r\n',
            [
                (3, {"q": "1", "a": "two\r\nlines"}, ""),
                (5, {}, "not as many cells as the header's 2"),
                (6, {}, "not valid UTF-8"),
                (7, {}, "not valid CSV: ',' expected after '\"'"),
                (8, {"q": "5", "a": ""}, ""),
            ],
            id="csv: BOM, CRLF, blank line, cell of two lines",
        ),
        pytest.param(
            "x.tsv",
            b'q\ta\n1,2\t"two\tcells"\n2\n3\t5" pipe\n',
            [
                (2, {"q": "1,2", "a": "two\tcells"}, ""),
                (3, {}, "not as many cells as the header's 2"),
                (4, {"q": "3", "a": '5" pipe'}, ""),
            ],
            id="tsv: commas, a tab in a cell",
        ),
        pytest.param(
            "x.txt",
            "\ufeffone\r\n\n \t\n  two\u2028lines \n".encode() + b"\xff\nend",
            [
                (1, {"text": "one"}, ""),
                (4, {"text": "  two\u2028lines "}, ""),
                (5, {}, "not valid UTF-8"),
                (6, {"text": "end"}, ""),
            ],
            id="txt: BOM, CRLF, blank lines, white space, no end of line",
        ),
    ],
)
def test_each_row_is_named_with_its_line(
    tmp_path: Path, name: str, content: str | bytes, expected: list[tuple[int, dict[str, str], str]]
) -> None:
    path = write(tmp_path / name, content)
    assert rows_of(path) == [RawRow(f"{path}:{line}", fields, fault) for line, fields, fault in expected]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param("x.doc", "a", r'x.doc: no known data format \(".doc"\)', id="suffix"),
        pytest.param("x.gz", "a", r'x.gz: no known data format \(".gz"\)', id="compressed, but what"),
        pytest.param("x.parquet.gz", "a", r"x.parquet.gz: no known data format", id="compressed inside as well"),
        pytest.param("x.txt", '{"a": 1}\n', r"x.txt: begins as JSON lines", id="rows in a text file"),
        pytest.param("x.json", '{"a": [1], "data" []}', r"x.json:1:19: not valid JSON", id="no colon"),
        pytest.param("x", "a", r"x: no known data format$", id="no suffix"),
        pytest.param("x.json", '[{"a": 1},\n{"a" 2}]', r"x.json:2:6: not valid JSON: ", id="broken item"),
        pytest.param("x.json", '[{"a": "1"}', r"x.json:1:12: not valid JSON: expecting", id="cut off"),
        pytest.param("x.json", '[{"a": "1"} {}]', r"x.json:1:13: not valid JSON: expecting", id="comma missing"),
        pytest.param("x.json", '{"rows": []}', r'an object without a list "data"', id="no data"),
        pytest.param(
            "x.json", '{"data": {"a": []}}', r'no rows: an object without a list "data"', id="data is no list"
        ),
        pytest.param(
            "x.json",
            '{"a": "1", "rows": [{"a": "1"}]}',
            r'an object without a list "data"',
            id="rows under another name",
        ),
        pytest.param(
            "x.json", '[{"a": "1"}]\n[{"a": "2"}]', r"x.json:2:1: .*something follows the list", id="two lists"
        ),
        pytest.param("x.json", '[{"a": "1"}]\n]', r"x.json:2:1: .*something follows the list", id="garbage"),
        pytest.param(
            "x.json", '{"data": [],\n"data": []}', r'x.json:2:9: .*a second list of rows, "data"', id="data twice"
        ),
        pytest.param(
            "x.json",
            '{"train": [{"q": "1"}], "data": [{"a": "1"}]}',
            r'x.json:1:11: .*a second list of rows, "train", beside "data"',
            id="rows beside data",
        ),
        pytest.param("x.json", "3", r"neither a list nor an object", id="a number"),
        pytest.param("x.json", "", r"x.json:1:1: not valid JSON", id="empty"),
        pytest.param("x.json", b'[\n{"a": "\xff"}]', r"x.json:2: not valid UTF-8", id="bytes"),
        pytest.param("x.json", "[" * 200_000, r"nested too deeply", id="depth"),
        pytest.param("x.jsonl", '{"a": "1"}'.encode("utf-16"), r"the file is UTF-16", id="UTF-16"),
        pytest.param("x.csv", 'q,a\n1,2\n3,"open\n4,5\n', r"x.csv:3: a quote is opened here", id="open quote"),
        pytest.param("x.csv", "a,a\n1,2\n", r'x.csv:1: the header names "a" more than once', id="twice in the header"),
        pytest.param("x.csv", b"q,\xff\n1,2\n", r"x.csv:1: the header is not valid UTF-8", id="header bytes"),
        pytest.param("x.parquet", "PAR1 no", r"x.parquet: damaged, or no .parquet file", id="parquet"),
        pytest.param("x.arrow", "ARROW1 no", r"x.arrow: damaged, or no .arrow file", id="arrow file"),
        pytest.param("x.arrow", "no", r"x.arrow: damaged", id="arrow stream"),
    ],
)
def test_a_file_that_is_broken_as_a_whole_is_refused(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(InputError, match=message):
        rows_of(path)


def test_a_damaged_page_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [f"text {number}" for number in range(1000)]}), path, compression="zstd")
    content = bytearray(path.read_bytes())
    content[40:200] = bytes(160)
    path.write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        rows_of(path)


def test_columnar_rows_have_numbers_types_and_bad_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    broken = pa.array([b"ok", b"\xff", b"end"], pa.binary()).view(pa.string())
    table = pa.table({"q": pa.array([1, None, 3]), "a": broken, "big": ["x"] * 3})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    assert rows_of(path) == [
        RawRow(f"{path}:row 1", {"q": 1, "a": "ok"}),
        RawRow(f"{path}:row 2", {}, "not valid UTF-8"),
        RawRow(f"{path}:row 3", {"q": 3, "a": "end"}),
    ]


@pytest.mark.parametrize("name", ["x.parquet", "stream.arrow", "file.arrow"])
def test_a_column_of_interest_that_stands_twice_is_not_chosen_from(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    table = pa.Table.from_arrays([pa.array([text]) for text in "1234"], ["a", "other", "other", "a"])
    write_table(path, table)
    with pytest.raises(InputError, match=r'the schema names "a" more than once'):
        rows_of(path)
    write_table(path, table.select([0, 1, 2]))
    assert [row.fields for row in rows_of(path)] == [{"a": "1"}]


def test_columnar_rows_without_a_column_of_interest_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"other": [1, 2]}), path)
    columns = ColumnFilter(WANTED)
    assert [row.fields for row in read_file(path, columns)] == [{}, {}]
    assert columns.seen == ["other"]


def test_a_file_that_cannot_be_opened_is_the_machines_problem(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"gone\.jsonl: cannot be read"):
        rows_of(tmp_path / "gone.jsonl")
