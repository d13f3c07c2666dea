"""A token store in object storage: the files of a store as whole objects, and the fingerprint, which makes them one, last.

    s3://bucket/stores/<first 12 of the key>/
      train/data-00000.arrow ...   what a store on a disk has (`files.py`), byte for byte
      train/lengths.npy            int32 [3, documents]: tokens, those before the first trained one, trained ones
      lengths.json                 {"key", "files": {"train/lengths.npy": {"bytes", "sha256"}}, "self": a hash of all that}
      fingerprint.json             without it there is no store
      .put/<name>.<32 hex>         while it is written: that object was put, with this content, and is of this version

Storage has no locks: processes that write one store at once put the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from expert_cli.data.store.documents import DocumentLengths, Documents
from expert_cli.data.store.files import (
    FINGERPRINT,
    FORMAT,
    STATS,
    ShardRecord,
    names_outside,
    read_fingerprint,
    verify_store,
)
from expert_cli.data.store.key import StoreKey
from expert_cli.errors import IntegrityError
from expert_cli.utils.files import beside, parse_json, parse_sealed, sealed, sha256_of
from expert_cli.utils.object_storage import ObjectInfo, StoredFolder
from expert_cli.utils.reporter import Reporter

LENGTHS = "lengths.json"
PUT_ANEW = "put it there anew: pretokenize --force --output URL"
AT_ONCE = 4
"""Objects that are put or fetched at the same time: one connection to a storage is slower than a network card."""
_PUT = ".put/"


def lengths_name(split: str) -> str:
    """Return the name of the object with the lengths of a split's documents."""
    return f"{split}/lengths.npy"


def sealed_document(folder: StoredFolder, name: str) -> dict[str, Any] | None:
    """Return what a sealed JSON object says, None where there is none. Raises IntegrityError: it is damaged."""
    if folder.info(name) is None:
        return None
    try:
        return parse_sealed(folder.read(name))
    except ValueError as error:
        raise IntegrityError(f"{folder / name} {error}", PUT_ANEW) from error


def stored_fingerprint(folder: StoredFolder, key: StoreKey) -> dict[str, Any] | None:
    """Return the fingerprint of the store with this key in its folder, None where there is none: one small read.

    Raises IntegrityError: it is damaged, or of another store.
    """
    body = sealed_document(folder, FINGERPRINT)
    if body is None:
        return None
    damage = ""
    if body.get("format") != FORMAT:
        damage = f"{FINGERPRINT} is of format {body.get('format')}, not {FORMAT}"
    elif body.get("key") != key.sha256:
        damage = f"{FINGERPRINT} belongs to another store, {str(body.get('key'))[:12]}"
    else:
        try:
            damage = names_outside(body)
        except (KeyError, TypeError):
            damage = f"{FINGERPRINT} is not of its form"
    if damage:
        raise IntegrityError(f"{folder}: {damage}", PUT_ANEW)
    return body


def stored_stats(folder: StoredFolder, fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statistics of a store. Raises IntegrityError: they are not as they were written."""
    raw = folder.read(STATS)
    if hashlib.sha256(raw).hexdigest() != fingerprint["files"][STATS]["sha256"]:
        raise IntegrityError(f"{folder / STATS} does not match its hash", PUT_ANEW)
    stats: dict[str, Any] = parse_json(raw)
    return stats


class StoreWriter:
    """Puts a store into object storage: each shard as soon as it is written, the fingerprint last.

    What an interrupted write has put is not sent again.
    """

    def __init__(self, folder: StoredFolder, report: Reporter) -> None:
        """Write to the folder of a store's key."""
        self.folder = folder
        self.report = report
        self.put: dict[str, ObjectInfo] = {}

    @cached_property
    def _there(self) -> dict[str, ObjectInfo]:
        """What lies there at the beginning; what is written over is no store any more."""
        there = self.folder.list()
        if FINGERPRINT in there:
            self.folder.remove([FINGERPRINT])
        return there

    def shard(self, building: Path, record: ShardRecord) -> None:
        """Put a shard that was written. Raises EnvironmentProblem, InputError as `StoredFolder` does."""
        self._put(building / record.file, record.file, record.bytes, record.sha256)

    def copy(self, source: StoredFolder, shards: Sequence[tuple[str, ShardRecord]]) -> None:
        """Put shards that lie in the same storage: the name of each in `source`, and what it is in the store."""

        def one(shard: tuple[str, ShardRecord]) -> None:
            named, record = shard
            self._send(record.file, record.bytes, record.sha256, partial(self.folder.copy, source, named, record.file))

        _ = self._there
        with self.report.progress("copying shards", len(shards)) as bar, ThreadPoolExecutor(AT_ONCE) as threads:
            for done, _none in enumerate(threads.map(one, shards), 1):
                bar.update(done)

    def seal(self, home: Path) -> None:
        """Put what is left of a whole store, see that all is there, and put the fingerprint.

        Raises IntegrityError: an object is not what was put.
        """
        verify_store(home, sha256=None)
        documents = [Documents(home / split) for split in ("train", "validation") if (home / split).is_dir()]
        self.seal_with(home, {of.folder.name: (len(of), of.measured()) for of in documents})
        self.report.info(f"store     put into {self.folder}; a copy stays in {home}")

    def seal_with(self, home: Path, lengths: Mapping[str, tuple[int, Iterable[DocumentLengths]]]) -> None:
        """Do that for a store of which `home` has what was not copied. lengths: by split how many documents, and how long."""
        fingerprint = read_fingerprint(home)
        files = {name: entry for name, entry in fingerprint["files"].items() if name not in self.put}
        total, done = sum(entry["bytes"] for entry in files.values()), 0
        _ = self._there
        with (
            self.report.progress("putting the store", total, "B") as bar,
            ThreadPoolExecutor(AT_ONCE) as threads,
        ):
            puts = [
                threads.submit(self._put, home / name, name, entry["bytes"], entry["sha256"])
                for name, entry in files.items()
            ]
            try:
                for entry, put in zip(files.values(), puts, strict=True):
                    put.result()
                    done += entry["bytes"]
                    bar.update(done)
            finally:
                threads.shutdown(cancel_futures=True)
        self._put_lengths(home, fingerprint["key"], lengths)
        there = self.folder.list()
        for name, info in self.put.items():
            if there.get(name) != info:
                raise IntegrityError(
                    f"{self.folder / name}: is {there.get(name, 'gone')}, not {info}, as it was put",
                    "See that no other program writes there; then run it again: what is right is not sent again.",
                )
        self.folder.put(home / FINGERPRINT, FINGERPRINT)
        self.folder.remove(name for name in there if name.startswith(_PUT))

    def _put_lengths(self, home: Path, key: str, lengths: Mapping[str, tuple[int, Iterable[DocumentLengths]]]) -> None:
        entries = {}
        with tempfile.TemporaryDirectory(dir=home.parent, prefix=".lengths-") as folder:
            for split, (count, of_documents) in sorted(lengths.items()):
                path, name = Path(folder) / f"{split}.npy", lengths_name(split)
                entries[name] = entry = write_lengths(path, count, of_documents)
                self._put(path, name, entry["bytes"], entry["sha256"])
        self.folder.write(LENGTHS, sealed({"key": key, "files": entries}))

    def _put(self, path: Path, name: str, size: int, sha256: str) -> None:
        self._send(name, size, sha256, partial(self.folder.put, path, name))

    def _send(self, name: str, size: int, sha256: str, send: Callable[[], None]) -> None:
        if name in self.put:
            return
        before = self._there.get(name)
        if before is not None and before.size == size and _note(name, sha256, before) in self._there:
            self.put[name] = before
            return
        send()
        info = self.folder.info(name)
        if info is None or info.size != size:
            told = "is not there" if info is None else f"has {info.size:,} bytes, not {size:,}"
            raise IntegrityError(f"{self.folder / name} {told}, though it was put", "Run it again.")
        self.folder.write(_note(name, sha256, info), b"")
        self.put[name] = info


def write_lengths(path: Path, count: int, lengths: Iterable[DocumentLengths]) -> dict[str, Any]:
    """Write the lengths of so many documents as `StoredDocuments` reads them; return what is recorded of the file."""
    with beside(path) as unfinished:
        rows = np.lib.format.open_memmap(unfinished, "w+", np.int32, (3, count))
        done = 0
        for some in lengths:
            rows[:, done : (done := done + len(some.tokens))] = some
        rows.flush()
        del rows
        entry = {"bytes": unfinished.stat().st_size, "sha256": sha256_of(unfinished)}
        unfinished.replace(path)
    return entry


def _note(name: str, sha256: str, info: ObjectInfo) -> str:
    """Return the name of the object that says that another was put with this content, and is this version."""
    told = json.dumps([sha256, info.size, info.version])
    return f"{_PUT}{name}.{hashlib.sha256(told.encode()).hexdigest()[:32]}"
