"""The files of a token store: written beside their place, synced, hashed, verified before they are read.

A store as it lies on disk (opens with `datasets.load_from_disk`):

    <first 12 of the key>/
      fingerprint.json         {"key": 64 hex, "parts": {...}, "expert", "shards": [...],
                                "files": {path: {"bytes", "sha256"}}, "self": a hash of all that}; written last
      stats.json               rows, tokens, what was dropped
      dataset_dict.json        the splits
      train/data-00000.arrow   input_ids list<int32>, completion_mask list<bool>: one row a document
      train/state.json, train/dataset_info.json
    .building-<first 12>/      one that is not whole yet

`expert` is the one it was built for first, for `--prune`; another with the same data uses the same store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expert_cli.data.encode import Encoded
from expert_cli.errors import IntegrityError
from expert_cli.utils.files import (
    VerifiedFolder,
    read_sealed,
    sha256_of,
    stamp,
    sync_file,
    sync_names,
    write_json,
    write_sealed,
)

FINGERPRINT = "fingerprint.json"
STATE = "state.json"
SPLITS = "dataset_dict.json"
STATS = "stats.json"
STORE_RULE = 3
"""By which rows become the shards of a store: which columns are read, which tokens stand for a row and which of these are
trained, where shards end, how they lie on disk. Raise it whenever any of that changes: stores of another rule are built anew.
tests/unit/data/test_golden.py fails until it is raised."""
BUILD_ANEW = "delete the folder to have it built anew"
_FEATURES = {
    "input_ids": {"feature": {"dtype": "int32", "_type": "Value"}, "_type": "List"},
    "completion_mask": {"feature": {"dtype": "bool", "_type": "Value"}, "_type": "List"},
}
SCHEMA = pa.schema(
    [("input_ids", pa.list_(pa.int32())), ("completion_mask", pa.list_(pa.bool_()))],
    metadata={"huggingface": json.dumps({"info": {"features": _FEATURES}})},
)


@dataclass(frozen=True)
class ShardRecord:
    """One shard that is complete on disk."""

    file: str
    bytes: int
    sha256: str
    rows: int
    tokens: int
    trained_tokens: int


def shard_name(split: str, number: int) -> str:
    """Return the name of a split's shard in a store."""
    return f"{split}/data-{number:05d}.arrow"


def write_shard(folder: Path, name: str, encoded: Encoded) -> ShardRecord:
    """Write one shard, complete or not at all, and return its record. Raises OSError (disk full)."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp")
    # From buffers: pa.array imports pandas (0.3 s) to ask whether it was given some, and takes long over booleans.
    offsets = _int32(encoded.offsets)
    ids = _int32(encoded.ids)
    bits = np.packbits(encoded.trained, bitorder="little")
    mask = pa.Array.from_buffers(pa.bool_(), len(encoded.trained), [None, pa.py_buffer(bits)])
    columns = [pa.ListArray.from_arrays(offsets, ids), pa.ListArray.from_arrays(offsets, mask)]
    try:
        with pa.OSFile(str(beside), "wb") as sink, pa.ipc.new_stream(sink, SCHEMA) as writer:
            writer.write_batch(pa.record_batch(columns, schema=SCHEMA))
        sync_file(beside)
        size, sha256 = beside.stat().st_size, sha256_of(beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return ShardRecord(name, size, sha256, len(encoded), len(encoded.ids), int(encoded.trained.sum()))


def _int32(values: NDArray[np.integer[Any]]) -> Any:
    flat = np.ascontiguousarray(values, np.int32)
    return pa.Array.from_buffers(pa.int32(), len(flat), [None, pa.py_buffer(flat)])


def write_fingerprint(
    folder: Path,
    key: str,
    parts: Mapping[str, str],
    shards: Sequence[ShardRecord],
    stats: Callable[[Path], Mapping[str, Any]],
    *,
    expert: str,
) -> None:
    """Write what turns a folder of shards into a store: the layout's JSON files, statistics, and last the fingerprint."""
    splits = sorted({shard.file.split("/")[0] for shard in shards})
    write_json(folder / SPLITS, {"splits": splits})
    for split in splits:
        names = [shard.file.split("/")[1] for shard in shards if shard.file.startswith(f"{split}/")]
        state: dict[str, Any] = {"_data_files": [{"filename": name} for name in names], "_fingerprint": key[:16]}
        state |= {"_format_columns": None, "_format_kwargs": {}, "_format_type": None}
        state |= {"_output_all_columns": False, "_split": split}
        info = {"citation": "", "description": "", "features": _FEATURES, "homepage": "", "license": ""}
        write_json(folder / split / STATE, state)
        write_json(folder / split / "dataset_info.json", info)
    write_json(folder / STATS, stats(folder))
    known = {shard.file: {"bytes": shard.bytes, "sha256": shard.sha256} for shard in shards}
    files = VerifiedFolder.measured(folder, known, leave_out=(FINGERPRINT,)).files
    body = {"key": key, "parts": dict(parts), "expert": expert, "shards": [*map(asdict, shards)], "files": files}
    write_sealed(folder / FINGERPRINT, body)
    sync_names(folder)


def read_fingerprint(home: Path) -> dict[str, Any]:
    """Return a store's fingerprint. Raises IntegrityError if it is missing or broken."""
    try:
        return read_sealed(home / FINGERPRINT)
    except OSError as error:
        raise IntegrityError(f"{home}: {FINGERPRINT} cannot be read: {error.strerror}", BUILD_ANEW) from error
    except ValueError as error:
        raise IntegrityError(f"{home}: {FINGERPRINT} {error}", BUILD_ANEW) from error


def verify_store(home: Path, sha256: Callable[[Path], str] | None = sha256_of) -> dict[str, Any]:
    """Return the fingerprint of a store whose files are as it records them; sha256: None compares names and sizes alone.

    Raises IntegrityError naming what is not.
    """
    fingerprint = read_fingerprint(home)
    try:
        damage = names_outside(fingerprint) or VerifiedFolder(home, fingerprint["files"]).damage(sha256)
    except (KeyError, TypeError, AttributeError, ValueError):
        damage = f"{FINGERPRINT} is not of its form"
    if damage:
        raise IntegrityError(f"{home}: {damage}", BUILD_ANEW)
    return fingerprint


def names_outside(fingerprint: Mapping[str, Any]) -> str:
    """Return what a fingerprint names that would lie outside its store, in words; "" for nothing.

    Raises KeyError, TypeError: it is not of its form.
    """
    for name in (*fingerprint["files"], *(shard["file"] for shard in fingerprint.get("shards", ()))):
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts or ":" in name or "\\" in name:
            return f"{FINGERPRINT} names a file outside the store, {name}"
    return ""


def file_hashes(folder: Path) -> FileHashCache:
    """Return the file hashes that are remembered beside the stores in `folder`."""
    return FileHashCache(folder / ".memo.json")


class FileHashCache:
    """File hashes remembered by size, mtime, ctime and inode, so that an unchanged file is not read again."""

    def __init__(self, path: Path) -> None:
        """Read the hashes at `path`; a missing or damaged one is an empty one."""
        self.path = path
        self.changed = False
        self.known: dict[str, list[Any]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Take over what other processes have written meanwhile."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            self.known = dict(read_sealed(self.path)["files"]) | self.known

    def sha256(self, path: Path, *, again: bool = False) -> str:
        """Return a file's hash, read anew if the file changed since it was remembered (or if asked `again`)."""
        seen = stamp(path)
        name = str(path.resolve())
        remembered = self.known.get(name)
        if not again and remembered is not None and remembered[:-1] == seen:
            return str(remembered[-1])
        digest = sha256_of(path)
        self.known[name] = [*seen, digest]
        self.changed = True
        return digest

    def save(self) -> None:
        """Write what is new; a folder that cannot be written is used without them."""
        if self.changed:
            there = {name: seen for name, seen in self.known.items() if Path(name).exists()}
            with suppress(OSError):
                write_sealed(self.path, {"files": there})
                self.changed = False
