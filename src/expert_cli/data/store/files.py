"""The files of a token store: written beside their place, synced, hashed while written, verified before they are read.

A store as it lies on disk (opens with `datasets.load_from_disk`):

    <first 12 of the key>/
      fingerprint.json         key, its parts, size and SHA-256 of every other file, a hash of itself
      stats.json               rows, tokens, what was dropped
      dataset_dict.json        the splits
      train/data-00000.arrow   input_ids list<int32>, completion_mask list<bool>: one row a document
      train/state.json, train/dataset_info.json
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expert_cli.data.store.fingerprint import FINGERPRINT, FORMAT, PROGRESS, parse_fingerprint
from expert_cli.data.tokenize.assemble import Encoded
from expert_cli.errors import IntegrityError
from expert_cli.utils.files import read_sealed, sha256_of, stamp, sync_folder, write_json, write_sealed

STATS = "stats.json"
_HASHED_AT_ONCE = 4
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


class _HashingFile:
    """A binary file that is hashed while it is written."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")
        self.digest = hashlib.sha256()
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self.digest.update(view)
        self.size += view.nbytes
        return self.file.write(view)

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        if not self.closed:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            self.closed = True


def write_shard(folder: Path, split: str, number: int, encoded: Encoded) -> ShardRecord:
    """Write one shard, complete or not at all, and return its record. Raises OSError (disk full)."""
    name = f"{split}/data-{number:05d}.arrow"
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp")
    # From buffers: pa.array imports pandas (0.3 s) to ask whether it was given some, and takes long over booleans.
    offsets = _int32(encoded.offsets)
    ids = _int32(encoded.ids)
    bits = np.packbits(encoded.trained, bitorder="little")
    mask = pa.Array.from_buffers(pa.bool_(), len(encoded.trained), [None, pa.py_buffer(bits)])
    columns = [pa.ListArray.from_arrays(offsets, ids), pa.ListArray.from_arrays(offsets, mask)]
    sink = _HashingFile(beside)
    try:
        with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), SCHEMA) as writer:
            writer.write_batch(pa.record_batch(columns, schema=SCHEMA))
        sink.close()
        beside.replace(path)
    finally:
        sink.file.close()
        beside.unlink(missing_ok=True)
    trained = int(encoded.trained.sum())
    return ShardRecord(name, sink.size, sink.digest.hexdigest(), len(encoded), len(encoded.ids), trained)


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
    splits = list(dict.fromkeys(shard.file.split("/")[0] for shard in shards))
    write_json(folder / "dataset_dict.json", {"splits": splits})
    for split in splits:
        names = [shard.file.split("/")[1] for shard in shards if shard.file.startswith(f"{split}/")]
        state: dict[str, Any] = {
            "_data_files": [{"filename": name} for name in names],
            "_fingerprint": key[:16],
            "_format_columns": None,
        }
        state |= {"_format_kwargs": {}, "_format_type": None, "_output_all_columns": False, "_split": split}
        info = {"citation": "", "description": "", "features": _FEATURES, "homepage": "", "license": ""}
        write_json(folder / split / "state.json", state)
        write_json(folder / split / "dataset_info.json", info)
    write_json(folder / STATS, stats(folder))
    known = {shard.file: {"bytes": shard.bytes, "sha256": shard.sha256} for shard in shards}
    small = [path for path in sorted(folder.rglob("*.json")) if path.name not in (FINGERPRINT, PROGRESS)]
    for path in small:
        known[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    body = {
        "format": FORMAT,
        "key": key,
        "parts": dict(parts),
        "expert": expert,
        "shards": [asdict(shard) for shard in shards],
        "files": known,
    }
    write_sealed(folder / FINGERPRINT, body)
    sync_folder(folder)


def read_fingerprint(folder: Path) -> dict[str, Any]:
    """Return a store's fingerprint. Raises IntegrityError if it is missing, broken or of another format."""
    path = folder / FINGERPRINT
    try:
        return parse_fingerprint(path.read_bytes().decode("utf-8", "replace"))
    except OSError as error:
        raise IntegrityError(f"{path} cannot be read: {error.strerror}", "") from error
    except ValueError as error:
        raise IntegrityError(f"{path} {error}", "") from error


def find_damage(folder: Path, fingerprint: Mapping[str, Any], hash_cache: FileHashCache, *, hash_all: bool) -> str:
    """Return what is wrong with a store's files, "" if nothing.

    Sizes and stat data are always checked; a file whose stat data differ from the verified record is hashed again,
    with `hash_all` every file is.
    """
    for name, wanted in fingerprint["files"].items():
        path = folder / name
        try:
            size = path.stat().st_size
        except OSError:
            return f"{path} is missing"
        if size != wanted["bytes"]:
            return f"{path} has {size:,} bytes, not {wanted['bytes']:,}"
    with ThreadPoolExecutor(_HASHED_AT_ONCE) as threads:
        digests = threads.map(lambda name: hash_cache.sha256(folder / name, again=hash_all), fingerprint["files"])
        for (name, wanted), digest in zip(fingerprint["files"].items(), digests, strict=True):
            if digest != wanted["sha256"]:
                return f"{folder / name} does not match its hash"
    return ""


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
        try:
            self.known = dict(read_sealed(self.path)["files"]) | self.known
        except (OSError, ValueError, KeyError, TypeError):
            return

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
            try:
                write_sealed(self.path, {"files": there})
            except OSError:
                return
            self.changed = False
