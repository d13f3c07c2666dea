"""URLs of object storage: which objects they name, read as local files are, and what is said where there is nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from expert_cli.config.run_config import ColumnMapping, DataConfig, RowFilters, SourceSpec
from expert_cli.config.source_names import parse_source
from expert_cli.data.formats.raw_row import ColumnFilter, Piece
from expert_cli.data.formats.registry import pieces_of, read_blocks
from expert_cli.data.places import DataFile
from expert_cli.data.rows.cache import Unchanged
from expert_cli.data.sources.data_rows import locate_data
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.utils import object_storage
from expert_cli.utils.object_storage import StoredFolder
from tests.object_storage import S3Server, write
from tests.train.projects import Told

ROW = b'{"instruction": "Say it.", "output": "yes"}\n'


def located(written: str, *, offline: bool = False) -> tuple[list[DataFile], list[str]]:
    """The files of a source, and the warnings."""
    spec = parse_source(written, (Path.cwd(),))
    data = DataConfig((spec,), (), 0.0, ColumnMapping(), RowFilters(), True, 2048, 0, offline)
    told = Told()
    return locate_data(data, told).files(), told.warnings


def names(written: str) -> list[str]:
    return list(map(str, located(written)[0]))


def rows_in(piece: Piece) -> int:
    return sum(block.count for block in read_blocks(piece, ColumnFilter(frozenset({"instruction", "output"}))))


def gets(server: S3Server) -> int:
    return sum(line.startswith("GET") for line in server.door.requests)


def test_a_url_is_taken_as_it_is_written(tmp_path: Path) -> None:
    for written, spec in {
        "s3://b/rows.jsonl": SourceSpec("url", "s3://b/rows.jsonl"),
        "s3://b/rows/": SourceSpec("url", "s3://b/rows"),
        "gs://b/*.jsonl::train[:9]": SourceSpec("url", "gs://b/*.jsonl", split="train[:9]"),
        "hf://datasets/a/b::test::c": SourceSpec("url", "hf://datasets/a/b", config="c", split="test"),
    }.items():
        assert parse_source(written, (tmp_path,)) == spec
    (tmp_path / "my rows").mkdir()
    (tmp_path / "my rows" / "a.jsonl").write_bytes(ROW)
    for place in (tmp_path / "my rows", tmp_path / "my rows" / "a.jsonl"):
        assert parse_source(f"{place.as_uri()}::train[:5]", (Path.cwd(),)) == parse_source(
            f"{place}::train[:5]", (tmp_path,)
        )
    with pytest.raises(InputError, match=r"gone\.jsonl: no such file or folder"):
        located((tmp_path / "gone.jsonl").as_uri())


def test_what_no_source_is_refused_before_anything_is_asked() -> None:
    for written, told in {
        "s3://me:pass@b/rows.jsonl": r'data source "s3://\*\*\*@b/rows.jsonl": a password in a URL',
        "s3://me:pass@b/rows.jsonl::no[": r"s3://\*\*\*@b/rows.jsonl::no",
        "none://me:pass@b/rows.jsonl": r"none://\*\*\*@b",
        "s3://": "names no bucket",
        "s3://*/rows.jsonl": "names no bucket",
        "s3://b/x-*.jsonl::validation": r'x-\*.jsonl is a file, it has no split "validation"',
    }.items():
        with pytest.raises(InputError, match=told) as raised:
            parse_source(written, ())
        assert "pass" not in str(raised.value.as_json()).replace("password", "")


def test_a_url_is_an_object_or_what_lies_below_it(bucket: str) -> None:
    for name in (
        "rows.jsonl",
        "x.parquet/part-1.parquet",
        "some/train-2.jsonl",
        "some/train-10.jsonl",
        "some/valid.jsonl",
    ):
        write(f"{bucket}/{name}", ROW)
    assert names(f"{bucket}/rows.jsonl") == [f"{bucket}/rows.jsonl"]
    assert names(f"{bucket}/x.parquet") == [f"{bucket}/x.parquet/part-1.parquet"], "as Spark writes it"
    assert names(f"{bucket}/some/") == [f"{bucket}/some/train-10.jsonl", f"{bucket}/some/train-2.jsonl"]
    assert names(f"{bucket}/some::validation") == [f"{bucket}/some/valid.jsonl"]
    assert names(f"{bucket}/*/train-*.jsonl") == names(f"{bucket}/some")


def test_a_key_that_stands_for_a_folder_is_no_file(bucket: str, s3_server: S3Server) -> None:
    write(f"{bucket}/some/train.jsonl", ROW)
    s3_server.files.call_s3("put_object", Bucket=bucket.removeprefix("s3://"), Key="some/", Body=b"")
    assert names(f"{bucket}/some") == [f"{bucket}/some/train.jsonl"]
    assert names(f"{bucket}/some/*") == [f"{bucket}/some/train.jsonl"]


def test_what_is_not_there_is_told(bucket: str) -> None:
    write(f"{bucket}/some/train.jsonl", ROW)
    for written, told in {
        f"{bucket}/none.jsonl": f"{bucket}/none.jsonl: no object has this name, and none lies below it",
        f"{bucket}/none": f"{bucket}/none: no object has this name",
        f"{bucket}/some/*.csv": r"some/\*.csv: no file of rows fits this pattern",
        f"{bucket}/some::test": f'{bucket}/some: no file holds the split "test"; there is: train',
        f"{bucket}/some/train.jsonl::test": 'train.jsonl is a file, it has no split "test"',
        "s3://no-bucket/rows.jsonl": "s3://no-bucket/rows.jsonl: cannot list: .*bucket does not exist",
    }.items():
        with pytest.raises(InputError, match=told):
            located(written)


def test_a_key_that_may_not_and_a_network_that_may_not_are_told(bucket: str, s3_server: S3Server) -> None:
    write(f"{bucket}/train.jsonl", ROW)
    s3_server.door.requests.clear()
    with pytest.raises(EnvironmentProblem, match=r"train.jsonl: the network may not be used \(--offline is given\)"):
        located(f"{bucket}/train.jsonl", offline=True)
    assert s3_server.door.requests == []
    s3_server.deny()
    with pytest.raises(EnvironmentProblem, match=r"train.jsonl: cannot read: Forbidden") as raised:
        located(f"{bucket}/train.jsonl")
    assert raised.value.hint.startswith("give a key that may read it: AWS_ACCESS_KEY_ID")


def test_lines_are_read_in_large_ranges_and_a_piece_reads_no_more_than_it_needs(
    bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = 1 << 20
    monkeypatch.setattr(object_storage, "READ_AHEAD", ahead)
    row = json.dumps({"instruction": "Say it.", "output": "yes " * 5000}).encode() + b"\n"
    count = 5 * ahead // len(row)
    write(f"{bucket}/train.jsonl", row * count)
    (file,), _ = located(f"{bucket}/train.jsonl")
    s3_server.door.requests.clear()
    assert rows_in(Piece(file)) == count
    assert gets(s3_server) <= 6
    first, second, *rest = pieces_of(file, ahead)
    assert len(rest) == 3
    s3_server.door.requests.clear()
    middle = rows_in(second)
    assert gets(s3_server) == 1, "what stands before the piece is not read"
    assert middle + sum(map(rows_in, (first, *rest))) == count


def test_an_object_that_is_replaced_is_not_read(bucket: str) -> None:
    write(f"{bucket}/train.jsonl", ROW * 3)
    write(f"{bucket}/gone.jsonl", ROW)
    (file,), _ = located(f"{bucket}/train.jsonl")
    (gone,), _ = located(f"{bucket}/gone.jsonl")
    files = Unchanged([file, gone])
    files.require()
    files.require_everywhere()
    write(f"{bucket}/train.jsonl", ROW * 4)
    with pytest.raises(InputError, match=r"s3://rows/train.jsonl: was replaced while it was read"):
        rows_in(Piece(file))
    with pytest.raises(InputError, match=r"s3://rows/train.jsonl: changed while it was read"):
        files.require_everywhere()
    write(f"{bucket}/train.jsonl", ROW * 3)
    files.require_everywhere()
    StoredFolder(bucket).remove("gone.jsonl")
    with pytest.raises(InputError, match=r"s3://rows/gone.jsonl: cannot read"):
        rows_in(Piece(gone))
    with pytest.raises(InputError, match=r"s3://rows/gone.jsonl: changed"):
        files.require_everywhere()


def test_local_rows_need_no_library_of_a_storage(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_bytes(ROW)
    code = f"""
import sys
from pathlib import Path
from expert_cli.config.source_names import parse_source
from expert_cli.data.formats.raw_row import ColumnFilter
from expert_cli.data.formats.registry import read_file
from expert_cli.data.sources.folder import folder_files
from expert_cli.utils.reporter import NullReporter
assert parse_source({str(tmp_path)!r}, (Path.cwd(),)).kind == "folder"
(file,) = folder_files(Path({str(tmp_path)!r}), "", "train", NullReporter())
assert len(list(read_file(file, ColumnFilter(frozenset())))) == 1
print(sorted({{"fsspec", "s3fs", "aiohttp", "botocore", "huggingface_hub.hf_file_system"}} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
