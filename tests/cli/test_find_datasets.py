"""`expert-cli find-datasets` as a user and a program see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from expert_cli.inventory.datasets import find_datasets
from expert_cli.utils.files import write_sealed
from tests import manifests
from tests.schemas import valid
from tests.words import Words

Cli = Callable[..., Any]


KEY = "0123456789ab" + "c" * 52


def written(path: Path, content: bytes = b"{}\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def hub(folder: Path, name: str, commit: str, **files: bytes) -> Path:
    """Put a data set into a hub cache: blobs, the links of a snapshot, the branch that names it."""
    home = folder / f"datasets--{name.replace('/', '--')}"
    written(home / "refs" / "main", commit.encode())
    for file, content in files.items():
        blob = written(home / "blobs" / file, content)
        link = home / "snapshots" / commit / file.replace("_", ".")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    return home


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """One expert with rows, one whose data is not here, one that does not load; caches and a token store."""
    for name, path in (("rows", "datasets/a.jsonl"), ("far", "org/far"), ("gone", "b.jsonl")):
        (tmp_path / "experts" / name).mkdir(parents=True)
        small = manifests.small()
        small = {**small, "name": name, "training": {**small["training"], "dataset": {"path": path}}}
        manifests.write(tmp_path / "experts" / name, small)
    written(tmp_path / "experts" / "rows" / "datasets" / "a.jsonl", b'{"instruction": "1", "response": "2"}\n' * 100)
    written(tmp_path / "experts" / "bad" / "manifest.json", b"{")
    hub(tmp_path / "hf" / "hub", "org/idle", "a" * 40, train_parquet=b"rows", README_md=b"#\n")
    written(tmp_path / "hf" / "datasets" / "org___old" / "default" / "x.arrow", b"12")
    store = tmp_path / "datasets_optimized" / "rows" / "tokenized" / KEY[:12]
    written(store / "stats.json", b'{"train": {"rows": 7}, "validation": {"rows": 2}}')
    size = {"bytes": 49, "sha256": "0" * 64}
    write_sealed(store / "fingerprint.json", {"key": KEY, "parts": {}, "shards": [], "files": {"stats.json": size}})
    written(store.with_name("f" * 12) / "stats.json")
    return tmp_path


def rows_of(document: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {row["name"]: (row["kind"], row["status"], row["rows"], row["experts"]) for row in document["datasets"]}


STORES = "datasets_optimized/rows/tokenized"
EXPECTED = {
    "org/idle": ("hub", "unused", None, []),
    "org/far": ("hub", "missing", None, ["far"]),
    "org/old": ("arrow_cache", "unused", None, []),
    f"{STORES}/{KEY[:12]}": ("token_store", "used", 9, ["rows"]),
    f"{STORES}/{'f' * 12}": ("token_store", "damaged", None, ["rows"]),
    "experts/rows/datasets/a.jsonl": ("file", "used", None, ["rows"]),
    "experts/gone/b.jsonl": ("file", "missing", None, ["gone"]),
}


def test_json_is_one_document_of_its_schema(cli: Cli, project: Path) -> None:
    done = cli("find-datasets", "--hf-cache", "hf", "--json")
    assert done.code == 0
    document = json.loads(done.out)
    valid(document, "find-datasets")
    assert document["hf_cache"] == str(project / "hf")
    assert rows_of(document) == EXPECTED
    assert "bad" in done.err


def test_the_table_has_a_line_each(cli: Cli, project: Path) -> None:
    done = cli("find-datasets", "--hf-cache", "hf")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert "missing far org/far" in lines
    assert any(
        line.startswith("used 3.8 kB 2") and line.endswith("rows experts/rows/datasets/a.jsonl") for line in lines
    )
    assert any("damaged" in line and "fingerprint.json cannot be read" in line for line in lines)
    assert lines[-1].startswith("7 data sets, ")


def test_a_store_of_the_key_of_now_is_fresh_and_another_is_stale(project: Path) -> None:
    found = []
    for key in (KEY, "d" * 64, None):
        rows = find_datasets(project / "experts", project / "no", project / "no", Words(), lambda *_: key)  # noqa: B023
        found += [row.status for row in rows if row.name.endswith(KEY[:12])]
    assert found == ["fresh", "stale", "used"]
