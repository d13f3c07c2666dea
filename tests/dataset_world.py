"""A small world of data sets on disk: a hub cache, token stores, experts; and ways to list it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, DatasetDict

from expert_cli.config.plan import Plan
from expert_cli.inventory.catalog import take_inventory
from expert_cli.inventory.dataset import DatasetEntry
from expert_cli.inventory.hf_cache import hf_caches
from expert_cli.utils.files import write_sealed
from expert_cli.utils.reporter import NullReporter
from tests import manifests

KEY = "0123456789ab" + "c" * 52


OTHER = "fedcba987654" + "d" * 52


COMMIT = "a" * 40


class Words(NullReporter):
    """Keeps what is said and every bar's title."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.bars: list[str] = []

    def info(self, text: str) -> None:
        self.lines.append(text)

    def warning(self, text: str) -> None:
        self.lines.append(f"warning: {text}")

    @contextmanager
    def progress(self, title: str, total: float | None, unit: str = "") -> Iterator[Any]:
        self.bars.append(title)
        with super().progress(title, total, unit) as bar:
            yield bar


def made(path: Path, content: bytes = b"{}\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def parquet(path: Path, rows: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": [str(row) for row in range(rows)]}), path)
    return path


def expert(world: Path, name: str, dataset: dict[str, Any], **config: Any) -> Path:
    home = world / "project" / "experts" / name
    home.mkdir(parents=True, exist_ok=True)
    manifest = manifests.small(**config)
    return manifests.write(home, {**manifest, "name": name, "training": {**manifest["training"], "dataset": dataset}})


def hub(world: Path, hub_id: str, files: dict[str, Path | bytes], commit: str = COMMIT, *, ref: bool = True) -> Path:
    """Lay down a data set as the hub client does: blobs, links to them, a reference."""
    folder = world / "hf" / "hub" / f"datasets--{hub_id.replace('/', '--')}"
    if ref:
        made(folder / "refs" / "main", commit.encode())
    for number, (name, content) in enumerate(files.items()):
        blob = folder / "blobs" / f"{commit[:8]}{number:032x}"
        made(blob, content if isinstance(content, bytes) else content.read_bytes())
        link = folder / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    return folder


def store(folder: Path, key: str = KEY, **fingerprint: Any) -> Path:
    """Lay down a token store of two documents under `folder`."""
    home = folder / key[:12]
    documents = Dataset.from_dict({"input_ids": [[1, 2], [3]], "completion_mask": [[False, True], [True]]})
    DatasetDict({"train": documents}).save_to_disk(home)
    files = {
        path.relative_to(home).as_posix(): {"bytes": path.stat().st_size, "sha256": "e" * 64}
        for path in sorted(home.rglob("*"))
        if path.is_file()
    }
    written = {"key": key, "parts": {"tokenizer": "x"}, "files": files, **fingerprint}
    write_sealed(home / "fingerprint.json", written)
    return home


def listed(
    world: Path, current_key: Callable[[Plan], str | None] | None = None, report: NullReporter | None = None
) -> dict[str, DatasetEntry]:
    found = take_inventory(
        world / "project" / "experts", hf_caches(world / "hf"), report or NullReporter(), current_key
    )
    rows = {row.name: row for row in found.datasets if row.kind != "arrow_cache"}
    return rows | {f"arrow:{row.name}": row for row in found.datasets if row.kind == "arrow_cache"}


def states(rows: dict[str, DatasetEntry]) -> dict[str, tuple[str, str, tuple[str, ...]]]:
    return {name: (row.kind, row.status, row.experts) for name, row in rows.items()}
