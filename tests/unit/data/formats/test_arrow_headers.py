"""What the headers of an Arrow file's batches say, held to what pyarrow tells once it has read them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from expert_cli.data.formats.arrow import cut_arrow
from expert_cli.data.formats.arrow_headers import BatchHeader, batch_headers
from expert_cli.data.formats.raw_row import ColumnFilter, Piece
from expert_cli.data.formats.registry import pieces_of, read_blocks
from expert_cli.data.places import read_range
from expert_cli.errors import InputError

ROWS = [
    {"a": f"text {number}" * (1 + number % 7), "b": [number, None], "c": {"d": number / 7}} for number in range(100)
]


def write(path: Path, batches: list[pa.RecordBatch], schema: pa.Schema, **options: object) -> Path:
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_file(file, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
    return path


def headers(path: Path) -> list[BatchHeader]:
    return list(batch_headers(partial(read_range, path), path.stat().st_size))


def batches() -> Iterator[pa.RecordBatch]:
    whole = pa.RecordBatch.from_pylist(ROWS)
    for start, count in ((0, 1), (1, 0), (1, 60), (61, 39)):
        yield whole.slice(start, count)


@pytest.mark.parametrize(
    "options",
    [{}, {"compression": "zstd"}, {"compression": "lz4"}, {"metadata_version": pa.ipc.MetadataVersion.V4}],
    ids=["plain", "zstd", "lz4", "as Arrow 0.14 wrote it"],
)
def test_rows_and_compression_of_every_batch_are_told(options: dict[str, object], tmp_path: Path) -> None:
    path = write(tmp_path / "x.arrow", list(batches()), next(batches()).schema, **options)
    found = headers(path)
    assert [one.rows for one in found] == [1, 0, 60, 39]
    assert {one.is_compressed for one in found if one.rows} == {"compression" in options}
    assert sum(one.size for one in found) < path.stat().st_size
    if not options:
        assert [one.size >= batch.nbytes for one, batch in zip(found, batches(), strict=True)] == [True] * 4


def test_old_files_without_a_mark_before_a_header_are_read(tmp_path: Path) -> None:
    options = {"use_legacy_format": True, "metadata_version": pa.ipc.MetadataVersion.V4}
    assert [
        one.rows for one in headers(write(tmp_path / "x.arrow", list(batches()), next(batches()).schema, **options))
    ]


def test_dictionaries_are_no_batches(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array(["x", "y", "x"]).dictionary_encode()})
    assert [one.rows for one in headers(write(tmp_path / "x.arrow", table.to_batches(), table.schema))] == [3]
    empty = write(tmp_path / "empty.arrow", [], table.schema)
    assert (headers(empty), cut_arrow(empty, 10)) == ([], [0])


def test_pieces_of_a_file_have_its_rows_with_their_numbers(tmp_path: Path) -> None:
    whole = pa.RecordBatch.from_pylist(ROWS)
    cut = [whole.slice(start, 7) for start in range(0, 100, 7)]
    path = write(tmp_path / "x.arrow", cut, whole.schema)
    pieces = pieces_of(path, 3 * headers(path)[1].size)
    assert len(pieces) > 3

    def rows(piece: Piece) -> list[tuple[str, object]]:
        blocks = read_blocks(piece, ColumnFilter(frozenset("a")))
        return [(row.where, row.fields["a"]) for block in blocks for row in block.raw()]

    told = [row for piece in pieces for row in rows(piece)]
    assert told == [(f"{path}:row {number}", row["a"]) for number, row in enumerate(ROWS, 1)]
    packed = write(tmp_path / "packed.arrow", cut, whole.schema, compression="zstd")
    assert pieces_of(packed, 1) == [Piece(packed)]


@pytest.mark.parametrize("end", [b"\xff\xff\xff\x7fARROW1", b"\0\0\0\0ARROW1", b"\x10\0\0\0ARROW1", b"ARROW2"])
def test_a_damaged_footer_is_told(end: bytes, tmp_path: Path) -> None:
    path = write(tmp_path / "x.arrow", list(batches()), next(batches()).schema)
    path.write_bytes(path.read_bytes()[: -len(end)] + end)
    with pytest.raises(InputError, match=r"x.arrow: damaged, or no .arrow file"):
        pieces_of(path, 10)
