"""Writes and verifies the files of a token store, and opens them as `Documents`.

The files of a store, which `datasets.load_from_disk` can open:

    <first 12 of the key>/
      fingerprint.json         {"key": 64 hex, "parts": {...}, "expert",
                                "files": {path: {"bytes", "sha256"}}, "self": a hash of the rest}; written last
      stats.json               rows, tokens, dropped rows
      dataset_dict.json, train/state.json, train/dataset_info.json
      train/data-00000.arrow   input_ids list<int32>, completion_mask list<bool>: one row per document
    .building-<first 12>/      a store that is not complete yet

`expert`: the expert that the store was first built for (used by `--prune`); other experts with the same data share the store.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expert_cli.data.encode import Encoded
from expert_cli.errors import IntegrityError
from expert_cli.utils import files

FINGERPRINT = "fingerprint.json"
STATE = "state.json"
SPLITS = "dataset_dict.json"
STATS = "stats.json"
STORE_RULE = 11
"""Version of the rule by which rows become shards. Increase it if the rule changes, or tests/unit/data/test_golden.py fails."""
BUILD_ANEW = "delete the folder to have it built anew"
_FEATURES = {
    "input_ids": {"feature": {"dtype": "int32", "_type": "Value"}, "_type": "List"},
    "completion_mask": {"feature": {"dtype": "bool", "_type": "Value"}, "_type": "List"},
}
SCHEMA = pa.schema(
    [("input_ids", pa.list_(pa.int32())), ("completion_mask", pa.list_(pa.bool_()))],
    metadata={"huggingface": json.dumps({"info": {"features": _FEATURES}})},
)


def write_shard(folder: Path, number: int, encoded: Encoded) -> None:
    """Write one shard of a split into its folder. Raises OSError (disk full)."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"data-{number:05d}.arrow"

    def column(values: NDArray[Any], kind: Any, length: int) -> Any:
        # From buffers: pa.array imports pandas (0.3 s) to check its argument, and is slow with booleans.
        return pa.Array.from_buffers(kind, length, [None, pa.py_buffer(np.ascontiguousarray(values))])

    offsets = column(encoded.offsets.astype(np.int32), pa.int32(), len(encoded.offsets))
    ids = column(encoded.ids, pa.int32(), len(encoded.ids))
    mask = column(np.packbits(encoded.trained, bitorder="little"), pa.bool_(), len(encoded.ids))
    columns = [pa.ListArray.from_arrays(offsets, ids), pa.ListArray.from_arrays(offsets, mask)]
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(pa.record_batch(columns, schema=SCHEMA))


def write_fingerprint(
    folder: Path, key: str, parts: Mapping[str, str], stats: Mapping[str, Any], *, expert: str
) -> None:
    """Complete a folder of shards: write the JSON files of `datasets`, the statistics and, last, the fingerprint."""
    splits = sorted(path for path in folder.iterdir() if path.is_dir())
    files.write_json(folder / SPLITS, {"splits": [split.name for split in splits]})
    for split in splits:
        shards = [{"filename": path.name} for path in sorted(split.glob("*.arrow"))]
        state: dict[str, Any] = {"_data_files": shards, "_fingerprint": key[:16], "_split": split.name}
        state |= {"_format_columns": None, "_format_kwargs": {}, "_format_type": None, "_output_all_columns": False}
        info = {"citation": "", "description": "", "features": _FEATURES, "homepage": "", "license": ""}
        files.write_json(split / STATE, state)
        files.write_json(split / "dataset_info.json", info)
    files.write_json(folder / STATS, dict(stats))
    measured = files.VerifiedFolder.measured(folder, leave_out=(FINGERPRINT,)).files
    files.write_sealed(folder / FINGERPRINT, {"key": key, "parts": dict(parts), "expert": expert, "files": measured})
    files.sync_names(folder)


def read_fingerprint(home: Path) -> dict[str, Any]:
    """Return a store's fingerprint. Raises IntegrityError if it is missing or damaged."""
    try:
        return files.read_sealed(home / FINGERPRINT)
    except (OSError, ValueError) as error:
        told = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else error
        raise IntegrityError(f"{home}: {FINGERPRINT} {told}", BUILD_ANEW) from error


def verify_store(home: Path, sha256: Callable[[Path], str] | None = files.sha256_of) -> dict[str, Any]:
    """Return the fingerprint of an intact store. sha256 None: compare only names and sizes. Raises IntegrityError."""
    fingerprint = read_fingerprint(home)
    try:
        damage = names_outside(fingerprint) or files.VerifiedFolder(home, fingerprint["files"]).damage(sha256)
    except (KeyError, TypeError, AttributeError, ValueError):
        damage = f"{FINGERPRINT} is not of its form"
    if damage:
        raise IntegrityError(f"{home}: {damage}", BUILD_ANEW)
    return fingerprint


def names_outside(fingerprint: Mapping[str, Any]) -> str:
    """Return a message that names a file of the fingerprint outside its store; "" for none. Raises KeyError, TypeError."""
    for name in fingerprint["files"]:
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts or ":" in name or "\\" in name:
            return f"{FINGERPRINT} names a file outside the store, {name}"
    return ""


def read_stats(home: Path) -> dict[str, Any]:
    """Return the statistics of a verified store."""
    return dict(files.parse_json((home / STATS).read_bytes()))


def foreign_store(folder: Path) -> Path | None:
    """Return the first data set that another program saved as `folder` or as a folder in it, None for none."""
    saved = (file.parent for name in (SPLITS, STATE) for at in (name, f"[!.]*/{name}") for file in folder.glob(at))
    return next((place for place in sorted(saved) if not files.is_file(place / FINGERPRINT)), None)


# An open store: views into memory-mapped files, never copies ----------------------------------------------------------


@dataclass(frozen=True)
class _Shard:
    """One file: `starts` int32 [rows + 1] into `ids` int32 [tokens]; bit i of `bits` says whether token i is trained."""

    starts: NDArray[np.int32]
    ids: NDArray[np.int32]
    bits: NDArray[np.uint8]

    @classmethod
    def opened(cls, file: Path) -> _Shard:
        """Map a file of `write_shard`. Arrow's own conversion to numpy would import pandas, which takes 0.3 s."""
        with pa.memory_map(str(file)) as source:
            lists, mask = pa.ipc.open_stream(source).read_next_batch().columns
        starts, ids = (np.frombuffer(lists.buffers()[number], np.int32) for number in (1, 3))
        starts = starts[: len(lists) + 1]
        return cls(starts, ids[: starts[-1]], np.frombuffer(mask.buffers()[3], np.uint8))

    def trained(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Return whether the tokens start <= number < stop are trained, one byte per token."""
        whole = np.unpackbits(self.bits[start // 8 : (stop + 7) // 8], bitorder="little")
        return whole[start % 8 : start % 8 + stop - start].view(np.bool_)


class Documents:
    """One split of a verified store, by document number. Pickling sends only the path."""

    def __init__(self, folder: Path) -> None:
        """Memory-map the shards in a split's folder; other files there, which `datasets` writes, are ignored."""
        self.folder = folder
        self._shards = [*map(_Shard.opened, sorted(folder.glob("data-*.arrow")))]
        self.first = np.cumsum([0, *(len(shard.starts) - 1 for shard in self._shards)], dtype=np.int64)

    def __reduce__(self) -> tuple[type[Documents], tuple[Path]]:
        """Send the folder, not the data."""
        return Documents, (self.folder,)

    def __len__(self) -> int:
        """Return the number of documents."""
        return int(self.first[-1])

    def document(self, number: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Return (ids, trained) of one document, both [tokens]; ids is a view of the file."""
        at = int(np.searchsorted(self.first, number, side="right")) - 1
        shard, row = self._shards[at], number - int(self.first[at])
        start, stop = int(shard.starts[row]), int(shard.starts[row + 1])
        return shard.ids[start:stop], shard.trained(start, stop)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens in each document, int64 [documents]."""
        return np.concatenate([np.zeros(0, np.int64), *(np.diff(shard.starts) for shard in self._shards)])

    def trained_in(self, pieces: Any) -> NDArray[np.int64]:
        """Return the number of targets in each of the `Pieces`: trained tokens after the first token. Reads all masks."""
        found = np.zeros(len(pieces.documents), np.int64)
        for shard, first, stop in zip(self._shards, self.first, self.first[1:], strict=False):
            which = np.flatnonzero((first <= pieces.documents) & (pieces.documents < stop))
            if not len(which):
                continue
            begins = shard.starts[pieces.documents[which] - first]
            places = np.flatnonzero(shard.trained(0, len(shard.ids)))
            ends = np.searchsorted(places, [begins + pieces.starts[which] + 1, begins + pieces.stops[which]])
            found[which] = ends[1] - ends[0]
        return found

    def id_range(self) -> tuple[int, int]:
        """Return the smallest and the largest token id; (0, -1) if there is no token."""
        ends = [int(end) for shard in self._shards if len(shard.ids) for end in (shard.ids.min(), shard.ids.max())]
        return min(ends, default=0), max(ends, default=-1)


def drawn_prompts(home: Path | None, count: int, seed: int) -> list[list[int]]:
    """Return the prompts of `count` documents, drawn by the seed; [] without a store. Raises IntegrityError."""
    if home is None or not (home / "train").is_dir():
        return []
    verify_store(home, files.FileHashCache(home.parent).sha256)
    documents = Documents(home / "train")
    numbers = random.Random(seed).sample(range(len(documents)), min(count, len(documents)))  # noqa: S311
    drawn = (documents.document(number) for number in numbers)
    return [ids[: trained.argmax()].tolist() for ids, trained in drawn if trained.argmax()]
