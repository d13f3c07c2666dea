"""Rows as manifests name them, and the stores that are made of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from expert_cli.data.rows import scan
from expert_cli.data.store import parts
from expert_cli.data.tokenize import stream
from tests import manifests

Rows = list[dict[str, Any]]


def cut_small(patch: pytest.MonkeyPatch) -> None:
    """Let files of a few kB be many pieces, and a piece several chunks."""
    patch.setattr(scan, "PIECE_BYTES", 1500)
    patch.setattr(stream, "PIECE_BYTES", 1500)
    patch.setattr(stream, "CHUNK_CHARACTERS", 250)
    patch.setattr(parts, "POLL_S", 0.01)


def pairs(count: int, start: int = 0) -> Rows:
    return [{"instruction": f"Say {n}.", "output": "yes " * (1 + n % 9)} for n in range(start, start + count)]


def lines(path: Path, rows: Rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def talk(n: int) -> dict[str, Any]:
    turns = [{"role": "user", "content": f"Say {n}."}, {"role": "assistant", "content": "yes " * (n % 5)}]
    return {"messages": turns, "source": "s"}


def write_lines(folder: Path) -> dict[str, Any]:
    lines(folder / "train.jsonl", pairs(150))
    return {"path": "train.jsonl"}


def write_validation(folder: Path) -> dict[str, Any]:
    lines(folder / "train.jsonl", [*pairs(90), *pairs(3)])
    lines(folder / "held.jsonl", [*pairs(60, start=80), {"instruction": " SAY 3.", "output": "no"}])
    return {"path": "train.jsonl", "validation_path": "held.jsonl"}


def write_bad_and_late(folder: Path) -> dict[str, Any]:
    """A column that turns up in the last rows, rows that are bad, blank lines, a row that says it is not trained."""
    rows = [*pairs(199), {"instruction": "Say 7.", "output": "late", "input": "below", "weight": 0}]
    text = [json.dumps(row) for row in rows]
    text[60], text[100:100] = "{half", ["", ""]
    (folder / "train.jsonl").write_text("\n".join(text) + "\n", encoding="utf-8")
    return {"path": "train.jsonl"}


def write_weights(folder: Path) -> dict[str, Any]:
    lines(folder / "a.jsonl", pairs(70))
    pq.write_table(pa.Table.from_pylist(pairs(90, start=50)), folder / "b.parquet", row_group_size=13)
    tasks = {"a": {"train": "a.jsonl", "weight": 2.5}, "b": {"train": "b.parquet", "weight": 0.4}}
    return {"type": "multi_task", "tasks": tasks, "validation_split": 0.1, "filters": {"deduplicate": "row"}}


def write_many_files(folder: Path) -> dict[str, Any]:
    (folder / "rows").mkdir()
    for n in range(6):
        lines(folder / "rows" / f"{n}.jsonl", pairs(9 + 40 * (n == 3), start=5 * n))
    return {"path": "rows", "validation_split": 0.2, "filters": {"deduplicate": "row", "min_length": 13}}


def write_slices(folder: Path) -> dict[str, Any]:
    lines(folder / "train.jsonl", pairs(160))
    return {"path": "train.jsonl::train[20%:-30]"}


def write_talks(folder: Path) -> dict[str, Any]:
    lines(folder / "train.jsonl", [talk(n) for n in range(1, 200) if n % 5])
    return {"path": "train.jsonl", "validation_split": 0.05}


WAYS: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "lines": write_lines,
    "validation rows of their own": write_validation,
    "bad rows, a late column": write_bad_and_late,
    "weights, Parquet, a split": write_weights,
    "many files, no repeats": write_many_files,
    "a slice": write_slices,
    "conversations": write_talks,
}


def project(folder: Path, model: Path, dataset: Mapping[str, Any]) -> Path:
    manifest = manifests.small(max_seq_length=64)
    manifest["base_models"][0]["name"] = str(model)
    manifest["training"]["dataset"] = dict(dataset)
    return manifests.write(folder, manifest)


def contents(store: Path) -> dict[str, bytes]:
    """The files of the only store in a folder, and its name."""
    (home,) = (path for path in store.glob("[0-9a-f]*") if path.is_dir())
    files = {f"{home.name}/{path.relative_to(home)}": path for path in home.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items()}
