"""Every format gives back the text as it was written, and names the line of what is broken."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from expert_cli.data.reading import RawRow, rows_of
from expert_cli.data.sources import RemoteFile
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.utils.object_storage import StoredFolder
from tests.object_storage import write

TEXTS = [
    "2024-01-01T00:00:00Z",
    "1e5",
    "007",
    "null",
    "NaN",
    "",
    " spaces ",
    "Zürich — 東京 🦆 e\u0301",
    "\x00",
    "x" * 200_000,
]
TEXTS += ["line\nbreak\r\nand\ttab", "\u2028\u2029\x85\x0b", '"quoted", \\n; {"a": 1}']
ROWS = [{"q": str(number), "a": text} for number, text in enumerate(TEXTS)]
LINES = "".join(json.dumps(row, ensure_ascii=row["q"] in "024") + "\n" for row in ROWS).encode()


def written(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def write_csv(path: Path, delimiter: str = ",") -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["q", "a"], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(ROWS)


def write_arrow(path: Path, form: Any, table: pa.Table | None = None) -> None:
    table = pa.Table.from_pylist(ROWS) if table is None else table
    with pa.OSFile(str(path), "wb") as file, form(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)


WRITERS: dict[str, Callable[[Path], object]] = {
    "rows.jsonl": lambda path: path.write_bytes(LINES),
    "rows.ndjson": lambda path: path.write_bytes(LINES),
    "rows.jsonl.gz": lambda path: path.write_bytes(gzip.compress(LINES[:99]) + gzip.compress(LINES[99:])),
    "rows.jsonl.bz2": lambda path: path.write_bytes(bz2.compress(LINES)),
    "zstd in two frames.jsonl.zst": lambda path: path.write_bytes(
        b"".join(pa.compress(part, "zstd", asbytes=True) for part in (LINES[:99], LINES[99:]))
    ),
    "list.json": lambda path: path.write_text(json.dumps(ROWS, indent=1), encoding="utf-8"),
    "lines.json": lambda path: path.write_bytes(LINES),
    "rows.csv": write_csv,
    "rows.tsv": lambda path: write_csv(path, "\t"),
    "rows.parquet": lambda path: pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=4),
    "file.arrow": lambda path: write_arrow(path, pa.ipc.new_file),
    "stream.arrow": lambda path: write_arrow(path, pa.ipc.new_stream),
}


@pytest.mark.parametrize("name", WRITERS)
def test_text_comes_back_as_it_was_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    rows = list(rows_of(path))
    assert [(row.fields, row.fault) for row in rows] == [(row, "") for row in ROWS]
    is_numbered = name == "list.json" or path.suffix in (".parquet", ".arrow")
    assert rows[5].where == (
        f"{path}:row 6" if is_numbered else f"{path}:{7 if path.suffix in ('.csv', '.tsv') else 6}"
    )
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "bom, CRLF, blank lines.jsonl",
            b'\xef\xbb\xbf{"a": "1"}\r\n\r\n  \n{"a": }\n[1]\n{"a": "\xff"}\n{"a": "\\ud800"}\n{"a": 1} {"a": 2}\n{"a": "end"}',
            [
                (1, {"a": "1"}, ""),
                (4, {}, "not valid JSON: expected value"),
                (5, {}, 'a list, not an object: write {"messages": [...]} for a conversation'),
                (6, {}, "not valid UTF-8 (Windows' cp1252?): save the file as UTF-8"),
                (7, {}, "not valid JSON: unexpected end of hex escape"),
                (8, {}, "not valid JSON: trailing characters"),
                (9, {"a": "end"}, ""),
            ],
        ),
        (
            "depth, a number without end, a name twice.jsonl",
            "[" * 200_000 + "\n" + "9" * 5000 + '\n{"a": "2", "a": "3"}\n{"a": [{"b": 1, "b": 2}]}\n',
            [
                (1, {}, "not valid JSON: recursion limit exceeded"),
                (2, {}, "not valid JSON: number out of range"),
                (3, {}, 'not valid JSON: Detected duplicate key "a"'),
                (4, {}, 'not valid JSON: Detected duplicate key "b"'),
            ],
        ),
        (
            "lines in truth.json",
            '{"a": "1"}\n\nbroken\n',
            [(1, {"a": "1"}, ""), (3, {}, "not valid JSON: expected value")],
        ),
        ("one row.json", '{"a":\n"1"}', [("row 1", {"a": "1"}, "")]),
        ("a number.json", '[{"a": "1"}, 3]', [("row 1", {"a": "1"}, ""), ("row 2", {}, "not a JSON object")]),
        (
            "table.csv",
            b'\xef\xbb\xbfq,"a"\r\n\r\n1,"two\r\nlines"\r\n2\r\n3,\xff\r\n5,\r\n',
            [
                (4, {"q": "1", "a": "two\r\nlines"}, ""),
                (5, {}, "not as many cells as the header's 2"),
                (6, {}, "not valid UTF-8 (Windows' cp1252?): save the file as UTF-8"),
                (7, {"q": "5", "a": ""}, ""),
            ],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isprintable() and "." in value else "",
)
def test_each_row_is_named_with_its_place(tmp_path: Path, name: str, content: Any, expected: list[Any]) -> None:
    path = written(tmp_path / name, content)
    assert list(rows_of(path)) == [RawRow(f"{path}:{place}", fields, fault) for place, fields, fault in expected]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.doc", b"a", r'x\.doc: no known data format \("\.doc"\)'),
        ("x.jsonl", '{"a": 1}\n'.encode("utf-16"), "the file is UTF-16"),
        ("x.jsonl", '{"a": 1}\n'.encode("utf-32"), "the file is UTF-32"),
        ("x.json", b"[" * 200_000, "not valid JSON: "),
        ("x.json", b'[{"a": 1},\n{"a" 2}]', r"x\.json:2: not valid JSON: expected `:`"),
        ("x.json", b'[{"a": 1, "a": 2}]', 'Detected duplicate key "a"'),
        ("x.csv", b'q,q\n1,2\n', r'x\.csv:1: the header names "q" more than once'),
        ("x.csv", b'"q"x,a\n1,2\n', r"x\.csv:1: not valid CSV: ',' expected after"),
        ("x.csv", b'q,a\n1,"2\n', r"x\.csv:2: not valid CSV: unexpected end of data"),
        ("x.arrow", b"ARROW1 no", r"x\.arrow: damaged, or not a \.arrow file"),
        ("x.parquet", b"PAR1", r"x\.parquet: damaged, or not a \.parquet file"),
        *[(f"x.jsonl{end}", content, f"damaged, or not a {end} file") for end, whole in (
            (".gz", gzip.compress(LINES)),
            (".bz2", bz2.compress(LINES)),
            (".zst", pa.compress(LINES, "zstd", asbytes=True)),
        ) for content in (whole[:-9], LINES, whole + b"junk")],
    ],
)  # fmt: skip
def test_a_file_that_is_broken_as_a_whole_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(rows_of(written(tmp_path / name, content)))


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_json_of_datasets_is_read_as_what_it_holds(tmp_path: Path, suffix: str) -> None:
    """`datasets` writes calls whose arguments differ, and columns of mixed types, as texts in JSON (its pull request 8027)."""
    rows = [
        {
            "messages": [{"role": "user", "content": "ü"}, {"n": name}],
            "tools": [{"f": {"p": {name: 1}}}],
            "answer": answer,
        }
        for name, answer in (("a", "Paris"), ("b", 4), ("c", None))
    ]
    data = datasets.Dataset.from_list(rows, on_mixed_types="use_json")
    path = tmp_path / f"rows{suffix}"
    if suffix == ".parquet":
        data.to_parquet(path)
    else:
        data.save_to_disk(tmp_path / "saved")
        next((tmp_path / "saved").glob("*.arrow")).rename(path)
    assert [row.fields for row in rows_of(path)] == rows


def test_columns_that_are_no_text_or_stand_twice_are_refused(tmp_path: Path) -> None:
    for table, told in (
        (
            pa.table({"a": pa.array([b"ok", b"\xff"], pa.binary()).view(pa.string())}),
            "x.arrow: damaged, .* can't decode",
        ),
        (pa.Table.from_arrays([pa.array(["1"]), pa.array(["2"])], ["a", "a"]), 'the schema names "a" more than once'),
    ):
        write_arrow(tmp_path / "x.arrow", pa.ipc.new_stream, table)
        with pytest.raises(InputError, match=told):
            list(rows_of(tmp_path / "x.arrow"))


def test_a_file_that_cannot_be_opened_is_the_machines_problem(tmp_path: Path) -> None:
    for name in ("gone.jsonl", "gone.parquet"):
        with pytest.raises(EnvironmentProblem, match=rf"{name}: cannot be read"):
            list(rows_of(tmp_path / name))


def test_a_remote_file_is_read_as_the_version_it_was_found_in(bucket: str, tmp_path: Path) -> None:
    for name in ("rows.jsonl", "rows.jsonl.gz", "rows.parquet"):
        WRITERS[name](tmp_path / name)
        write(f"{bucket}/{name}", (tmp_path / name).read_bytes())
        info = StoredFolder(bucket).info(name)
        assert info
        file = RemoteFile(f"{bucket}/{name}", info)
        rows = list(rows_of(file))
        assert [row.fields for row in rows] == ROWS
        assert rows[0].where == f"{bucket}/{name}:{'row ' if name == 'rows.parquet' else ''}1"
        write(f"{bucket}/{name}", b"other")
        with pytest.raises(InputError, match=f"{name}: was replaced while it was read"):
            list(rows_of(file))
        StoredFolder(bucket).remove(name)
        with pytest.raises(InputError, match=f"{name}: cannot read"):
            list(rows_of(file))


def test_a_document_that_is_not_in_utf_8_is_told_with_how_to_save_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.json:2: not valid UTF-8") as caught:
        list(rows_of(written(tmp_path / "x.json", b'[{"a": 1},\n{"a": "caf\xe9"}]')))
    assert caught.value.hint.startswith("save it as UTF-8")
