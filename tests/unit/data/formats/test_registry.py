"""Every format gives back the text byte for byte, and names the line of what is broken."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from expert_cli.config.data_files import DATA_SUFFIXES
from expert_cli.data.formats.raw_row import ColumnFilter, RawRow
from expert_cli.data.formats.registry import FORMATS, read_file
from expert_cli.errors import EnvironmentProblem, InputError

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
    "\x00",
]


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


NAMES = ["rows.jsonl", "rows.json", "data.json", "rows.csv", "rows.tsv", "rows.parquet", "stream.arrow", "file.arrow"]


def test_every_format_is_tried() -> None:
    tried = {DATA_SUFFIXES[Path(name).suffix] for name in (*NAMES, "x.txt")}
    assert tried == set(FORMATS) == set(DATA_SUFFIXES.values())


@pytest.mark.parametrize("name", NAMES)
def test_text_comes_back_as_it_was_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_texts(path)
    columns = ColumnFilter(WANTED)
    rows = list(read_file(path, columns))
    assert [row.fields for row in rows] == [{"q": str(number), "a": text} for number, text in enumerate(TEXTS)]
    assert not any(row.fault for row in rows)
    assert columns.seen == ["q", "a", "other"]
    assert sorted(tmp_path.iterdir()) == [path]


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
        pytest.param(
            "x.json",
            '{"a": "1"}\n\n{"a": "2"}\nbroken\n',
            [(1, {"a": "1"}, ""), (3, {"a": "2"}, ""), (4, {}, "not valid JSON")],
            id="json: in truth lines",
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
        pytest.param("x.txt", '{"a": 1}\n', r"x.txt: begins as JSON lines", id="rows in a text file"),
        pytest.param("x.json", "[" * 200_000, r"nested too deeply", id="depth"),
        pytest.param("x.json", '[{"a": 1},\n{"a" 2}]', r"x.json:2:6: not valid JSON: ", id="broken item"),
        pytest.param("x.json", '{"rows": []}', r'an object without a list "data"', id="no data"),
        pytest.param(
            "x.json", '{"data": [],\n"data": []}', r'x.json:2:9: .*a second list of rows, "data"', id="data twice"
        ),
        pytest.param(
            "x.json",
            '{"train": [{"q": "1"}], "data": [{"a": "1"}]}',
            r'x.json:1:11: .*a second list of rows, "train", beside "data"',
            id="rows beside data",
        ),
        pytest.param("x.json", b'[\n{"a": "\xff"}]', r"x.json:2: not valid UTF-8", id="bytes"),
        pytest.param("x.arrow", "ARROW1 no", r"x.arrow: damaged, or no .arrow file", id="arrow file"),
    ],
)
def test_a_file_that_is_broken_as_a_whole_is_refused(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(InputError, match=message):
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
