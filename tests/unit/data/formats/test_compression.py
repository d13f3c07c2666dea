"""A compressed file is the file that was compressed, with the same rows at the same places; damage is refused by name."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from expert_cli.config.data_files import COMPRESSED_SUFFIXES, DATA_SUFFIXES, PLAIN_TEXT, format_name
from expert_cli.data.formats import compression, json_document, lines
from expert_cli.data.formats.compression import COMPRESSIONS, open_data
from expert_cli.data.formats.raw_row import ColumnFilter, Piece, RawRow
from expert_cli.data.formats.registry import FORMATS, read_blocks, read_file
from expert_cli.errors import InputError
from expert_cli.inventory.dataset import RowCount, count_rows


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue().to_pybytes())


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": zstd,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
ROWS = [{"q": f"{n} " + "x" * (n % 90), "a": f"ä{n}"} for n in range(500)]
CONTENT = {
    "JSON lines": "".join(f"{json.dumps(row)}\n" for row in ROWS),
    "JSON": json.dumps(ROWS, indent=1),
    "CSV": "q,a\n" + "".join(f"{row['q']},{row['a']}\r\n" for row in ROWS),
    "TSV": "q\ta\n" + "".join(f"{row['q']}\t{row['a']}\n" for row in ROWS),
    PLAIN_TEXT: "".join(f"{row['q']}\n\n" for row in ROWS),
}
SUFFIXES = [suffix for suffix, form in DATA_SUFFIXES.items() if form in CONTENT]


def columns() -> ColumnFilter:
    return ColumnFilter(frozenset({"q", "a", "text"}))


def rows_of(path: Path, *, limit: int = 10_000) -> list[RawRow]:
    rows = [row for block in read_blocks(Piece(path), columns(), limit) for row in block.raw()]
    assert rows == list(read_file(path, columns()))[:limit]
    return [row._replace(where=row.where.removeprefix(str(path))) for row in rows]


def test_every_compression_has_a_suffix_and_is_tried() -> None:
    assert set(COMPRESSED_SUFFIXES) == set(COMPRESS)
    assert set(COMPRESSED_SUFFIXES.values()) == set(COMPRESSIONS)
    assert {form for form in FORMATS if format_name(f"x{suffix_of(form)}.gz")} == set(CONTENT)


def suffix_of(form: str) -> str:
    return next(suffix for suffix, name in DATA_SUFFIXES.items() if name == form)


@pytest.mark.parametrize("packed", COMPRESS)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_its_rows_are_those_of_the_plain_file(
    tmp_path: Path, suffix: str, packed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_BLOCK_BYTES", 3000)
    monkeypatch.setattr(json_document, "_WINDOW_BYTES", 3000)
    monkeypatch.setattr(compression, "_PACKED_BYTES", 100)
    content = CONTENT[DATA_SUFFIXES[suffix]].encode()
    plain, path = tmp_path / f"rows{suffix}", tmp_path / f"rows{suffix}{packed.upper()}"
    plain.write_bytes(content)
    path.write_bytes(COMPRESS[packed](content))
    expected = rows_of(plain)
    assert len(expected) == len(ROWS)
    assert rows_of(path) == expected
    assert rows_of(path, limit=77) == expected[:77]
    assert count_rows([path]) == count_rows([plain])
    streams = [COMPRESS[packed](content[:1000]), COMPRESS[packed](content[1000:])]
    path.write_bytes(b"".join(streams))  # as `cat a.gz b.gz` makes them
    assert rows_of(path) == expected
    monkeypatch.setattr(compression, "_PACKED_BYTES", len(streams[0]))
    assert rows_of(path) == expected


@pytest.mark.parametrize("packed", COMPRESS)
@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ("cut off", "Truncated"),
        ("more behind it", ""),
        ("not compressed", "does not begin as one"),
        ("empty", "it is empty"),
    ],
)
def test_one_that_is_damaged_is_refused_by_name(
    tmp_path: Path, suffix: str, packed: str, damage: str, why: str
) -> None:
    content = CONTENT[DATA_SUFFIXES[suffix]].encode()
    good = COMPRESS[packed](content)
    path = tmp_path / f"rows{suffix}{packed}"
    path.write_bytes(
        {
            "cut off": good[:-3],
            "more behind it": good + b"what is left of a download",
            "not compressed": content,
            "empty": b"",
        }[damage]
    )
    with pytest.raises(
        InputError, match=f"rows{suffix}{packed}: damaged, or no {COMPRESSED_SUFFIXES[packed]} file"
    ) as told:
        rows_of(path)
    assert why in told.value.message
    if FORMATS[DATA_SUFFIXES[suffix]].count:
        assert count_rows([path]) == RowCount(None, (path,))


@pytest.mark.parametrize("window", [1, 3, 13, 40])
@pytest.mark.parametrize(
    "content",
    [
        (
            '\ufeff[ {"a": "\\ud83d\\ude00 ä😀"},\r\n{"a": "\\\\\\""} , -12.5e+10, true, null,\n [1, 22], "x\\n",'
            ' {"a": "b", "n": 1e400}]\n '
        ),
        '{"n": 1234, "t": false, "o": {"p": [12, "]"]}, "l": [12, {"x": 3}],\n"data" : [{"a": "b"},\n\n{"a": "c"}], "z": 12}',
        '{"a": "b"}\n\n{"a": "c", "n": 12}\nno\n{"a": "d"}',
    ],
    ids=["a list", "under data", "lines"],
)
def test_json_is_the_same_through_any_window(
    tmp_path: Path, content: str, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(content.encode())
    expected = rows_of(path)
    assert [row.fields.get("a") for row in expected if row.fields.get("a")]
    monkeypatch.setattr(json_document, "_WINDOW_BYTES", window)
    assert rows_of(path) == expected


@pytest.mark.parametrize("packed", COMPRESS)
def test_no_more_of_it_is_in_memory_than_of_a_plain_file(tmp_path: Path, packed: str) -> None:
    path = tmp_path / f"rows.jsonl{packed}"
    path.write_bytes(COMPRESS[packed](b'{"a": "zero"}\n' * 1_500_000))
    tracemalloc.start()
    try:
        with open_data(path) as file:
            length = sum(map(len, iter(lambda: file.read(1 << 20), b"")))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert length == 21_000_000
    assert peak < 16_000_000  # 8 MB are the dictionary of xz


@pytest.mark.parametrize("before", ["[", '{"other": [0, {}], "data": ['], ids=["a list", "under data"])
def test_a_list_of_rows_is_never_in_memory_as_a_whole(tmp_path: Path, before: str) -> None:
    path = tmp_path / "rows.json"
    row = json.dumps({"q": "x" * 12_000, "a": "y"})
    path.write_text(f"{before}{', '.join([row] * 2500)}]{'}' * (before != '[')}", encoding="utf-8")  # 30 MB
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_file(path, columns()))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 2500
    assert peak < 20_000_000
