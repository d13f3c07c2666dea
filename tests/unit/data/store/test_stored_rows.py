"""Rows in object storage: the shards of the same rows in local files, read by range, and what is said when storage fails."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict

import expert_cli
from expert_cli.data.rows import selection
from expert_cli.data.store import part_build, token_store
from expert_cli.data.store.files import write_shard
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.hardware.machine import inspect
from expert_cli.pipeline.rows_manifest import write_manifest_of_rows
from expert_cli.utils.object_storage import StoredFolder
from expert_cli.utils.reporter import NullReporter
from tests.object_storage import S3Server
from tests.store_rows import WAYS, Rows, contents, cut_small, lines, pairs, project

pytestmark = pytest.mark.usefixtures("bucket")


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch)


def text_of(rows: Rows) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def packed(suffix: str, pack: Callable[[bytes], bytes], folder: Path) -> dict[str, Any]:
    (folder / f"rows.jsonl.{suffix}").write_bytes(pack(text_of(pairs(120))))
    return {"path": f"rows.jsonl.{suffix}"}


def zstd(content: bytes) -> bytes:
    return bytes(pa.compress(content, "zstd", asbytes=True))


def table(name: str, folder: Path) -> dict[str, Any]:
    rows = pa.Table.from_pylist([{**row, "other": number} for number, row in enumerate(pairs(200))])
    path = folder / name
    if path.suffix == ".parquet":
        pq.write_table(rows, path, row_group_size=23)
    else:
        form = pa.ipc.new_stream if name.startswith("stream") else pa.ipc.new_file
        with pa.OSFile(str(path), "wb") as file, form(file, rows.schema) as writer:
            writer.write_table(rows, max_chunksize=23)
    return {"path": name}


def csv(folder: Path) -> dict[str, Any]:
    cells = "".join(f'"Say {n}.\nNow.",{"yes " * (1 + n % 9)}\n' for n in range(120))
    (folder / "rows.csv").write_text("instruction,output\n" + cells, encoding="utf-8")
    return {"path": "rows.csv"}


def one_list(folder: Path) -> dict[str, Any]:
    (folder / "rows.json").write_text(json.dumps({"data": pairs(120)}, indent=1), encoding="utf-8")
    return {"path": "rows.json"}


def splits(folder: Path) -> dict[str, Any]:
    for name, rows in {"a-train-0": pairs(60), "a-train-1": pairs(70, 60), "a-validation": pairs(30, 200)}.items():
        (folder / "rows" / "deep").mkdir(parents=True, exist_ok=True)
        lines(folder / "rows" / "deep" / f"{name}.jsonl", rows)
    (folder / "rows" / "README.md").write_text("# Rows", encoding="utf-8")
    return {"path": "rows", "validation_path": "rows::validation"}


def configured(folder: Path) -> dict[str, Any]:
    splits(folder)
    entry = {"config_name": "c", "data_files": [{"split": "train", "path": "deep/*-[1v]*.jsonl"}]}
    (folder / "rows" / "README.md").write_text(f"---\nconfigs: {json.dumps([entry])}\n---\n", encoding="utf-8")
    return {"path": "rows::train[:80]::c"}


def saved(folder: Path) -> dict[str, Any]:
    DatasetDict({"train": Dataset.from_list(pairs(90)), "validation": Dataset.from_list(pairs(20, 90))}).save_to_disk(
        folder / "rows"
    )
    return {"path": "rows", "validation_path": "rows::validation"}


def pattern(folder: Path) -> dict[str, Any]:
    for name in ("a/x-2.jsonl", "a/x-1.jsonl", "a.b/x-0.jsonl", "a/.x-3.jsonl", "a/y.jsonl", "a/deep/x-9.jsonl"):
        (folder / "rows" / name).parent.mkdir(parents=True, exist_ok=True)
        lines(folder / "rows" / name, pairs(40, 10 * len(name) + ord(name[-7])))
    return {"path": ["rows/**/x-[0-8].jsonl", "rows/a/*.jsonl::train[:50]"]}


OTHER_WAYS: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "gzip": partial(packed, "gz", gzip.compress),
    "zstd": partial(packed, "zst", zstd),
    "bzip2": partial(packed, "bz2", bz2.compress),
    "xz": partial(packed, "xz", lzma.compress),
    "Parquet": partial(table, "rows.parquet"),
    "Arrow": partial(table, "rows.arrow"),
    "a stream of Arrow": partial(table, "stream.arrow"),
    "CSV": csv,
    "one list": one_list,
    "a folder of splits": splits,
    "a README": configured,
    "saved by datasets": saved,
    "patterns": pattern,
}


def uploaded(folder: Path, url: str) -> None:
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        StoredFolder(url).put(path, path.relative_to(folder).as_posix())


def at(url: str, dataset: Any, key: str = "") -> Any:
    """The same data set with its sources below a URL."""
    if isinstance(dataset, dict):
        return {name: at(url, value, name) for name, value in dataset.items()}
    if isinstance(dataset, list):
        return [at(url, value, key) for value in dataset]
    return f"{url}/{dataset}" if key in ("path", "validation_path", "train") else dataset


def filled(store: Path) -> dict[str, bytes]:
    """The shards of the only store in a folder, and what is told of them, places without their folders."""
    files = {name.partition("/")[2]: content for name, content in contents(store).items()}
    files["stats.json"] = re.sub(rb'"[^"]*[/\\]([^"/\\]+:(?:row )?\d+)"', rb'"\1"', files["stats.json"])
    return {name: content for name, content in files.items() if name.endswith(".arrow") or name == "stats.json"}


def of_both(way: Callable[[Path], dict[str, Any]], folder: Path, bucket: str, model: Path) -> tuple[Path, Path]:
    """Manifests of rows in local files, and of the same in a bucket, where no file is beside the manifest."""
    for place in ("here", "there"):
        (folder / place).mkdir()
    dataset = way(folder / "here")
    uploaded(folder / "here", f"{bucket}/some rows")
    local = project(folder / "here", model, dataset)
    return local, project(folder / "there", model, at(f"{bucket}/some rows", dataset))


@pytest.mark.parametrize("way", {**WAYS, **OTHER_WAYS}.values(), ids={**WAYS, **OTHER_WAYS}.keys())
def test_stored_rows_make_the_shards_of_local_ones(
    way: Callable[[Path], dict[str, Any]], tmp_path: Path, bucket: str, model: Path
) -> None:
    local, stored = of_both(way, tmp_path, bucket, model)
    expert_cli.pretokenize(local, output=tmp_path / "local")
    expected = filled(tmp_path / "local")
    assert sum(name.endswith(".arrow") for name in expected) > 2
    built = expert_cli.pretokenize(stored, output=tmp_path / "one").store
    assert filled(tmp_path / "one") == expected
    again = expert_cli.pretokenize(stored, output=tmp_path / "one", stage=tmp_path / "fast").store
    assert (built.status, again.status, again.home) == ("built", "hit", built.home)
    for number in (3, 1, 2):
        expert_cli.build_part(stored, f"{number}/3", output=tmp_path / "many")
    sealed = expert_cli.seal_store(stored, output=tmp_path / "many").store
    assert (filled(tmp_path / "many"), sealed.home.name) == (expected, built.home.name)


def read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no rows be kept from the look to the encoding, as of large sources none are."""
    monkeypatch.setattr(selection, "ROOM_BYTES", -1)


def at_shard(patch: pytest.MonkeyPatch, number: int, do: Callable[[], object]) -> list[str]:
    """Do something before the shard of a number is written; the names of all that are."""
    names: list[str] = []

    def writing(folder: Path, name: str, encoded: Any) -> Any:
        names.append(name)
        if len(names) == number:
            do()
        return write_shard(folder, name, encoded)

    for module in (token_store, part_build):
        patch.setattr(module, "write_shard", writing)
    return names


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("part", ["", "1/1"])
def test_a_server_that_is_gone_is_told_and_the_next_run_goes_on(
    part: str, tmp_path: Path, bucket: str, s3_server: S3Server, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, stored = of_both(WAYS["lines"], tmp_path, bucket, model)
    expert_cli.pretokenize(local, output=tmp_path / "local")
    read_again(monkeypatch)

    def build() -> None:
        if part:
            expert_cli.build_part(stored, part, output=tmp_path / "one")
        else:
            expert_cli.pretokenize(stored, output=tmp_path / "one")

    with monkeypatch.context() as patch:
        before = at_shard(patch, 5, s3_server.door.close)
        with pytest.raises(EnvironmentProblem, match=r"s3://rows/some rows/train.jsonl: cannot read") as raised:
            build()
    assert raised.value.exit_code == 3
    assert "try again: what is there already is used" in raised.value.hint
    s3_server.door.open()
    after = at_shard(monkeypatch, 0, str)
    build()
    assert len(before) >= 5
    assert len(set(before) & set(after)) <= 2, "what was done is not done again"
    if part:
        expert_cli.seal_store(stored, output=tmp_path / "one")
    assert filled(tmp_path / "one") == filled(tmp_path / "local")


@pytest.mark.parametrize("reads_again", [True, False])
def test_an_object_that_is_replaced_or_gone_in_the_middle_makes_no_store(
    *, reads_again: bool, tmp_path: Path, bucket: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, stored = of_both(WAYS["many files, no repeats"], tmp_path, bucket, model)
    rows = StoredFolder(bucket) / "some rows" / "rows"
    if reads_again:
        read_again(monkeypatch)
    for change, told in {
        lambda: rows.write("5.jsonl", text_of(pairs(9, 1))): "replaced|changed",
        lambda: rows.remove(["5.jsonl"]): "cannot read|changed",
    }.items():
        with monkeypatch.context() as patch:
            at_shard(patch, 2, change)
            with pytest.raises(InputError, match=rf"s3://rows/some rows/rows/5.jsonl: .*({told})"):
                expert_cli.pretokenize(stored, output=tmp_path / "one")
        assert not list((tmp_path / "one").glob("[0-9a-f]*/fingerprint.json"))
        rows.write("5.jsonl", text_of(pairs(9, 2)))


def test_other_content_is_another_store_and_nothing_is_read_to_tell(
    tmp_path: Path, bucket: str, s3_server: S3Server, model: Path
) -> None:
    _, stored = of_both(WAYS["lines"], tmp_path, bucket, model)
    rows = StoredFolder(bucket) / "some rows"
    first = expert_cli.pretokenize(stored, output=tmp_path / "one").store
    rows.write("train.jsonl", text_of(pairs(150)))
    s3_server.door.requests.clear()
    assert expert_cli.pretokenize(stored, output=tmp_path / "one").store.status == "hit"
    assert sum(line.startswith("GET") for line in s3_server.door.requests) == 1, "the first rows tell their kind"
    rows.write("train.jsonl", text_of(pairs(149)))
    other = expert_cli.pretokenize(stored, output=tmp_path / "one").store
    assert (other.status, other.stats["train"]["rows"]) == ("rebuilt", 149)
    assert other.home != first.home


def test_without_a_key_the_command_ends_with_3_and_says_what_to_give(tmp_path: Path, bucket: str, model: Path) -> None:
    _, stored = of_both(WAYS["lines"], tmp_path, bucket, model)
    keyless = {name: value for name, value in os.environ.items() if not name.startswith("AWS_") or "KEY" not in name}
    keyless |= {"AWS_SHARED_CREDENTIALS_FILE": "none", "AWS_CONFIG_FILE": "none"}
    command = [sys.executable, "-m", "expert_cli", "pretokenize", "-m", str(stored), "--output", str(tmp_path / "one")]
    ended = subprocess.run(command, env=keyless, capture_output=True, text=True, check=False)
    assert ended.returncode == 3, ended.stderr
    assert "s3://rows/some rows/train.jsonl: cannot read: Unable to locate credentials" in ended.stderr
    assert "AWS_ACCESS_KEY_ID" in ended.stderr


def test_validate_asks_no_storage(tmp_path: Path, bucket: str, s3_server: S3Server, model: Path) -> None:
    _, stored = of_both(WAYS["lines"], tmp_path, bucket, model)
    s3_server.door.requests.clear()
    assert expert_cli.validate(stored).errors == []
    assert s3_server.door.requests == []


def test_init_looks_at_stored_rows_and_names_them_as_written(tmp_path: Path, bucket: str) -> None:
    for name, rows in {"train": pairs(60), "validation": pairs(20, 60)}.items():
        StoredFolder(bucket).write(f"rows/{name}.jsonl", text_of(rows))
    made = write_manifest_of_rows(tmp_path, f"{bucket}/rows", inspect(), NullReporter(), offline=False)
    assert made.good == 60
    assert made.dataset == {"path": f"{bucket}/rows", "validation_path": f"{bucket}/rows::validation"}
