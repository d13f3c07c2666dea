"""Rows of Parquet and Arrow files, told by their metadata, and of JSON lines, by their line feeds."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from expert_cli.inventory.dataset import RowCount, count_rows
from tests.dataset_world import made, parquet


def streamed(path: Path, batches: list[int]) -> Path:
    schema = pa.schema([("a", pa.int64())])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for rows in batches:
            writer.write_batch(pa.record_batch([pa.array(range(rows), pa.int64())], schema=schema))
    return path


def filed(path: Path, rows: int) -> Path:
    table = pa.table({"a": list(range(rows))})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return path


def test_rows_come_from_metadata(tmp_path: Path) -> None:
    good = [
        streamed(tmp_path / "a.arrow", [3, 0, 4]),
        filed(tmp_path / "b.arrow", 5),
        parquet(tmp_path / "c.parquet", 6),
    ]
    assert count_rows(good) == RowCount(18)
    assert count_rows([]) == RowCount()
    assert count_rows([*good, made(tmp_path / "d.csv")]) == count_rows([*good, made(tmp_path / "d.json")]) == RowCount()
    assert count_rows(good, max_s=-1) == RowCount()
    assert count_rows([tmp_path / "gone.arrow"]) == RowCount()
    bad = [
        made(tmp_path / "empty.arrow", b""),
        made(tmp_path / "bad.parquet", b"PAR1"),
        made(tmp_path / "bad.arrow", b"no"),
    ]
    cut = made(tmp_path / "cut.arrow", good[0].read_bytes()[:-40])
    assert count_rows([*good, *bad, cut]) == RowCount(None, (*bad, cut))


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        pytest.param(b"", 0, id="nothing"),
        pytest.param(b"{}", 1, id="no line feed at the end"),
        pytest.param(b'{"a": "\\n"}\n', 1, id="a line feed that is spelled out"),
        pytest.param(b"{}\n\n{}\n", 3, id="a blank line counts"),
        pytest.param(b"\n" * (1 << 20) + b"{}", (1 << 20) + 1, id="a block and a line"),
    ],
)
def test_lines_are_counted_not_parsed(tmp_path: Path, content: bytes, rows: int) -> None:
    path = made(tmp_path / "a.jsonl", content)
    assert count_rows([path]) == RowCount(rows)
    assert count_rows([path, made(tmp_path / "b.ndjson")]) == RowCount(rows + 1)
    assert count_rows([path], max_s=-1) == RowCount()
